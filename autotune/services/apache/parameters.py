"""Parameters of mpm_event, and parameters common to all of Apache's multi-processing modules."""

from __future__ import annotations

from functools import partial

from autotune.services.base import (
    LoadTrait,
    ResourceNeeds,
    Role,
    build_accept_queue,
    on_reload,
    on_restart,
    with_guidance,
)

CORE_DOCS = "httpd.apache.org, core"
MPM_DOCS = "httpd.apache.org, mpm_common"
EVENT_DOCS = "httpd.apache.org, event"
PROXY_DOCS = "httpd.apache.org, mod_proxy"
BALANCER_ROLES = frozenset({Role.PROXY})
IF_REUSED = (("proxy_disablereuse", (False,)),)
build_mpm_option = partial(on_reload, source=MPM_DOCS)
build_proxy_option = partial(on_reload, source=PROXY_DOCS, roles=BALANCER_ROLES)

COMMON_PARAMETERS = with_guidance((
    build_accept_queue("ListenBacklog", stock=511, source=MPM_DOCS),
    on_reload("KeepAlive", "Allow several requests per connection.",
        choices=(False, True), stock=True, recommended=True, source=CORE_DOCS),
    on_reload("KeepAliveTimeout", "Time that an idle client connection stays open.",
        low=1, high=7, stock=5, unit="s", when=(("KeepAlive", (True,)),), source=CORE_DOCS),
    on_reload("MaxKeepAliveRequests", "Maximum number of requests per client connection.",
        low=1, high=100_000, log=True, stock=100, recommended=1000, when=(("KeepAlive", (True,)),),
        source=CORE_DOCS),
    build_mpm_option("MaxConnectionsPerChild",
        "Number of connections after which a child is replaced; 0 means never.",
        choices=(0, 1000, 10_000, 100_000), stock=0, recommended=0),
    on_reload("BufferedLogs",
        "Write the access log in blocks instead of one line per request.",
        stock=False, recommended=True, source="httpd.apache.org, mod_log_config"),
),
    capacity="KeepAlive ListenBacklog+",
    small="MaxKeepAliveRequests+ BufferedLogs KeepAliveTimeout- MaxConnectionsPerChild",
    safe={"ListenBacklog": (256, 65_535), "MaxKeepAliveRequests": (100, 100_000)},
    decides={LoadTrait.TLS_REUSE: "KeepAlive KeepAliveTimeout MaxKeepAliveRequests"},
)  # fmt: skip

EVENT_PARAMETERS = (
    *COMMON_PARAMETERS,
    *with_guidance(
        (
            # Debian allows 150 workers, which are 6 processes with 25 threads each, but keeps ServerLimit
            # at 16.
            on_restart(
                "ServerLimit",
                "Maximum number of concurrent processes.",
                low=1,
                high=500,
                log=True,
                stock=6,
                recommended=16,
                published={Role.PROXY: 240},
                source=MPM_DOCS,
            ),
            build_mpm_option(
                "ThreadsPerChild",
                "Number of threads per process. Each serves one request at a time.",
                low=5,
                high=64,
                log=True,
                stock=25,
                recommended=25,
                published={Role.PROXY: 15},
            ),
            build_mpm_option(
                "MaxRequestWorkers",
                "Maximum number of concurrent requests, which is the total number of threads.",
                low=5,
                high=32_000,
                stock=150,
                derive="ServerLimit * ThreadsPerChild",
            ),
            on_restart(
                "ThreadLimit",
                "Upper limit for raising ThreadsPerChild without a restart.",
                low=1,
                high=20_000,
                stock=64,
                derive="max(64, ThreadsPerChild)",
                source=MPM_DOCS,
            ),
            on_reload(
                "AsyncRequestWorkerFactor",
                "Number of idle connections that a process may keep open per idle thread.",
                low=1,
                high=16,
                log=True,
                stock=2,
                source=EVENT_DOCS,
            ),
            build_mpm_option(
                "StartServers",
                "Number of processes at start.",
                low=1,
                high=100,
                log=True,
                stock=2,
                recommended="2 * cpus",
            ),
            build_mpm_option(
                "MinSpareThreads",
                "Minimum number of idle threads. Below it, Apache starts processes.",
                low=5,
                high=1000,
                log=True,
                stock=25,
                recommended=75,
            ),
            build_mpm_option(
                "MaxSpareThreads",
                "Maximum number of idle threads. Above it, Apache stops processes.",
                low=75,
                high=10_000,
                log=True,
                stock=75,
                recommended=250,
            ),
            on_reload(
                "lbmethod",
                "Load-balancing method: by requests, bytes or requests in flight.",
                choices=("byrequests", "bytraffic", "bybusyness"),
                stock="byrequests",
                recommended="bybusyness",
                built_in=True,
                roles=BALANCER_ROLES,
                source="httpd.apache.org, mod_proxy_balancer",
            ),
            build_proxy_option(
                "proxy_disablereuse",
                "Close connections to the web tier after each request.",
                stock=False,
                recommended=False,
            ),
            build_proxy_option(
                "proxy_max",
                "Maximum number of connections per process and web host. Each thread uses at most one.",
                low=1,
                high=64,
                log=True,
                stock=64,
                when=IF_REUSED,
            ),
            build_proxy_option(
                "proxy_smax",
                "Connections per process and web host that stay open beyond proxy_ttl.",
                low=1,
                high=64,
                log=True,
                stock=64,
                when=IF_REUSED,
            ),
            build_proxy_option(
                "proxy_min",
                "Minimum number of connection slots per process and web host.",
                low=0,
                high=64,
                stock=0,
                when=IF_REUSED,
            ),
            build_proxy_option(
                "proxy_ttl",
                "Idle time after which a kept connection is not reused; 0 means no limit.",
                choices=(0, 2, 4, 30),
                stock=0,
                unit="s",
                when=IF_REUSED,
            ),
            build_proxy_option(
                "proxy_keepalive",
                "Enable TCP keep-alive probes on idle connections to the web tier.",
                stock=False,
                when=IF_REUSED,
            ),
            build_proxy_option(
                "proxy_retry",
                "Time after which a web host that refused a connection is tried again.",
                low=0,
                high=60,
                stock=60,
                recommended=1,
                unit="s",
            ),
        ),
        capacity="ServerLimit+ ThreadsPerChild",
        small="AsyncRequestWorkerFactor+ StartServers+ MinSpareThreads+ MaxSpareThreads+ lbmethod"
        " proxy_disablereuse proxy_max+ proxy_smax+ proxy_ttl proxy_retry- ThreadLimit"
        " MaxRequestWorkers+",
        # A thread waits during the round trips of each handshake. Between peaks, Apache ends idle
        # processes, and starts new ones too slowly for the next peak.
        decides={LoadTrait.TLS: "MinSpareThreads MaxSpareThreads"},
    ),
)

EVENT_NEEDS = ResourceNeeds(
    processes="ServerLimit + 1",
    rss=16 * 2**20,
    # Each thread has one connection to a client and one to a backend, and allows
    # ``AsyncRequestWorkerFactor`` idle clients. The other 64 descriptors are for files and sockets.
    descriptors="ThreadsPerChild * (AsyncRequestWorkerFactor + 2) + 64",
    source="resident size of a process of 25 threads of Apache 2.4 under load, doubled",
)
