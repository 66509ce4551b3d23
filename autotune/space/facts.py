"""The facts of a host that settings depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autotune.target.model import Host


@dataclass(frozen=True)
class HostFacts:
    """The facts of a host: ``cpus`` may be a fraction (a limited machine), and ``memory`` is in
    bytes.

    ``nofile`` is the maximum number of descriptors of a process. ``somaxconn`` is the maximum
    number of connections that wait at a socket, zero if unknown. ``kernel_values`` are the current
    kernel settings, and ``unsettable`` gives the reason for each that cannot be set. Both are read
    only if units run.
    """

    cpus: float
    memory: int
    nofile: int = 1024
    somaxconn: int = 0
    kernel_values: Mapping[str, str] = field(default_factory=dict)
    unsettable: Mapping[str, str] = field(default_factory=dict)

    def limited_to(self, host: Host) -> HostFacts:
        """Limited to what the target allows of the host."""
        return replace(
            self,
            cpus=min(self.cpus, host.cpus or self.cpus),
            memory=min(self.memory, host.memory or self.memory),
        )

    def to_names(self) -> Mapping[str, float]:
        """For bounds such as ``2 * cpus``: whole CPUs, at least one."""
        return {"cpus": max(1, int(self.cpus)), "memory": self.memory, "nofile": self.nofile}


def find_common_facts(facts: Iterable[HostFacts]) -> HostFacts:
    """Return the facts common to all these hosts, as they share settings; kernel values are the
    first's.
    """
    hosts = tuple(facts)
    return replace(
        hosts[0],
        cpus=min(host.cpus for host in hosts),
        memory=min(host.memory for host in hosts),
        nofile=min(host.nofile for host in hosts),
    )
