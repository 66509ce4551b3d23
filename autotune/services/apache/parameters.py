"""Parameters of Apache: common to all multi-processing modules, and those of mpm_event."""

from __future__ import annotations

from functools import partial

from autotune.services.base import Needs, Role, Trait, accept_queue, guided, on_reload, on_restart

CORE = "httpd.apache.org, core"
MPM = "httpd.apache.org, mpm_common"
EVENT = "httpd.apache.org, event"
PROXY = "httpd.apache.org, mod_proxy"
BALANCER = frozenset({Role.PROXY})
REUSED = (("proxy_disablereuse", (False,)),)
mpm = partial(on_reload, source=MPM)
proxied = partial(on_reload, source=PROXY, roles=BALANCER)

COMMON = guided((
    accept_queue("ListenBacklog", stock=511, source=MPM),
    on_reload("KeepAlive", "Whether a connection may carry more than one request.",
        choices=(False, True), stock=True, recommended=True, source=CORE),
    on_reload("KeepAliveTimeout", "How long an idle client connection stays open.",
        low=1, high=7, stock=5, unit="s", when=(("KeepAlive", (True,)),), source=CORE),
    on_reload("MaxKeepAliveRequests", "Requests a client may send over one connection.",
        low=1, high=100_000, log=True, stock=100, recommended=1000, when=(("KeepAlive", (True,)),),
        source=CORE),
    mpm("MaxConnectionsPerChild", "Connections after which a child process is replaced; 0 is never.",
        choices=(0, 1000, 10_000, 100_000), stock=0, recommended=0),
    on_reload("BufferedLogs",
        "Whether the access log is written in blocks instead of a line per request.",
        stock=False, recommended=True, source="httpd.apache.org, mod_log_config"),
),
    capacity="KeepAlive ListenBacklog+",
    small="MaxKeepAliveRequests+ BufferedLogs KeepAliveTimeout- MaxConnectionsPerChild",
    safe={"ListenBacklog": (256, 65_535), "MaxKeepAliveRequests": (100, 100_000)},
    decides={Trait.TLS: "KeepAlive KeepAliveTimeout MaxKeepAliveRequests"},
)  # fmt: skip

EVENT_PARAMETERS = (*COMMON, *guided((
    # Debian lets 150 workers run, which are 6 processes of 25; the limit itself is left at 16.
    on_restart("ServerLimit", "Processes there may be at one time.",
        low=1, high=500, log=True, stock=6, recommended=16, published={Role.PROXY: 240}, source=MPM),
    mpm("ThreadsPerChild", "Threads of each process: requests it works on at one time.",
        low=5, high=64, log=True, stock=25, recommended=25, published={Role.PROXY: 15}),
    mpm("MaxRequestWorkers", "Requests worked on at one time: all threads of all processes.",
        low=5, high=32_000, stock=150, derive="ServerLimit * ThreadsPerChild"),
    on_restart("ThreadLimit", "What ThreadsPerChild can be raised to without a restart.",
        low=1, high=20_000, stock=64, derive="max(64, ThreadsPerChild)", source=MPM),
    on_reload("AsyncRequestWorkerFactor",
        "Connections without a request that a process may hold for each idle thread.",
        low=1, high=16, log=True, stock=2, source=EVENT),
    mpm("StartServers", "Processes at start.",
        low=1, high=100, log=True, stock=2, recommended="2 * cpus"),
    mpm("MinSpareThreads", "Idle threads below which processes are started, a few a second.",
        low=5, high=1000, log=True, stock=25, recommended=75),
    mpm("MaxSpareThreads", "Idle threads above which processes are ended.",
        low=75, high=10_000, log=True, stock=75, recommended=250),
    on_reload("lbmethod", "By what the next web host is chosen: requests, bytes or requests in hand.",
        choices=("byrequests", "bytraffic", "bybusyness"), stock="byrequests", recommended="bybusyness",
        built_in=True, roles=BALANCER, source="httpd.apache.org, mod_proxy_balancer"),
    proxied("proxy_disablereuse", "Whether a connection to the web tier is closed after each request.",
        stock=False, recommended=False),
    proxied("proxy_max", "Connections of a process to a web host, at most one for each thread.",
        low=1, high=64, log=True, stock=64, when=REUSED),
    proxied("proxy_smax", "Connections of a process to a web host that are kept beyond proxy_ttl.",
        low=1, high=64, log=True, stock=64, when=REUSED),
    proxied("proxy_min", "Connections of a process to a web host that it always has room for.",
        low=0, high=64, stock=0, when=REUSED),
    proxied("proxy_ttl", "Idle time after which a kept connection is not used again; 0 is no limit.",
        choices=(0, 2, 4, 30), stock=0, unit="s", when=REUSED),
    proxied("proxy_keepalive", "Whether the kernel probes idle connections to the web tier.",
        stock=False, when=REUSED),
    proxied("proxy_retry", "How long a web host that refused a connection is left alone.",
        low=0, high=60, stock=60, recommended=1, unit="s"),
),
    capacity="ServerLimit+ ThreadsPerChild",
    small="AsyncRequestWorkerFactor+ StartServers+ MinSpareThreads+ MaxSpareThreads+ lbmethod"
    " proxy_disablereuse proxy_max+ proxy_smax+ proxy_ttl proxy_retry- ThreadLimit MaxRequestWorkers+",
))  # fmt: skip

EVENT_NEEDS = Needs(
    processes="ServerLimit + 1",
    rss=16 * 2**20,
    # A client's connection and the one to what is behind for each thread, and idle clients besides.
    descriptors="ThreadsPerChild * (AsyncRequestWorkerFactor + 2) + 64",
    source="resident size of a process of 25 threads of Apache 2.4 under load, doubled",
)
