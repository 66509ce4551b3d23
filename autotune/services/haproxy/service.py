"""HAProxy as a load balancer: a master process reads the configuration, and the threads of a worker
process forward requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.services.base import (
    Argv,
    Placement,
    Programs,
    Readback,
    Role,
    ServerCheck,
    Service,
)
from autotune.services.haproxy import servers
from autotune.services.haproxy.parameters import PARAMETERS, RESOURCE_NEEDS
from autotune.services.haproxy.stats import build_stats_command, parse_effective
from autotune.services.readback import build_backlog_readback
from autotune.services.unit_environment import build_environment_prefix


class Haproxy(Service):
    """HAProxy as a load balancer, which distributes requests over the hosts of the tier behind it."""

    name = "haproxy"
    title = "HAProxy"
    deployment = "haproxy"
    role = Role.PROXY
    port = 80
    config_paths = ("haproxy.cfg", "/etc/haproxy/haproxy.cfg")
    template = "haproxy/proxy.conf.j2"
    unit_name = "haproxy.service"
    packages = ("haproxy",)
    programs: ClassVar[Programs] = {"haproxy": ("haproxy",)}
    parameters = PARAMETERS
    needs = RESOURCE_NEEDS
    # The master starts a new worker, which rereads the files, and stops the old worker.
    reload_signal = "USR2"
    ordering_rules = (("shards", "nbthread"), ("server_maxconn", "maxconn"))

    def list_created_files(self, placement: Placement) -> tuple[str, ...]:
        # The unit mounts the log socket at this path, inside the worker's root directory.
        return placement.choose((), ("/var/lib/haproxy/dev/log",))

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (
            *build_environment_prefix(placement, self.get_unit(placement)),
            placement.programs["haproxy"],
            "-c",
            *self._list_config_options(placement),
        )

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (placement.programs["haproxy"], "-W", *self._list_config_options(placement))

    def _list_config_options(self, placement: Placement) -> Argv:
        """Return an ``-f`` option for each file or directory in the unit's command."""
        return tuple(word for path in self.config_path(placement).split() for word in ("-f", path))

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (
            Readback(build_stats_command(placement), parse_effective),
            build_backlog_readback(placement),
        )

    def build_server_check(self, placement: Placement) -> ServerCheck:
        return servers.build_server_check(placement)

    def find_recovery_seconds(self, files: Mapping[str, bytes]) -> float:
        return servers.find_recovery_seconds(files)


SERVICES = (Haproxy(),)
