"""nginx, as a load balancer or in front of PHP-FPM."""

from __future__ import annotations

from collections.abc import Mapping

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
from autotune.services.nginx.parameters import NEEDS, PARAMETERS
from autotune.services.nginx.syntax import directives
from autotune.services.readback import backlog_in_force

IN_EFFECT = {name: name for name in (
    "worker_processes", "worker_connections", "multi_accept", "accept_mutex", "use",
    "keepalive_timeout", "keepalive_requests", "fastcgi_keep_conn",
)}  # fmt: skip


class Nginx(Service):
    """Role ``proxy`` balances over the tier it forwards to; role ``web`` hands on to PHP-FPM."""

    name = "nginx"
    title = "nginx"
    deployment = "nginx"
    role = Role.PROXY
    port = 80
    gateways = frozenset({"fastcgi"})
    packages = ("nginx",)
    parameters = PARAMETERS
    reload_signal = "HUP"
    needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"nginx": ("nginx",)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), f"nginx/{site.role}.conf.j2"),)

    def unit(self, site: Site) -> str:
        return "nginx.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-t", "-q")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-g", "daemon off;")

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (
            Readback((*self._command(site), "-T"), in_effect),
            backlog_in_force(site),
        )

    def _command(self, site: Site) -> Argv:
        # The working directory is the site; "-e" keeps the very first messages out of /var/log.
        private = site.place(("-p", ".", "-e", "nginx-error.log"), ())
        return (site.programs["nginx"], *private, "-c", _conf(site))


SERVICES = (Nginx(),)


def in_effect(text: str) -> Settings:
    """What ``nginx -T`` prints; a number of workers that it finds itself is not among it."""
    values = directives(IN_EFFECT)(text)
    return {name: value for name, value in values.items() if value != "auto"}


def _conf(site: Site) -> str:
    return site.place("nginx.conf", "/etc/nginx/nginx.conf")
