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
    on_reload("KeepAlive", "Keep client connections open for several requests.",
        choices=(False, True), stock=True, recommended=True, source=CORE),
    on_reload("KeepAliveTimeout", "Time for which an idle client connection stays open.",
        low=1, high=7, stock=5, unit="s", when=(("KeepAlive", (True,)),), source=CORE),
    on_reload("MaxKeepAliveRequests", "Requests a client may send over one connection.",
        low=1, high=100_000, log=True, stock=100, recommended=1000, when=(("KeepAlive", (True,)),),
        source=CORE),
    mpm("MaxConnectionsPerChild", "Connections after which a child process is replaced; 0 means never.",
        choices=(0, 1000, 10_000, 100_000), stock=0, recommended=0),
    on_reload("BufferedLogs",
        "Write the access log in blocks instead of one line per request.",
        stock=False, recommended=True, source="httpd.apache.org, mod_log_config"),
),
    capacity="KeepAlive ListenBacklog+",
    small="MaxKeepAliveRequests+ BufferedLogs KeepAliveTimeout- MaxConnectionsPerChild",
    safe={"ListenBacklog": (256, 65_535), "MaxKeepAliveRequests": (100, 100_000)},
    decides={Trait.TLS: "KeepAlive KeepAliveTimeout MaxKeepAliveRequests"},
)  # fmt: skip

EVENT_PARAMETERS = (*COMMON, *guided((
    # Debian lets 150 workers run, which are 6 processes of 25; the limit itself is left at 16.
    on_restart("ServerLimit", "Maximum number of processes.",
        low=1, high=500, log=True, stock=6, recommended=16, published={Role.PROXY: 240}, source=MPM),
    mpm("ThreadsPerChild", "Threads per process. Each serves one request.",
        low=5, high=64, log=True, stock=25, recommended=25, published={Role.PROXY: 15}),
    mpm("MaxRequestWorkers", "Maximum number of concurrent requests: threads of all processes.",
        low=5, high=32_000, stock=150, derive="ServerLimit * ThreadsPerChild"),
    on_restart("ThreadLimit", "Upper limit of ThreadsPerChild until the next restart.",
        low=1, high=20_000, stock=64, derive="max(64, ThreadsPerChild)", source=MPM),
    on_reload("AsyncRequestWorkerFactor",
        "Idle connections that a process may hold per idle thread.",
        low=1, high=16, log=True, stock=2, source=EVENT),
    mpm("StartServers", "Processes at start.",
        low=1, high=100, log=True, stock=2, recommended="2 * cpus"),
    mpm("MinSpareThreads", "Idle threads below which Apache starts processes, a few per second.",
        low=5, high=1000, log=True, stock=25, recommended=75),
    mpm("MaxSpareThreads", "Idle threads above which Apache stops processes.",
        low=75, high=10_000, log=True, stock=75, recommended=250),
    on_reload("lbmethod", "Balancing method: by requests, by bytes, or by requests in flight.",
        choices=("byrequests", "bytraffic", "bybusyness"), stock="byrequests", recommended="bybusyness",
        built_in=True, roles=BALANCER, source="httpd.apache.org, mod_proxy_balancer"),
    proxied("proxy_disablereuse", "Close the connection to the web tier after each request.",
        stock=False, recommended=False),
    proxied("proxy_max", "Maximum connections of a process to each web host, at most one per thread.",
        low=1, high=64, log=True, stock=64, when=REUSED),
    proxied("proxy_smax", "Connections of a process to each web host that stay open beyond proxy_ttl.",
        low=1, high=64, log=True, stock=64, when=REUSED),
    proxied("proxy_min", "Minimum size of a process's connection pool to each web host.",
        low=0, high=64, stock=0, when=REUSED),
    proxied("proxy_ttl", "Idle time after which a kept connection is closed; 0 means no limit.",
        choices=(0, 2, 4, 30), stock=0, unit="s", when=REUSED),
    proxied("proxy_keepalive", "Let the kernel probe idle connections to the web tier.",
        stock=False, when=REUSED),
    proxied("proxy_retry", "Time for which a web host gets no requests after it refused a connection.",
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
