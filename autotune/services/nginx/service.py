"""nginx, as a load balancer or in front of PHP-FPM: parameters, operation and diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from autotune.services.base import (
    Argv,
    LoadTrait,
    Placement,
    Programs,
    Readback,
    ResourceNeeds,
    Role,
    ServerCheck,
    Service,
    Settings,
    Value,
    build_accept_queue,
    on_reload,
    on_restart,
    with_guidance,
)
from autotune.services.config_files import Directive
from autotune.services.diagnosis import (
    REPORTED,
    Diagnosis,
    InstanceReading,
    Resource,
    ResourceShortage,
)
from autotune.services.directives import (
    KILOBYTES,
    NUMBER,
    ON_OFF,
    SECONDS,
    Notation,
    build_size_notation,
    parse_seconds,
    select_notation,
)
from autotune.services.nginx import servers
from autotune.services.nginx.syntax import parse_directives
from autotune.services.readback import build_backlog_readback, build_config_parser

CORE_DOCS = "nginx.org, ngx_core_module"
HTTP_DOCS = "nginx.org, ngx_http_core_module"
UPSTREAM_DOCS = "nginx.org, ngx_http_upstream_module"
FASTCGI_DOCS = "nginx.org, ngx_http_fastcgi_module"
PROXY_ROLE = frozenset({Role.PROXY})
WEB_ROLE = frozenset({Role.WEB})
build_core_option = partial(on_reload, source=CORE_DOCS)
# Constructors of parameters that are tuned only in a site's own files.
build_adopted_option = partial(on_reload, adopted=True)
build_tls_option = partial(
    build_adopted_option, source="nginx.org, ngx_http_ssl_module, Configuring HTTPS servers"
)
build_gzip_option = partial(
    build_adopted_option, source="nginx.org, ngx_http_gzip_module; docs.nginx.com, Compression"
)
IF_GZIP = (("gzip", (True,)),)
IF_CACHED = (("open_file_cache", (1000, 10_000)),)

PARAMETERS = with_guidance((
    build_core_option("worker_processes",
        "Number of worker processes. The default `auto` means one per CPU.",
        low=1, high="4 * cpus", stock="cpus", recommended="cpus"),
    build_core_option("worker_connections",
        "Maximum number of connections per worker, including those to upstreams.",
        low=64, high="min(16384, nofile / 2 - 64)", log=True, stock=768, recommended=4096,
        published={Role.PROXY: 1500, Role.WEB: 1800}),
    build_core_option("multi_accept",
        "Accept all waiting connections at once instead of one at a time.",
        stock=False, recommended=True),
    build_core_option("accept_mutex",
        "Let workers take turns accepting connections instead of waking all.",
        stock=False, recommended=False),
    on_restart("use", "Event notification method of the workers.",
        choices=("epoll", "poll", "select"), stock="epoll", recommended="epoll",
        published={Role.PROXY: "epoll", Role.WEB: "epoll"}, built_in=True, source=CORE_DOCS),
    build_accept_queue("backlog", stock=511, source=HTTP_DOCS),
    on_restart("reuseport",
        "Use one listening socket per worker, so that the kernel distributes connections.",
        stock=False, recommended=True, source=HTTP_DOCS),
    on_reload("keepalive_timeout",
        "Time that an idle client connection stays open; 0 closes it immediately.",
        low=0, high=120, stock=75, unit="s", source=HTTP_DOCS),
    on_reload("keepalive_requests", "Maximum number of requests per client connection.",
        low=1, high=100_000, log=True, stock=1000, source=HTTP_DOCS),
    on_reload("access_log_buffer",
        "Size of the buffer for access log lines; 0 writes each line immediately.",
        choices=(0, 16, 64, 256), stock=0, recommended=64, unit="KB",
        source="nginx.org, ngx_http_log_module"),
    on_reload("upstream_keepalive",
        "Number of idle connections to the web tier per worker; 0 opens one per request.",
        low=0, high=512, stock=0, recommended=32, roles=PROXY_ROLE, source=UPSTREAM_DOCS),
    on_reload("upstream_keepalive_requests", "Maximum number of requests per upstream connection.",
        low=10, high=100_000, log=True, stock=1000, roles=PROXY_ROLE, source=UPSTREAM_DOCS),
    on_reload("fastcgi_keep_conn", "Keep connections to PHP-FPM open. Each one occupies a child.",
        stock=False, roles=WEB_ROLE, source=FASTCGI_DOCS),
    on_reload("fastcgi_keepalive", "Number of idle connections to PHP-FPM per worker.",
        low=1, high=64, log=True, stock=8, when=(("fastcgi_keep_conn", (True,)),), roles=WEB_ROLE,
        source=UPSTREAM_DOCS),
    on_reload("fastcgi_buffer_size", "Size of the buffer for the headers of PHP's response.",
        choices=(4, 8, 16), stock=4, unit="KB", roles=WEB_ROLE, source=FASTCGI_DOCS),
    on_reload("fastcgi_buffers", "Number of 4 KB buffers for the rest of PHP's response.",
        low=8, high=64, log=True, stock=8, roles=WEB_ROLE, source=FASTCGI_DOCS),
    build_tls_option("ssl_session_cache",
        "Shared memory for TLS sessions, about 4000 per MB; 0 disables it.",
        choices=(0, 1, 5, 10, 50), stock=0, recommended=10, unit="MB"),
    build_tls_option("ssl_session_timeout",
        "Time in which a client may resume a TLS session without a full handshake.",
        low=60, high=86_400, log=True, stock=300, recommended=600, unit="s"),
    # Some administrators disable tickets, because tickets weaken forward secrecy.
    build_tls_option("ssl_session_tickets",
        "Store TLS sessions on the clients, encrypted with a server key.",
        stock=True, on_demand=True),
    build_tls_option("ssl_buffer_size",
        "Size of a TLS record. Small records reduce latency, and large ones reduce overhead.",
        choices=(4, 8, 16), stock=16, recommended=4, unit="KB"),
    build_adopted_option("http2", "Offer HTTP/2 on TLS ports.",
        stock=False, on_demand=True, source="nginx.org, ngx_http_v2_module"),
    build_gzip_option("gzip", "Compress responses, which costs CPU time but saves bandwidth.",
        stock=False),
    build_gzip_option("gzip_comp_level", "Compression level. Levels above 5 cost more than they save.",
        low=1, high=9, stock=1, when=IF_GZIP),
    build_gzip_option("gzip_min_length", "Minimum size in bytes of a response that is compressed.",
        low=20, high=4096, log=True, stock=20, recommended=1000, when=IF_GZIP),
    # With `open_file_cache`, nginx serves the old content of a changed file for some time.
    build_adopted_option("open_file_cache",
        "Number of files kept open. Changes to a file take effect late.",
        choices=(0, 1000, 10_000), stock=0, on_demand=True, source=HTTP_DOCS),
    build_adopted_option("open_file_cache_valid",
        "Interval between checks whether an open file has changed.",
        low=5, high=600, log=True, stock=60, unit="s", when=IF_CACHED, source=HTTP_DOCS),
    build_adopted_option("open_file_cache_min_uses",
        "Minimum number of recent requests to keep a file open.",
        low=1, high=10, stock=1, when=IF_CACHED, source=HTTP_DOCS),
    build_adopted_option("proxy_cache_lock", "Let only one request fetch a missing cache entry.",
        stock=False, recommended=True, roles=PROXY_ROLE, source="nginx.org, ngx_http_proxy_module"),
    build_adopted_option("fastcgi_cache_lock",
        "Let only one request fetch a missing cache entry.",
        stock=False, recommended=True, roles=WEB_ROLE, source=FASTCGI_DOCS),
),
    capacity="worker_processes worker_connections+ backlog+ upstream_keepalive+",
    small="multi_accept accept_mutex- use reuseport+ keepalive_requests+ access_log_buffer+"
    " upstream_keepalive_requests+ fastcgi_keep_conn fastcgi_keepalive fastcgi_buffer_size"
    " fastcgi_buffers ssl_session_cache+ ssl_session_timeout+ ssl_session_tickets ssl_buffer_size"
    " http2 gzip gzip_comp_level- gzip_min_length+ open_file_cache+ proxy_cache_lock"
    " fastcgi_cache_lock",
    safe={"worker_processes": (1, "2 * cpus"), "worker_connections": (256, 65_536),
          "backlog": (256, 65_535), "gzip_comp_level": (1, 6),
          "ssl_session_timeout": (60, 3600), "keepalive_requests": (100, 100_000),
          "upstream_keepalive_requests": (100, 100_000), "keepalive_timeout": (5, 120)},
    decides={LoadTrait.TLS: "ssl_session_cache ssl_session_timeout",
             LoadTrait.TLS_REUSE: "keepalive_timeout keepalive_requests",
             LoadTrait.CHURN:
             "fastcgi_keep_conn fastcgi_keepalive upstream_keepalive_requests reuseport"},
)  # fmt: skip

# Directives with the same name as their parameter. TLS sessions and cache locks are tuned only if
# the site uses TLS or a cache. The site's owner decides what is cached, and for how long.
PLAIN_DIRECTIVES = ("worker_processes", "worker_connections", "fastcgi_keep_conn")
EVENT_DIRECTIVES = ("multi_accept", "accept_mutex", "use")
KEEPALIVE_DIRECTIVES = ("keepalive_timeout", "keepalive_requests")
FILE_DIRECTIVES = (
    "gzip",
    "gzip_comp_level",
    "gzip_min_length",
    "open_file_cache",
    "open_file_cache_valid",
    "open_file_cache_min_uses",
)
TLS_DIRECTIVES = (
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_session_tickets",
    "ssl_buffer_size",
)
CACHE_DIRECTIVES = {Role.PROXY: "proxy_cache", Role.WEB: "fastcgi_cache"}
LOCK_DIRECTIVES = tuple(f"{cache}_lock" for cache in CACHE_DIRECTIVES.values())
_MEGABYTES_NOTATION = build_size_notation("MB")


def _parse_session_cache(word: str) -> Value | None:
    cache_kind, _, cache_options = word.partition(":")
    if word in ("none", "off"):
        return 0
    return (
        _MEGABYTES_NOTATION.parse(cache_options.partition(":")[2])
        if cache_kind == "shared"
        else None
    )


def _parse_file_cache(word: str) -> Value | None:
    return 0 if word == "off" else NUMBER.parse(word.removeprefix("max="))


_TIME = Notation(parse_seconds, SECONDS.build_expression)
_SPECIAL_NOTATIONS = {
    # The name of the zone is unique, so no other block can declare the zone with a different size.
    "ssl_session_cache": Notation(
        _parse_session_cache, lambda v: f'("shared:autotune:" ~ {v} ~ "m" if {v} else "none")'
    ),
    # If the directive has a second word, its first word cannot be `off`. The value 0 therefore
    # caches one file.
    "open_file_cache": Notation(_parse_file_cache, lambda v: f'"max=" ~ ([{v}, 1] | max)'),
}


# The stock value and notation of each directive.
DIRECTIVE_NOTATIONS = {
    p.name: (
        p.stock,
        _SPECIAL_NOTATIONS.get(p.name) or select_notation(p, ON_OFF, s=_TIME, KB=KILOBYTES),
    )
    for p in PARAMETERS
    if p.name
    in (
        *PLAIN_DIRECTIVES,
        *EVENT_DIRECTIVES,
        *KEEPALIVE_DIRECTIVES,
        *FILE_DIRECTIVES,
        *TLS_DIRECTIVES,
        *LOCK_DIRECTIVES,
    )
}

# Blocks in which `keepalive_requests` and other directives have another meaning.
_OTHER_BLOCKS = frozenset({"upstream", "stream", "mail"})


def _parse_http_directives(output: str) -> Iterator[Directive]:
    """Yield all directives except those in blocks for upstream connections or for protocols other than
    HTTP.
    """
    for directive in parse_directives(output):
        if not any(block[:1] and block[0] in _OTHER_BLOCKS for block in directive.blocks):
            yield directive


_parse_printed_files = build_config_parser(
    _parse_http_directives,
    {name: name for name in DIRECTIVE_NOTATIONS},
    lambda name, word: DIRECTIVE_NOTATIONS[name][1].parse(word),
)


def parse_effective(output: str) -> Settings:
    """Return the values in nginx's configuration dump (``nginx -T``), except the number of workers
    for `auto`.

    Messages before the first file are dropped, because they would become part of the first
    directive. The version among them gives a default that has changed.
    """
    messages, file_mark, printed_files = output.partition("# configuration file ")
    return {
        # Before 1.19.10, the default of `keepalive_requests` was 100 (nginx.org, ngx_http_core_module).
        **(
            {"keepalive_requests": 100}
            if re.search(r"nginx version: nginx/(?:0|1\.(?:\d|1[0-8])\.|1\.19\.\d(?!\d))", messages)
            else {}
        ),
        **_parse_printed_files(f"{file_mark}{printed_files}" if file_mark else output),
    }


class Nginx(Service):
    """In role ``proxy``, nginx distributes requests over the hosts of the tier behind it. In role
    ``web``, nginx forwards requests to PHP-FPM.
    """

    name = "nginx"
    title = "nginx"
    deployment = "nginx"
    role = Role.PROXY
    port = 80
    config_paths = ("nginx.conf", "/etc/nginx/nginx.conf")
    template = "nginx/{role}.conf.j2"
    unit_name = "nginx.service"
    gateway_protocols = frozenset({"fastcgi"})
    packages = ("nginx",)
    programs: ClassVar[Programs] = {"nginx": ("nginx",)}
    parameters = PARAMETERS
    reload_signal = "HUP"
    needs = ResourceNeeds(
        processes="worker_processes + 1",
        rss=12 * 2**20,
        source="resident size of a worker of nginx 1.22 under load, shared pages included",
        # One descriptor for the client, and one for the upstream.
        descriptors="worker_connections * 2",
    )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (*self._build_command(placement), "-t", "-q")

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (*self._build_command(placement), "-g", "daemon off;")

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (*self.list_file_readbacks(placement), build_backlog_readback(placement))

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (Readback((*self._build_command(placement), "-v", "-T"), parse_effective),)

    def build_server_check(self, placement: Placement) -> ServerCheck | None:
        if not placement.installed:
            return None
        return servers.build_server_check(self._build_command(placement))

    def find_recovery_seconds(self, files: Mapping[str, bytes]) -> float:
        return servers.find_recovery_seconds(files)

    def _build_command(self, placement: Placement) -> Argv:
        # The working directory contains the files. "-e" keeps the first messages out of /var/log.
        private_options = placement.choose(("-p", ".", "-e", "nginx-error.log"), ())
        return (placement.programs["nginx"], *private_options, "-c", self.config_path(placement))


SERVICES = (Nginx(),)


def _detect_exhausted_connections(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if workers ran out of connections and reset connections from clients."""
    if not (reading.errors_dominate and reading.activity.log_complaints.get("worker_connections")):
        return None
    connection_limit = reading.get_setting("worker_connections")
    worker_count = reading.get_setting("worker_processes") or reading.activity.workers
    return ResourceShortage(
        Resource.CONNECTIONS,
        f"“worker_connections are not enough” in its log: {worker_count} workers of {connection_limit}"
        f" connections, two per request. {reading.failed_requests} requests failed:"
        " raise worker_connections",
        REPORTED,
    )


CONNECTION_CHANGES = ("worker_connections+", "worker_processes+", "backlog+", "upstream_keepalive+")
CPU_CHANGES = ("upstream_keepalive+", "fastcgi_keep_conn=True", "fastcgi_keepalive+",
    "keepalive_requests+", "ssl_session_cache=10", "ssl_session_timeout+",
    "access_log_buffer=64")  # fmt: skip
RECOMMENDED_CHANGES = {
    Resource.CPU: CPU_CHANGES,
    Resource.WORKERS: ("worker_processes+",),
    Resource.CONNECTIONS: CONNECTION_CHANGES,
    Resource.HANDSHAKES: ("keepalive_timeout+", "keepalive_requests+"),
    Resource.UPSTREAM_HANDSHAKES: ("upstream_keepalive+", "upstream_keepalive_requests+"),
}
DIAGNOSIS = Diagnosis(
    counter_query=None,
    find_log=lambda site: site.choose(
        f"{site.directory}/nginx-error.log", "/var/log/nginx/error.log"
    ),
    complaint_patterns={
        "worker_connections": re.compile(r"worker_connections are not enough"),
        "no_live_upstreams": re.compile(r"no live upstreams"),
        "upstream_timed_out": re.compile(r"upstream timed out"),
        "upstream_refused": re.compile(r"connect\(\).{0,2000} failed \(111"),
        "upstream_queue_full": re.compile(r"connect\(\).{0,2000} failed \(11:"),
    },
    recommended_changes=RECOMMENDED_CHANGES,
    threads_parameter="worker_processes",
    kept_connections=("fastcgi_keep_conn", "fastcgi_keepalive"),
    refusal_rules=(_detect_exhausted_connections,),
)
