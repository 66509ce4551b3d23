"""Apache in both of its roles: how it is run, kept open and asked for its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.services.apache.parameters import (
    PHP_NEEDS,
    PHP_PARAMETERS,
    PROXY_NEEDS,
    PROXY_PARAMETERS,
)
from autotune.services.apache.status import STATUS_HOST, Running, in_effect, processes, threads
from autotune.services.base import (
    Argv,
    ConfigFile,
    Endpoint,
    Readback,
    Role,
    Service,
    Settings,
    Site,
)
from autotune.services.readback import listen_backlog


class ApacheServer(Service):
    """A role is one template, its parameters, and the limits that its way of working has."""

    name = "apache"
    title = "Apache"
    port = 80
    limits_template = "limits/apache2.conf.j2"
    template: ClassVar[str]
    reload_signal = "USR1"

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        # It tells of itself over HTTP alone: curl asks it on its own host. Under systemd its
        # environment is Debian's, which apache2ctl knows.
        return {"apache2": ("apache2",), "apache2ctl": ("apache2ctl",), "curl": ("curl",)}

    def limits(self, running: Running) -> Settings:
        """What Apache made of its settings, by its way of working."""
        raise NotImplementedError

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), self.template),)

    def unit(self, site: Site) -> str:
        return "apache2.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-t")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-DFOREGROUND")

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        names = frozenset(parameter.name for parameter in self.parameters)
        backlog = ("ss", "-ltnH", f"sport = :{site.listen.port}")
        return (
            Readback(
                asking(site, "status?auto", "info?config"),
                in_effect(names - {"ListenBacklog"}, self.limits),
            ),
            Readback(backlog, listen_backlog("ListenBacklog")),
        )

    def _command(self, site: Site) -> Argv:
        program = site.programs[site.place("apache2", "apache2ctl")]
        return (program, *site.place(("-d", "."), ()), "-f", _conf(site))


class Apache(ApacheServer):
    """Balances over the tier it forwards to: processes of many threads each (mpm_event)."""

    deployment = "apache"
    role = Role.PROXY
    template = "apache/proxy.conf.j2"
    packages = ("apache2", "curl")
    parameters = PROXY_PARAMETERS
    needs = PROXY_NEEDS
    # Apache itself raises MaxSpareThreads where it leaves less than a process of room.
    at_most = (
        ("StartServers", "ServerLimit"),
        ("MinSpareThreads", "MaxSpareThreads - ThreadsPerChild"),
        ("proxy_smax", "proxy_max"),
        ("proxy_min", "proxy_smax"),
    )

    def limits(self, running: Running) -> Settings:
        return threads(running)


class ApacheModPhp(ApacheServer):
    """Serves the application's files and runs them: a process per request (mpm_prefork, mod_php)."""

    key = "apache-mod-php"
    deployment = "apache+mod_php"
    role = Role.WEB
    runs_application = True
    template = "apache/web.conf.j2"
    packages = ("apache2", "libapache2-mod-php", "php-memcached", "php-redis", "curl")
    parameters = PHP_PARAMETERS
    needs = PHP_NEEDS
    # Apache itself raises MaxSpareServers to one more than MinSpareServers.
    at_most = (
        ("StartServers", "MaxRequestWorkers"),
        ("MaxSpareServers", "MaxRequestWorkers"),
        ("MinSpareServers", "MaxSpareServers - 1"),
    )

    def limits(self, running: Running) -> Settings:
        return processes(running)


SERVICES = (Apache(), ApacheModPhp())


def _conf(site: Site) -> str:
    return site.place("apache2.conf", "/etc/apache2/apache2.conf")


def asking(site: Site, *pages: str) -> Argv:
    """The command that fetches what a server tells of itself, to be run on its host."""
    urls = (f"http://{site.listen}/server-{page}" for page in pages)
    return (site.programs["curl"], "-sS", "--max-time", "5", "-H", f"Host: {STATUS_HOST}", *urls)
