"""Parameters of HAProxy, and what it takes of its host."""

from __future__ import annotations

from functools import partial

from autotune.services.base import Needs, Trait, accept_queue, guided, on_reload

MANUAL = "HAProxy 2.6 configuration manual"
CHOICE = "haproxy.com blog, Test Driving “Power of Two Random Choices” Load Balancing"
# Debian's own is what descriptors allow: 262,128 under its unit, more than most hosts have memory for.
CONNECTIONS = "min(nofile / 2 - 64, memory / 65536)"
reload = partial(on_reload, source=MANUAL)
timeout = partial(on_reload, source=MANUAL, unit="ms", log=True)

PARAMETERS = guided((
    reload("nbthread", "Threads; the stock value is one for each CPU it may use.",
        low=1, high="min(64, 4 * cpus)", stock="cpus", recommended="cpus"),
    reload("maxconn", "Clients' connections at one time; more wait in the kernel's queue.",
        low=64, high="nofile / 2 - 64", log=True, stock=CONNECTIONS,
        recommended=f"min(20000, {CONNECTIONS})"),
    on_reload("server_maxconn", "Requests a web host works on at one time, more wait; 0 is no limit.",
        low=0, high=1024, stock=0, recommended=100,
        source=f"{MANUAL}; its examples/basic-config-edge.cfg"),
    # It requests as many as maxconn and gets somaxconn, 4096. A reload keeps the socket.
    accept_queue("backlog", stock=4096, source=MANUAL),
    reload("shards", "Listening sockets, each with some of the threads.",
        low=1, high="2 * cpus", stock=1),
    on_reload("balance", "By what a web host is chosen: turns, connections, the better of two.",
        choices=("roundrobin", "static-rr", "leastconn", "random"), stock="roundrobin",
        recommended="leastconn", source=f"{MANUAL}; {CHOICE}"),
    reload("http_reuse", "Which requests may go over a connection that another client's went over.",
        choices=("never", "safe", "aggressive", "always"), stock="safe", recommended="safe"),
    reload("http_server_close", "Whether a connection to the web tier is closed after each request.",
        stock=False),
    reload("pool_max_conn", "Idle connections kept to each web host; -1 is no limit.",
        choices=(-1, 0, 16, 64, 256), stock=-1),
    reload("pool_purge_delay", "Time in which half of the idle connections are closed.",
        low=100, high=60_000, log=True, stock=5000, unit="ms"),
    reload("retries", "Times a connection to a web host is tried again.", low=0, high=10, stock=3),
    reload("tune_bufsize", "Buffer of each direction of a connection; a request's headers have to fit.",
        choices=(8192, 16384, 32768, 65536), stock=16384, recommended=16384, unit="B"),
    reload("busy_polling", "Whether threads never sleep: less latency, all CPUs always taken.",
        stock=False, on_demand=True),
    reload("dontlog_normal", "Whether only what went wrong is logged.", stock=False, on_demand=True),
    timeout("timeout_queue", "How long a request waits for a web host before it fails.",
        low=100, high=60_000, stock=5000),
    timeout("timeout_http_keep_alive", "How long an idle client connection stays open.",
        low=1, high=120_000, stock=50_000, recommended=300),
    # Short timeouts end requests of slow clients and for slow pages.
    timeout("timeout_client", "How long a client may be silent.",
        low=1000, high=300_000, stock=50_000, on_demand=True),
    timeout("timeout_server", "How long a web host may be silent.",
        low=1000, high=300_000, stock=50_000, on_demand=True),
    timeout("timeout_connect", "How long a connection to a web host may take.",
        low=100, high=30_000, stock=5000, on_demand=True),
    timeout("timeout_http_request", "How long the headers of a request may take.",
        low=500, high=60_000, stock=50_000, recommended=5000, on_demand=True),
),
    capacity="nbthread maxconn+ server_maxconn backlog+ http_reuse pool_max_conn balance",
    small="shards http_server_close pool_purge_delay+ tune_bufsize- timeout_queue"
    " timeout_http_keep_alive busy_polling dontlog_normal",
    decides={Trait.TLS: "timeout_http_keep_alive", Trait.CHURN: "pool_purge_delay"},
    safe={"nbthread": (1, "2 * cpus"), "backlog": (256, 65_535)},
)  # fmt: skip

NEEDS = Needs(
    # Two buffers a connection and what else it keeps; its threads, and a master beside the worker.
    memory="maxconn * (2 * tune_bufsize + 1 KB) + nbthread * 2 MB + 24 MB",
    source=f"{MANUAL}, maxconn: about 33 kB a connection; resident size of 2.6 at rest",
    connections="maxconn",
    # One for the client and one for the web tier, and what it listens at.
    descriptors="maxconn * 2 + 64",
)
