"""PHP-FPM: the pool of PHP processes behind a web server, over a unix socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.services.base import Argv, ConfigFile, Readback, Role, Service, Settings, Site
from autotune.services.php_fpm.parameters import NEEDS, PARAMETERS
from autotune.services.php_fpm.syntax import assignments
from autotune.services.readback import listen_backlog

IN_EFFECT = {
    "pm": "pm",
    "pm.max_children": "max_children",
    "pm.start_servers": "start_servers",
    "pm.min_spare_servers": "min_spare_servers",
    "pm.max_spare_servers": "max_spare_servers",
    "pm.process_idle_timeout": "process_idle_timeout",
    "pm.max_requests": "max_requests",
}


class PhpFpm(Service):
    """One pool, ``www``, listening on a unix socket in the site's directory."""

    name = "php_fpm"
    key = "php-fpm"
    title = "PHP-FPM"
    role = Role.APP
    gateway = "fastcgi"
    runs_application = True
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
        return unit(site)

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
        return (site.programs["php-fpm"], *site.place(("-p", "."), ()), "-y", _conf(site))


SERVICES = (PhpFpm(),)


def unit(site: Site) -> str:
    """The distribution's unit, which has the version in its name."""
    return f"php{_version(site)}-fpm.service"


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
