"""The facts of a host that settings depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autotune.target.model import Host


@dataclass(frozen=True)
class HostFacts:
    """The facts about a host. ``cpus`` may be fractional on a host with a CPU limit. ``memory`` is in
    bytes.

    ``nofile`` is the maximum number of descriptors per process. ``somaxconn`` is the maximum number of
    connections that can wait at a socket, or zero if unknown. ``kernel_values`` contains the current
    kernel settings, and ``unsettable`` the reason for each setting that cannot be changed. Kernel
    settings are read only if systemd units are running.
    """

    cpus: float
    memory: int
    nofile: int = 1024
    somaxconn: int = 0
    kernel_values: Mapping[str, str] = field(default_factory=dict)
    unsettable: Mapping[str, str] = field(default_factory=dict)

    def limit_to_host(self, host: Host) -> HostFacts:
        """Return the facts reduced to the limits that the target sets for the host."""
        return replace(
            self,
            cpus=min(self.cpus, host.cpus or self.cpus),
            memory=min(self.memory, host.memory or self.memory),
        )

    def to_names(self) -> Mapping[str, float]:
        """Return the facts, keyed by the names that occur in bounds such as ``2 * cpus``. CPUs are
        rounded down, but not below one.
        """
        return {"cpus": max(1, int(self.cpus)), "memory": self.memory, "nofile": self.nofile}


def find_common_facts(facts: Iterable[HostFacts]) -> HostFacts:
    """Return facts with the smallest resources among these hosts, because the hosts share one
    configuration. Kernel values come from the first host.
    """
    hosts = tuple(facts)
    return replace(
        hosts[0],
        cpus=min(host.cpus for host in hosts),
        memory=min(host.memory for host in hosts),
        nofile=min(host.nofile for host in hosts),
    )


PLACEHOLDER_FACTS = HostFacts(1, 2**30)  # for checks that do not depend on a host
