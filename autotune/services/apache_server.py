"""What Apache does alike in both of its roles: how it is run, kept open and asked for its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.services.apache_status import Running, in_effect
from autotune.services.base import (
    Action,
    Argv,
    ConfigFile,
    Endpoint,
    Parameter,
    Readback,
    Service,
    Settings,
    Site,
)
from autotune.services.readback import listen_backlog

CORE = "httpd.apache.org, core"
MPM = "httpd.apache.org, mpm_common"
# The name under which a server tells of itself (templates/apache/status.conf.j2).
STATUS_HOST = "status.autotune.internal"

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


class ApacheServer(Service):
    """A role is one template, its parameters, and the limits that its way of working has."""

    name = "apache"
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
        known = frozenset(parameter.name for parameter in self.parameters)
        backlog = ("ss", "-ltnH", f"sport = :{site.listen.port}")
        return (
            Readback(
                asking(site, "status?auto", "info?config"),
                in_effect(known - {"ListenBacklog"}, self.limits),
            ),
            Readback(backlog, listen_backlog("ListenBacklog")),
        )

    def _command(self, site: Site) -> Argv:
        if site.runtime == "systemd":
            return (site.programs["apache2ctl"], "-f", _conf(site))
        return (site.programs["apache2"], "-d", ".", "-f", _conf(site))


def _conf(site: Site) -> str:
    return site.place("apache2.conf", "/etc/apache2/apache2.conf")


def asking(site: Site, *pages: str) -> Argv:
    """The command that fetches what a server tells of itself, to be run on its host."""
    urls = (f"http://{site.listen}/server-{page}" for page in pages)
    return (site.programs["curl"], "-sS", "--max-time", "5", "-H", f"Host: {STATUS_HOST}", *urls)
