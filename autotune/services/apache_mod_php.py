"""Apache as a web server that runs PHP in itself: one process per request (mpm_prefork, mod_php)."""

from __future__ import annotations

from autotune.services.apache_server import COMMON, MPM, ApacheServer
from autotune.services.apache_status import Running, processes
from autotune.services.base import Action, Needs, Parameter, Role, Settings

PREFORK = "httpd.apache.org, prefork"

PARAMETERS = (
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

NEEDS = Needs(
    workers="MaxRequestWorkers",
    processes="MaxRequestWorkers + 1",
    rss=24 * 2**20,
    source="resident size of a process of Apache 2.4 with PHP 8.2 under load, shared pages included",
)


class ApacheModPhp(ApacheServer):
    """Role ``web``: serves the application's files and runs them."""

    template = "apache/web.conf.j2"
    packages = (
        "apache2", "libapache2-mod-php", "php-memcached", "php-redis", "curl",
    )  # fmt: skip
    parameters = PARAMETERS
    # Apache itself raises MaxSpareServers to one more than MinSpareServers.
    at_most = (
        ("StartServers", "MaxRequestWorkers"),
        ("MaxSpareServers", "MaxRequestWorkers"),
        ("MinSpareServers", "MaxSpareServers - 1"),
    )
    needs = NEEDS

    def limits(self, running: Running) -> Settings:
        return processes(running)
