"""Servers that a load balancer does not use because it regards them as failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.host_state import ServiceManager
from autotune.deploy.stack import ServiceInstance
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all


@dataclass(frozen=True)
class DownServer:
    """A server that a load balancer regards as failed. ``server`` is its name in the balancer."""

    host: str
    balancer: str
    server: str

    def __str__(self) -> str:
        return f"{self.server} ({self.balancer} on {self.host})"


def describe_down_servers(servers: Iterable[DownServer]) -> str:
    """Return the names of the servers as text, without duplicates."""
    return ", ".join(dict.fromkeys(map(str, servers)))


@dataclass
class ServerWatch:
    """A monitor of all servers behind the load balancers of a stack.

    ``ignored`` contains servers that were down before the study. ``unreadable`` contains the names
    of balancers whose server states cannot be read. ``note`` receives progress messages.
    """

    manager: ServiceManager | None
    note: Callable[[str], None]
    ignored: set[DownServer] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)

    def ignore_down_servers(
        self, instances: Sequence[ServiceInstance], transports: Mapping[str, Transport]
    ) -> None:
        """Ignore the servers that are down now. A balancer that is not running reports no servers."""
        down_servers, _ = self._read_down_servers(instances, transports)
        self.ignored |= {*down_servers}
        if down_servers:
            self.note(
                f"ignored, because they were down before the study: {describe_down_servers(down_servers)}"
            )

    def find_down_servers(
        self, instances: Sequence[ServiceInstance], transports: Mapping[str, Transport]
    ) -> tuple[DownServer, ...]:
        """Return the servers that any balancer among ``instances`` regards as failed.

        Raises HostUnreachable.
        """
        down_servers, unreadable_reasons = self._read_down_servers(instances, transports)
        for instance_name, reason in unreadable_reasons.items():
            self.unreadable.add(instance_name)
            self.note(
                f"only responses from {instance_name} are checked, because its server states cannot be "
                f"read ({reason})"
            )
        return tuple(server for server in down_servers if server not in self.ignored)

    def _read_down_servers(
        self, instances: Sequence[ServiceInstance], transports: Mapping[str, Transport]
    ) -> tuple[list[DownServer], dict[str, str]]:
        """Return the failed servers, and the reasons why states cannot be read. The reasons are keyed
        by the name of the load balancer.
        """
        checked_instances = [
            instance
            for instance in instances
            if instance.name not in self.unreadable
            and instance.service.build_server_check(instance.placement)
        ]
        down_servers: list[DownServer] = []
        reasons: dict[str, str] = {}

        def read(transport: Transport) -> None:
            for instance in checked_instances:
                if transports[instance.placement.host] is transport:
                    try:
                        down_servers.extend(self._read_instance(instance, transport))
                    except ValueError as error:
                        reasons[instance.name] = str(error)

        hosts = dict.fromkeys(instance.placement.host for instance in checked_instances)
        run_on_all([transports[name] for name in hosts], read).unwrap()
        return down_servers, reasons

    def _read_instance(self, instance: ServiceInstance, transport: Transport) -> list[DownServer]:
        """Return the failed servers of one balancer. Raises ValueError."""
        check = instance.service.build_server_check(instance.placement)
        if check is None:
            return []
        wrap_command = self.manager.wrap_command if self.manager else None
        argv = wrap_command(instance.placement, check.argv) if wrap_command else check.argv
        if self.manager is None:  # private servers can be queried without root
            command_result = transport.run(argv, timeout=10.0)
        else:
            shell_functions = self.manager.shell_functions
            (command_result,) = run_commands(transport, [Command(argv)], functions=shell_functions)
        host, title = instance.placement.host, instance.service.title
        return [DownServer(host, title, name) for name in check.parse(command_result.stdout)]


class ServersDown(DeployFailed):
    """Servers of a load balancer are still down, or responses are still wrong, after the longest
    wait.
    """
