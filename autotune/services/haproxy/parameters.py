"""Parameters of HAProxy, and its resource needs."""

from __future__ import annotations

from functools import partial

from autotune.services.base import (
    LoadTrait,
    ResourceNeeds,
    build_accept_queue,
    on_reload,
    with_guidance,
)

MANUAL = "HAProxy 2.6 configuration manual"
BALANCING_DOCS = "haproxy.com blog, Test Driving “Power of Two Random Choices” Load Balancing"
# Debian's default depends on the limit of file descriptors. In Debian's unit, the default is 262,128
# connections, too many for the memory of most hosts.
MAX_CONNECTIONS = "min(nofile / 2 - 64, memory / 65536)"
build_reload_option = partial(on_reload, source=MANUAL)
build_timeout_option = partial(on_reload, source=MANUAL, unit="ms", log=True)

PARAMETERS = with_guidance((
    build_reload_option("nbthread", "Number of threads. The default is one per available CPU.",
        low=1, high="min(64, 4 * cpus)", stock="cpus", recommended="cpus"),
    build_reload_option("maxconn",
        "Maximum number of concurrent client connections. Others wait in the kernel's queue.",
        low=64, high="nofile / 2 - 64", log=True, stock=MAX_CONNECTIONS,
        recommended=f"min(20000, {MAX_CONNECTIONS})"),
    on_reload("server_maxconn",
        "Maximum number of concurrent requests per web host; 0 means no limit.",
        low=0, high=1024, stock=0, recommended=100, special_values={0: "maxconn"},
        source=f"{MANUAL}; its examples/basic-config-edge.cfg"),
    # By default, HAProxy requests maxconn as its backlog, and the kernel grants somaxconn (4096). A
    # change needs a restart, because a reload keeps the socket.
    build_accept_queue("backlog", stock=4096, source=MANUAL),
    build_reload_option("shards", "Number of listening sockets. Each is served by some of the threads.",
        low=1, high="2 * cpus", stock=1),
    on_reload("balance",
        "Load-balancing method: round robin, least connections, or the less busy of two random hosts.",
        choices=("roundrobin", "static-rr", "leastconn", "random"), stock="roundrobin",
        recommended="leastconn", source=f"{MANUAL}; {BALANCING_DOCS}"),
    # With `aggressive` and `always`, a client's first request may fail on a connection that the
    # server just closed. The load cannot show this (manual, http-reuse).
    build_reload_option("http_reuse",
        "When to reuse a server connection for requests from other clients.",
        choices=("never", "safe"), stock="safe", recommended="safe"),
    build_reload_option("http_server_close", "Close connections to the web tier after each request.",
        stock=False),
    build_reload_option("pool_max_conn",
        "Maximum number of idle connections per web host; -1 means no limit.",
        choices=(-1, 0, 16, 64, 256), stock=-1),
    build_reload_option("pool_purge_delay",
        "Interval after which half of the idle connections are closed.",
        low=100, high=60_000, log=True, stock=5000, unit="ms"),
    build_reload_option("retries",
        "Number of retries for a connection to a web host.", low=0, high=10, stock=3),
    build_reload_option("tune_bufsize",
        "Size of the buffer per direction of a connection. Request headers must fit.",
        choices=(8192, 16384, 32768, 65536), stock=16384, recommended=16384, unit="B"),
    build_reload_option("busy_polling",
        "Never let threads sleep. Latency is lower, but all CPUs are always busy.",
        stock=False, on_demand=True),
    build_reload_option("dontlog_normal", "Log only failed requests.", stock=False, on_demand=True),
    build_timeout_option("timeout_queue", "Maximum time that a request waits for a web host.",
        low=100, high=60_000, stock=5000),
    build_timeout_option("timeout_http_keep_alive", "Time that an idle client connection stays open.",
        low=1, high=120_000, stock=50_000, recommended=300),
    # Short timeouts abort requests from slow clients and requests for slow pages.
    build_timeout_option("timeout_client", "Maximum time that a client is inactive.",
        low=1000, high=300_000, stock=50_000, on_demand=True),
    build_timeout_option("timeout_server", "Maximum time that a web host is inactive.",
        low=1000, high=300_000, stock=50_000, on_demand=True),
    build_timeout_option("timeout_connect", "Maximum time to connect to a web host.",
        low=100, high=30_000, stock=5000, on_demand=True),
    build_timeout_option("timeout_http_request", "Maximum time to receive the headers of a request.",
        low=500, high=60_000, stock=50_000, recommended=5000, on_demand=True),
),
    capacity="nbthread maxconn+ server_maxconn backlog+ http_reuse pool_max_conn balance",
    small="shards http_server_close pool_purge_delay+ tune_bufsize- timeout_queue"
    " timeout_http_keep_alive busy_polling dontlog_normal",
    decides={
        LoadTrait.TLS_REUSE: "timeout_http_keep_alive",
        LoadTrait.CHURN: "pool_purge_delay",
    },
    safe={"nbthread": (1, "2 * cpus"), "backlog": (256, 65_535)},
)  # fmt: skip

RESOURCE_NEEDS = ResourceNeeds(
    # Each connection needs two buffers and memory for its state. The threads and the master process
    # need further memory.
    memory="maxconn * (2 * tune_bufsize + 1 KB) + nbthread * 2 MB + 24 MB",
    source=f"{MANUAL}, maxconn: about 33 kB a connection; resident size of 2.6 at rest",
    connections="maxconn",
    # Each connection needs one descriptor for the client and one for the web host. The other 64
    # descriptors are for listening sockets and files.
    descriptors="maxconn * 2 + 64",
)
