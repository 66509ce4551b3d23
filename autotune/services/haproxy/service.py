"""HAProxy as a load balancer: a master reads the files and a worker runs the threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.services.base import Argv, Programs, Readback, Role, Service, Site
from autotune.services.haproxy.parameters import NEEDS, PARAMETERS
from autotune.services.haproxy.stats import asking, in_effect
from autotune.services.readback import backlog_in_force


class Haproxy(Service):
    """Balances over the tier it forwards to."""

    name = "haproxy"
    title = "HAProxy"
    deployment = "haproxy"
    role = Role.PROXY
    port = 80
    config = ("haproxy.cfg", "/etc/haproxy/haproxy.cfg")
    template = "haproxy/proxy.conf.j2"
    unit_name = "haproxy.service"
    packages = ("haproxy",)
    programs: ClassVar[Programs] = {"haproxy": ("haproxy",)}
    parameters = PARAMETERS
    needs = NEEDS
    # The master starts a worker that rereads the files, and stops the old one.
    reload_signal = "USR2"
    at_most = (("shards", "nbthread"), ("server_maxconn", "maxconn"))

    def leaves(self, site: Site) -> tuple[str, ...]:
        # The unit mounts the log socket there, into the worker's root.
        return site.place((), ("/var/lib/haproxy/dev/log",))

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (site.programs["haproxy"], "-c", *self._named(site))

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (site.programs["haproxy"], "-W", *self._named(site))

    def _named(self, site: Site) -> Argv:
        """Return an ``-f`` option for each file or directory of the unit."""
        return tuple(word for path in self.config_path(site).split() for word in ("-f", path))

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback(asking(site), in_effect), backlog_in_force(site))


SERVICES = (Haproxy(),)
