"""The reference page of nginx."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`nginx.service` is active and reads `/etc/nginx/nginx.conf`.",
    edited="The line that sets the directive, in `nginx.conf` or in a file that it includes."
    " autotune adds a missing directive to the block that it belongs to.",
    validated="`nginx -t -q`, with the new files and all includes in place.",
    read_back="`nginx -T`. The length of the accept queue comes from `ss`.",
    untuned=(
        UntunedReason("`backlog`, `reuseport` or `http2` that a `listen` line already sets",
            "nginx accepts these options only once for each address. autotune adds missing options, but"
            " does not change yours."),
        UntunedReason("A directive given with `-g` on the unit's command line",
            "The command line overrides the file."),
        UntunedReason("`upstream_keepalive`, if a `proxy_http_version` or `Connection` header of the"
            " site closes connections after each request",
            "Persistent connections need HTTP/1.1 and no `Connection: close`. autotune does not replace"
            " your headers."),
        UntunedReason("`upstream_keepalive`, if only some upstreams of the site set `keepalive`",
            "Connections to the other upstreams are not kept. Set `keepalive` in all upstreams to tune"
            " it."),
        UntunedReason("`fastcgi_buffer_size` and `fastcgi_buffers`, if a file sets any `fastcgi_b…`"
            " directive",
            "The sizes of FastCGI buffers depend on each other."),
        UntunedReason("TLS session settings, if no `listen` line has `ssl`",
            "TLS settings have no effect without TLS."),
        UntunedReason("Which responses are cached, and for how long",
            "Whether a response may be stale depends on the site."),
        UntunedReason("TLS protocols, ciphers and certificates", "These TLS settings affect security."),
    ),
)  # fmt: skip
