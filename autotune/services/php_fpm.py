"""PHP-FPM: the pool of PHP processes behind a web server, over a unix socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.services.base import (
    Action,
    Argv,
    ConfigFile,
    Needs,
    Parameter,
    Readback,
    Role,
    Service,
    Settings,
    Site,
)
from autotune.services.readback import assignments, listen_backlog

SOURCE = "php.net, FPM configuration"
DYNAMIC = (("pm", ("dynamic",)),)

PARAMETERS = (
    Parameter(
        name="pm", choices=("static", "dynamic", "ondemand"), stock="dynamic",
        recommended="static", action=Action.RELOAD, source=SOURCE,
        meaning="Whether the number of children is fixed, follows the load, or starts from none.",
    ),
    Parameter(
        name="max_children", low=2, high=256, log=True, stock=5, recommended="8 * cpus",
        published={Role.APP: 75}, action=Action.RELOAD, source=SOURCE,
        meaning="PHP processes, and so requests worked on, at one time.",
    ),
    Parameter(
        name="start_servers", low=1, high=128, log=True, stock=2, recommended="4 * cpus",
        when=DYNAMIC, action=Action.RELOAD, source=SOURCE,
        meaning="Children at start.",
    ),
    Parameter(
        name="min_spare_servers", low=1, high=64, log=True, stock=1, recommended="2 * cpus",
        when=DYNAMIC, action=Action.RELOAD, source=SOURCE,
        meaning="Idle children below which more are forked, a few a second.",
    ),
    Parameter(
        name="max_spare_servers", low=1, high=256, log=True, stock=3, recommended="8 * cpus",
        when=DYNAMIC, action=Action.RELOAD, source=SOURCE,
        meaning="Idle children above which some are ended.",
    ),
    Parameter(
        name="process_idle_timeout", low=1, high=120, log=True, stock=10, unit="s",
        when=(("pm", ("ondemand",)),), action=Action.RELOAD, source=SOURCE,
        meaning="Idle time after which an on-demand child ends.",
    ),
    Parameter(
        name="max_requests", choices=(0, 500, 2000, 10_000), stock=0, action=Action.RELOAD,
        source=SOURCE,
        meaning="Requests after which a child is replaced, its connections with it; 0 is never.",
    ),
    Parameter(
        name="listen_backlog", low=64, high=65535, log=True, stock=511, recommended=4096,
        action=Action.RESTART, source=SOURCE,
        meaning="Requests that may wait for a child; the kernel caps it at somaxconn.",
    ),
)  # fmt: skip

IN_EFFECT = {
    "pm": "pm",
    "pm.max_children": "max_children",
    "pm.start_servers": "start_servers",
    "pm.min_spare_servers": "min_spare_servers",
    "pm.max_spare_servers": "max_spare_servers",
    "pm.process_idle_timeout": "process_idle_timeout",
    "pm.max_requests": "max_requests",
}

NEEDS = Needs(
    workers="max_children",
    processes="max_children + 1",
    rss=30 * 2**20,
    source="resident size of a child of PHP-FPM 8.2 with its extensions, shared pages included",
)


class PhpFpm(Service):
    """One pool, ``www``, listening on a unix socket in the site's directory."""

    name = "php_fpm"
    packages = ("php-fpm", "php-memcached", "php-redis")
    parameters = PARAMETERS
    at_most = (
        ("max_spare_servers", "max_children"),
        ("start_servers", "max_spare_servers"),
        ("min_spare_servers", "start_servers"),
    )
    reload_signal = "USR2"
    needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        # Distributions carry one version each; the newest found wins.
        return {"php-fpm": ("php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm")}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), "php_fpm/php-fpm.conf.j2"),)

    def unit(self, site: Site) -> str:
        return f"php{_version(site)}-fpm.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-t")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "--nodaemonize")

    def socket(self, site: Site) -> str:
        return site.socket_name

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (
            Readback((*self._command(site), "-tt"), assignments(IN_EFFECT)),
            Readback(("ss", "-lxH"), _backlog_of(site.socket_name)),
        )

    def _command(self, site: Site) -> Argv:
        prefix = ("-p", ".") if site.runtime == "embedded" else ()
        return (site.programs["php-fpm"], *prefix, "-y", _conf(site))


def _version(site: Site) -> str:
    """Debian has it in every name: /usr/sbin/php-fpm8.2, php8.2-fpm.service, /etc/php/8.2."""
    return site.programs["php-fpm"].rpartition("php-fpm")[2]


def _conf(site: Site) -> str:
    return site.place("php-fpm.conf", f"/etc/php/{_version(site)}/fpm/php-fpm.conf")


def _backlog_of(socket: str) -> Callable[[str], Settings]:
    parse = listen_backlog("listen_backlog")

    def of_own(text: str) -> Settings:
        return parse("\n".join(line for line in text.splitlines() if socket in line))

    return of_own
