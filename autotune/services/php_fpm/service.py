"""PHP-FPM: the pool of PHP processes behind a web server, over a unix socket."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.services import base
from autotune.services.base import (
    ACCEPTED,
    Argv,
    Needs,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
    Site,
    guided,
)
from autotune.services.diagnosis import Diagnosis, Resource, WorkerPool
from autotune.services.php_fpm.syntax import read_log
from autotune.services.readback import configuration, listen_backlog
from autotune.strict import split_lines

SOURCE = "php.net, FPM configuration"
on_reload = partial(base.on_reload, source=SOURCE)
on_restart = partial(base.on_restart, source=SOURCE)
DYNAMIC = (("pm", ("dynamic",)),)

PARAMETERS = guided((
    on_reload("pm",
        "Process management: a fixed number of children, following the load, or on demand.",
        choices=("static", "dynamic", "ondemand"), stock="dynamic", recommended="static"),
    on_reload("max_children", "Maximum PHP processes, and thus of concurrent requests.",
        low=2, high=256, log=True, stock=5, recommended="8 * cpus", published={Role.APP: 75}),
    on_reload("start_servers", "Number of children at start.",
        low=1, high=128, log=True, stock=2, recommended="4 * cpus", when=DYNAMIC),
    on_reload("min_spare_servers",
        "Minimum idle children; below it, FPM forks a few per second.",
        low=1, high=64, log=True, stock=1, recommended="2 * cpus", when=DYNAMIC),
    on_reload("max_spare_servers", "Maximum idle children; above it, FPM stops some.",
        low=1, high=256, log=True, stock=3, recommended="8 * cpus", when=DYNAMIC),
    on_reload("process_idle_timeout", "Idle time after which an on-demand child exits.",
        low=1, high=120, log=True, stock=10, unit="s", when=(("pm", ("ondemand",)),)),
    on_reload("max_requests",
        "Number of requests before a child and its connections are replaced; 0 means never.",
        choices=(0, 500, 2000, 10_000), stock=0),
    on_restart("listen_backlog",
        "Maximum requests waiting for a child. The kernel limits it to somaxconn.",
        low=64, high=65535, log=True, stock=511, recommended=4096, capped_by=ACCEPTED),
),
    capacity="pm max_children+ start_servers+ min_spare_servers+ max_spare_servers+ max_requests"
    " listen_backlog+",
    small="process_idle_timeout+",
    safe={"max_children": (2, "64 * cpus"), "listen_backlog": (256, 65_535)},
)  # fmt: skip

# `php-fpm -tt` prints these per pool; the backlog is read from the kernel.
IN_EFFECT = {"pm": "pm"} | {
    f"pm.{parameter.name}": parameter.name
    for parameter in PARAMETERS
    if parameter.name not in ("pm", "listen_backlog")
}


# FPM also logs its configuration, with passwords in pool environments, so `error_log` is /dev/null
# in this run. Lines that may contain passwords are removed on the host.
_SHOWN = r"""
conf=$(mktemp) && trap 'rm -f "$conf"' EXIT || exit
{
    printf '[global]\nerror_log = /dev/null\n'
    sed 's/^[ \t]*error_log[ \t]*=/;&/' "$1"
} >"$conf"
shift
"$@" -y "$conf" -tt 2>&1 | sed '/\t\(env\|php_[a-z_]*\)\[/d'
"""


class PhpFpm(Service):
    """One pool, ``www``, that listens on a unix socket in the site's directory."""

    name = "php_fpm"
    key = "php-fpm"
    title = "PHP-FPM"
    role = Role.APP
    gateway = "fastcgi"
    interpreter = "fpm"
    runs_application = True
    packages = ("php-fpm", "php-memcached", "php-redis")
    parameters = PARAMETERS
    at_most = (
        ("max_spare_servers", "max_children"),
        ("start_servers", "max_spare_servers"),
        ("min_spare_servers", "start_servers"),
    )
    reload_signal = "USR2"
    template = "php_fpm/php-fpm.conf.j2"
    # Each distribution ships one version; the newest installed one is used.
    programs: ClassVar[Programs] = {
        "php-fpm": ("php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm")
    }
    needs = Needs(
        workers="max_children",
        processes="max_children + 1",
        rss=30 * 2**20,
        source="resident size of a child of PHP-FPM 8.2 with its extensions, shared pages included",
    )

    def config_path(self, site: Site) -> str:
        debian = f"/etc/php/{_version(site)}/fpm/php-fpm.conf"
        return (site.own and site.own.main) or site.place("php-fpm.conf", debian)

    def unit(self, site: Site) -> str:
        return (site.own and site.own.unit) or f"php{_version(site)}-fpm.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-t")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "--nodaemonize")

    def socket(self, site: Site) -> str:
        return site.socket_name

    def effective(self, site: Site) -> tuple[Readback, ...]:
        def own_backlog(text: str) -> Settings:
            lines = (line for line in split_lines(text) if site.socket_name in line)
            return listen_backlog("listen_backlog")("\n".join(lines))

        return (
            Readback(self._shown(site), configuration(read_log, IN_EFFECT)),
            Readback(("ss", "-lxH"), own_backlog),
        )

    def _command(self, site: Site) -> Argv:
        return (*self._program(site), "-y", self.config_path(site))

    def _program(self, site: Site) -> Argv:
        return (site.programs["php-fpm"], *site.place(("-p", "."), ()))

    def _shown(self, site: Site) -> Argv:
        return ("sh", "-c", _SHOWN, "sh", self.config_path(site), *self._program(site))


SERVICES = (PhpFpm(),)


def _version(site: Site) -> str:
    """Return the version in Debian's names: php-fpm8.2, php8.2-fpm.service, /etc/php/8.2."""
    return site.programs["php-fpm"].rpartition("php-fpm")[2]


CHILDREN = WorkerPool(
    processes="max_children",
    called="children",
    more="raise max_children",
    sooner="raise start_servers, or pm = static",
)
DIAGNOSIS = Diagnosis(
    counters=None,
    log=lambda site: site.place(f"{site.directory}/php-fpm.log", PhpFpm().unit(site)),
    complaints={"max_children": re.compile(r"reached (?:pm\.)?max_children")},
    moves={
        Resource.CPU: ("pm=static",),
        Resource.WORKERS: ("max_children+", "pm=static", "start_servers+", "min_spare_servers+"),
        Resource.CONNECTIONS: ("listen_backlog+",),
        Resource.MEMORY: ("max_children-",),
    },
    worker_rules=(CHILDREN.taken,),
)
