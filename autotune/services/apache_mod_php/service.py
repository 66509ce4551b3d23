"""Apache with mod_php: its parameters, and its differences from Apache with mpm_event."""

from __future__ import annotations

from autotune.services.apache.parameters import COMMON_PARAMETERS, MPM_DOCS, build_mpm_option
from autotune.services.apache.service import ApacheServer
from autotune.services.base import ResourceNeeds, Role, on_reload, on_restart, with_guidance

PREFORK_DOCS = "httpd.apache.org, prefork"

PARAMETERS = (
    *COMMON_PARAMETERS,
    *with_guidance(
        (
            # A reload that lowers the limit loses the slots above it ("long lost child came home"). After
            # later reloads, no process starts in these slots, even if the limit is raised again.
            on_restart(
                "MaxRequestWorkers",
                "Maximum number of processes, and thus of concurrent requests.",
                low=2,
                high=1024,
                log=True,
                stock=150,
                recommended=256,
                published={Role.WEB: 500},
                source=MPM_DOCS,
            ),
            on_restart(
                "ServerLimit",
                "Upper limit of MaxRequestWorkers.",
                low=1,
                high=20_000,
                stock=256,
                derive="max(256, MaxRequestWorkers)",
                source=MPM_DOCS,
            ),
            build_mpm_option(
                "StartServers",
                "Number of processes at start.",
                low=1,
                high=512,
                log=True,
                stock=5,
                recommended="8 * cpus",
            ),
            on_reload(
                "MinSpareServers",
                "Minimum number of idle processes. Below it, Apache forks one, then doubles the number"
                " every second.",
                low=1,
                high=256,
                log=True,
                stock=5,
                recommended="4 * cpus",
                source=PREFORK_DOCS,
            ),
            on_reload(
                "MaxSpareServers",
                "Maximum number of idle processes. Above it, Apache stops some.",
                low=2,
                high=1024,
                log=True,
                stock=10,
                recommended="16 * cpus",
                source=PREFORK_DOCS,
            ),
        ),
        capacity="MaxRequestWorkers+",
        small="StartServers+ MinSpareServers+ MaxSpareServers+ ServerLimit+",
    ),
)

RESOURCE_NEEDS = ResourceNeeds(
    workers="MaxRequestWorkers",
    processes="MaxRequestWorkers + 1",
    rss=24 * 2**20,
    source="resident size of a process of Apache 2.4 with PHP 8.2 under load, shared pages"
    " included",
)


class ApacheModPhp(ApacheServer):
    """Apache that serves an application's files and runs PHP in one process per request
    (mpm_prefork, mod_php).
    """

    key = "apache-mod-php"
    deployment = "apache+mod_php"
    role = Role.WEB
    runs_application = True
    interpreter = "apache2"
    template = "apache/mod_php.conf.j2"
    packages = ("apache2", "libapache2-mod-php", "php-memcached", "php-redis", "curl")
    parameters = PARAMETERS
    needs = RESOURCE_NEEDS
    # Apache itself raises MaxSpareServers to MinSpareServers + 1.
    ordering_rules = (
        ("StartServers", "MaxRequestWorkers"),
        ("MaxSpareServers", "MaxRequestWorkers"),
        ("MinSpareServers", "MaxSpareServers - 1"),
    )


SERVICES = (ApacheModPhp(),)
