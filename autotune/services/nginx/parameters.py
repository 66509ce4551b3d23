"""Parameters of nginx, and what it takes of its host."""

from __future__ import annotations

from autotune.services.base import Action, Needs, Parameter, Role

CORE = "nginx.org, ngx_core_module"
HTTP = "nginx.org, ngx_http_core_module"
UPSTREAM = "nginx.org, ngx_http_upstream_module"
FASTCGI = "nginx.org, ngx_http_fastcgi_module"
PROXY = frozenset({Role.PROXY})
WEB = frozenset({Role.WEB})

PARAMETERS = (
    Parameter(
        name="worker_processes", low=1, high="4 * cpus", stock="cpus", recommended="cpus",
        action=Action.RELOAD, source=CORE,
        meaning="Worker processes; `auto`, the stock value, is one per CPU.",
    ),
    Parameter(
        name="worker_connections", low=64, high="min(16384, nofile / 2 - 64)", log=True, stock=768,
        recommended=4096, published={Role.PROXY: 1500, Role.WEB: 1800}, action=Action.RELOAD, source=CORE,
        meaning="Connections one worker may hold, those to its upstreams included.",
    ),
    Parameter(
        name="multi_accept", choices=(False, True), stock=False, recommended=True,
        action=Action.RELOAD, source=CORE,
        meaning="Whether a worker accepts all waiting connections at once or one at a time.",
    ),
    Parameter(
        name="accept_mutex", choices=(False, True), stock=False, recommended=False,
        action=Action.RELOAD, source=CORE,
        meaning="Whether workers take turns to accept, instead of all waking up.",
    ),
    Parameter(
        name="use", choices=("epoll", "poll", "select"), stock="epoll", recommended="epoll",
        built_in=True,
        published={Role.PROXY: "epoll", Role.WEB: "epoll"}, action=Action.RESTART, source=CORE,
        meaning="How workers wait for events.",
    ),
    Parameter(
        name="backlog", low=64, high=65535, log=True, stock=511, recommended=4096,
        action=Action.RESTART, source=HTTP,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    ),
    Parameter(
        name="reuseport", choices=(False, True), stock=False, recommended=True,
        action=Action.RESTART, source=HTTP,
        meaning="One listening socket per worker, so that the kernel spreads connections.",
    ),
    Parameter(
        name="keepalive_timeout", low=0, high=120, stock=75, unit="s", action=Action.RELOAD,
        source=HTTP, meaning="How long an idle client connection stays open; 0 closes at once.",
    ),
    Parameter(
        name="keepalive_requests", low=1, high=100_000, log=True, stock=1000,
        action=Action.RELOAD, source=HTTP,
        meaning="Requests a client may send over one connection.",
    ),
    Parameter(
        name="access_log_buffer", choices=(0, 16, 64, 256), stock=0, recommended=64, unit="KB",
        action=Action.RELOAD, source="nginx.org, ngx_http_log_module",
        meaning="Buffer before the access log is written; 0 writes a line per request.",
    ),
    Parameter(
        name="upstream_keepalive", low=0, high=512, stock=0, recommended=32, roles=PROXY,
        action=Action.RELOAD, source=UPSTREAM,
        meaning="Idle connections to the web tier each worker keeps; 0 opens one per request.",
    ),
    Parameter(
        name="upstream_keepalive_requests", low=10, high=100_000, log=True, stock=1000,
        roles=PROXY, action=Action.RELOAD, source=UPSTREAM,
        meaning="Requests sent over one kept upstream connection.",
    ),
    Parameter(
        name="fastcgi_keep_conn", choices=(False, True), stock=False, roles=WEB,
        action=Action.RELOAD, source=FASTCGI,
        meaning="Whether connections to PHP-FPM are kept; each one occupies a child.",
    ),
    Parameter(
        name="fastcgi_keepalive", low=1, high=64, log=True, stock=8, roles=WEB,
        when=(("fastcgi_keep_conn", (True,)),), action=Action.RELOAD, source=UPSTREAM,
        meaning="Idle connections to PHP-FPM each worker keeps.",
    ),
    Parameter(
        name="fastcgi_buffer_size", choices=(4, 8, 16), stock=4, unit="KB", roles=WEB,
        action=Action.RELOAD, source=FASTCGI,
        meaning="Buffer for the first part of PHP's answer, its headers.",
    ),
    Parameter(
        name="fastcgi_buffers", low=8, high=64, log=True, stock=8, roles=WEB,
        action=Action.RELOAD, source=FASTCGI,
        meaning="Number of 4 KB buffers for the rest of PHP's answer.",
    ),
)  # fmt: skip

NEEDS = Needs(
    processes="worker_processes + 1",
    rss=12 * 2**20,
    source="resident size of a worker of nginx 1.22 under load, shared pages included",
    # One for the client and one for the upstream.
    descriptors="worker_connections * 2",
)
