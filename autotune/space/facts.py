"""What a host offers, as far as settings depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autotune.target.model import Host


@dataclass(frozen=True)
class HostFacts:
    """``cpus`` may be a fraction (a limited machine); ``memory`` is in bytes.

    ``nofile`` is the most descriptors a process may ask for, ``somaxconn`` the most connections that
    may wait at a socket, zero if it is not known. ``kernel_values`` are the kernel's settings
    as they are, ``unsettable`` says why others cannot be set; both are read only where units run.
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
    """What every one of these hosts has, for they share their settings; the kernel is the first's."""
    hosts = tuple(facts)
    return replace(
        hosts[0],
        cpus=min(host.cpus for host in hosts),
        memory=min(host.memory for host in hosts),
        nofile=min(host.nofile for host in hosts),
    )
