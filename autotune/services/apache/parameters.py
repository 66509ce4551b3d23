"""Parameters of Apache: common to both ways of working, and of each."""

from __future__ import annotations

from autotune.services.base import Action, Needs, Parameter, Role

CORE = "httpd.apache.org, core"
MPM = "httpd.apache.org, mpm_common"
PREFORK = "httpd.apache.org, prefork"
EVENT = "httpd.apache.org, event"
PROXY = "httpd.apache.org, mod_proxy"
REUSED = (("proxy_disablereuse", (False,)),)

COMMON = (
    Parameter(
        name="ListenBacklog", low=64, high=65535, log=True, stock=511, recommended=4096,
        action=Action.RESTART, source=MPM,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    ),
    Parameter(
        name="KeepAlive", choices=(False, True), stock=True, recommended=True,
        action=Action.RELOAD, source=CORE,
        meaning="Whether a connection may carry more than one request.",
    ),
    Parameter(
        name="KeepAliveTimeout", low=1, high=7, stock=5, unit="s", when=(("KeepAlive", (True,)),),
        action=Action.RELOAD, source=CORE,
        meaning="How long an idle client connection stays open.",
    ),
    Parameter(
        name="MaxKeepAliveRequests", low=1, high=100_000, log=True, stock=100, recommended=1000,
        when=(("KeepAlive", (True,)),), action=Action.RELOAD, source=CORE,
        meaning="Requests a client may send over one connection.",
    ),
    Parameter(
        name="MaxConnectionsPerChild", choices=(0, 1000, 10_000, 100_000), stock=0,
        recommended=0, action=Action.RELOAD, source=MPM,
        meaning="Connections after which a child process is replaced; 0 is never.",
    ),
    Parameter(
        name="BufferedLogs", choices=(False, True), stock=False, recommended=True,
        action=Action.RELOAD, source="httpd.apache.org, mod_log_config",
        meaning="Whether the access log is written in blocks instead of a line per request.",
    ),
)  # fmt: skip

PROXY_PARAMETERS = (
    *COMMON,
    Parameter(
        # Debian lets 150 workers run, which are 6 processes of 25; the limit itself is left at 16.
        name="ServerLimit", low=1, high=500, log=True, stock=6, recommended=16,
        published={Role.PROXY: 240}, action=Action.RESTART, source=MPM,
        meaning="Processes there may be at one time.",
    ),
    Parameter(
        name="ThreadsPerChild", low=5, high=64, log=True, stock=25, recommended=25,
        published={Role.PROXY: 15}, action=Action.RELOAD, source=MPM,
        meaning="Threads of each process: requests it works on at one time.",
    ),
    Parameter(
        name="MaxRequestWorkers", low=5, high=32_000, stock=150,
        derive="ServerLimit * ThreadsPerChild",
        action=Action.RELOAD, source=MPM,
        meaning="Requests worked on at one time: all threads of all processes.",
    ),
    Parameter(
        name="ThreadLimit", low=1, high=20_000, stock=64, derive="max(64, ThreadsPerChild)",
        action=Action.RESTART, source=MPM,
        meaning="What ThreadsPerChild can be raised to without a restart.",
    ),
    Parameter(
        name="AsyncRequestWorkerFactor", low=1, high=16, log=True, stock=2,
        action=Action.RELOAD, source=EVENT,
        meaning="Connections without a request that a process may hold for each idle thread.",
    ),
    Parameter(
        name="StartServers", low=1, high=100, log=True, stock=2, recommended="2 * cpus",
        action=Action.RELOAD, source=MPM,
        meaning="Processes at start.",
    ),
    Parameter(
        name="MinSpareThreads", low=5, high=1000, log=True, stock=25, recommended=75,
        action=Action.RELOAD, source=MPM,
        meaning="Idle threads below which processes are started, a few a second.",
    ),
    Parameter(
        name="MaxSpareThreads", low=75, high=10_000, log=True, stock=75, recommended=250,
        action=Action.RELOAD, source=MPM,
        meaning="Idle threads above which processes are ended.",
    ),
    Parameter(
        name="lbmethod", choices=("byrequests", "bytraffic", "bybusyness"), stock="byrequests",
        recommended="bybusyness", action=Action.RELOAD, built_in=True,
        source="httpd.apache.org, mod_proxy_balancer",
        meaning="By what the next web host is chosen: requests, bytes or requests in hand.",
    ),
    Parameter(
        name="proxy_disablereuse", choices=(False, True), stock=False, recommended=False,
        action=Action.RELOAD, source=PROXY,
        meaning="Whether a connection to the web tier is closed after each request.",
    ),
    Parameter(
        name="proxy_max", low=1, high=64, log=True, stock=64, when=REUSED,
        action=Action.RELOAD, source=PROXY,
        meaning="Connections of a process to a web host, at most one for each thread.",
    ),
    Parameter(
        name="proxy_smax", low=1, high=64, log=True, stock=64, when=REUSED,
        action=Action.RELOAD, source=PROXY,
        meaning="Connections of a process to a web host that are kept beyond proxy_ttl.",
    ),
    Parameter(
        name="proxy_min", low=0, high=64, stock=0, when=REUSED, action=Action.RELOAD, source=PROXY,
        meaning="Connections of a process to a web host that it always has room for.",
    ),
    Parameter(
        name="proxy_ttl", choices=(0, 2, 4, 30), stock=0, unit="s", when=REUSED,
        action=Action.RELOAD, source=PROXY,
        meaning="Idle time after which a kept connection is not used again; 0 is no limit.",
    ),
    Parameter(
        name="proxy_keepalive", choices=(False, True), stock=False, when=REUSED,
        action=Action.RELOAD, source=PROXY,
        meaning="Whether the kernel probes idle connections to the web tier.",
    ),
    Parameter(
        name="proxy_retry", low=0, high=60, stock=60, unit="s", recommended=1,
        action=Action.RELOAD, source=PROXY,
        meaning="How long a web host that refused a connection is left alone.",
    ),
)  # fmt: skip

PROXY_NEEDS = Needs(
    processes="ServerLimit + 1",
    rss=16 * 2**20,
    # A client's connection and the one to the web tier for each thread, and idle clients besides.
    descriptors="ThreadsPerChild * (AsyncRequestWorkerFactor + 2) + 64",
    source="resident size of a process of 25 threads of Apache 2.4 under load, doubled",
)

PHP_PARAMETERS = (
    *COMMON,
    Parameter(
        name="MaxRequestWorkers", low=2, high=1024, log=True, stock=150, recommended=256,
        published={Role.WEB: 500}, action=Action.RELOAD, source=MPM,
        meaning="Processes, and so requests worked on, at one time.",
    ),
    Parameter(
        name="ServerLimit", low=1, high=20_000, stock=256,
        derive="max(256, MaxRequestWorkers)", action=Action.RESTART, source=MPM,
        meaning="What MaxRequestWorkers can be raised to without a restart.",
    ),
    Parameter(
        name="StartServers", low=1, high=512, log=True, stock=5, recommended="8 * cpus",
        action=Action.RELOAD, source=MPM,
        meaning="Processes at start.",
    ),
    Parameter(
        name="MinSpareServers", low=1, high=256, log=True, stock=5, recommended="4 * cpus",
        action=Action.RELOAD, source=PREFORK,
        meaning="Idle processes below which more are forked, one and then twice as many a second.",
    ),
    Parameter(
        name="MaxSpareServers", low=2, high=1024, log=True, stock=10, recommended="16 * cpus",
        action=Action.RELOAD, source=PREFORK,
        meaning="Idle processes above which some are ended.",
    ),
)  # fmt: skip

PHP_NEEDS = Needs(
    workers="MaxRequestWorkers",
    processes="MaxRequestWorkers + 1",
    rss=24 * 2**20,
    source="resident size of a process of Apache 2.4 with PHP 8.2 under load, shared pages included",
)
