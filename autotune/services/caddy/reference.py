"""The reference page of Caddy."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`caddy.service` is active. Its file is the Caddyfile that the unit names with"
    " `--config`, with all files that it imports.",
    edited="The line in each `reverse_proxy` or `forward_auth` that sets the value. autotune adds a"
    " missing line to `transport http`, and adds this block if it is missing. Environment variables"
    " of the Go runtime are in the unit, or in a drop-in.",
    validated="`caddy validate --adapter caddyfile`, run by the account of the unit, because the"
    " command may create log files and certificates.",
    read_back="The administration interface (`/config/`), read with `perl`. Environment variables of"
    " the Go runtime come from the process.",
    untuned=(
        UntunedReason(
            "`lb_policy`, if the file does not set it",
            "Most proxies have only one upstream server. Set `lb_policy random`, the default, to"
            " tune it.",
        ),
        UntunedReason(
            "An option that only some proxies set, or that they set to different values",
            "The proxies serve different purposes. Use one value in all proxies to tune the option.",
        ),
        UntunedReason(
            "An option of a proxy whose block contains `import`",
            "The imported snippet may set the option.",
        ),
        UntunedReason(
            "All options of the file, if a line is a placeholder such as `{$NAME}`",
            "The variable may contain any directive.",
        ),
        UntunedReason(
            "All of Caddy, if its configuration is JSON, or if the unit's command contains `--resume`",
            "autotune edits only Caddyfiles.",
        ),
        UntunedReason(
            "All of Caddy, if `admin off` is set",
            "Caddy could neither reload the file nor report its values.",
        ),
        UntunedReason(
            "`gomaxprocs` and `gogc`, if Caddy has no unit, as in a container",
            "The definition of the container sets its environment variables.",
        ),
        UntunedReason(
            "The accept queue",
            "Caddy always uses the kernel's `net.core.somaxconn`.",
        ),
        UntunedReason(
            "Sites, certificates, health checks, compression levels and logs",
            "Settings of a site determine what is served, and how.",
        ),
    ),
)
