"""Everything a lab is going to make, named before any of it is made.

Names derive from the directory of the lab alone, so that what a killed ``up`` left behind can be
found without any record of it, and two labs on one machine never share a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab.hosts import LabHost, checked


@dataclass(frozen=True)
class Names:
    """What the things of one lab are called on this machine."""

    directory: Path
    tag: str

    @property
    def bridge(self) -> str:
        return self.link_prefix + "br"

    @property
    def link_prefix(self) -> str:
        return f"at{self.tag}-"  # 15 characters is all a link name may have

    def link(self, number: int) -> str:
        return f"{self.link_prefix}{number}"

    @property
    def cgroup(self) -> str:
        return f"autotune-lab-{self.tag}"

    @property
    def private_cgroups(self) -> Path:
        return self.directory / "cgroup"

    @property
    def journal(self) -> Path:
        return self.directory / "lab.json"

    @property
    def key(self) -> Path:
        return self.directory / "key"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    @property
    def machines(self) -> Path:
        return self.directory / "hosts"

    def machine(self, host: str) -> Path:
        return self.machines / host


@dataclass(frozen=True)
class LabPlan:
    """One lab: its hosts, and the subnet they share with this machine (``gateway``)."""

    names: Names
    hosts: tuple[LabHost, ...]
    network: IPv4Network
    gateway: IPv4Address

    def host(self, name: str) -> LabHost:
        for host in self.hosts:
            if host.name == name:
                return host
        raise AutotuneError(
            f"the lab has no host {name}",
            hint="it has " + ", ".join(host.name for host in self.hosts),
        )

    def interface(self, address: str) -> str:
        """``address`` as an interface wants it, with the length of the subnet's prefix."""
        return f"{address}/{self.network.prefixlen}"


def names(state_dir: Path) -> Names:
    """The names of the lab kept in ``state_dir``."""
    directory = state_dir.resolve()
    return Names(directory, hashlib.sha256(bytes(directory)).hexdigest()[:6])


def plan(hosts: Iterable[LabHost], state_dir: Path) -> LabPlan:
    """The lab of ``hosts`` kept in ``state_dir``; raises ``AutotuneError`` if it cannot be."""
    known = checked(hosts)
    taken = {IPv4Address(host.address) for host in known}
    network = _subnet(taken)
    for reserved in (network.network_address, network.broadcast_address):
        if reserved in taken:
            raise AutotuneError(f"{reserved} is not a host's address in {network}")
    free = (address for address in network.hosts() if address not in taken)
    gateway = next(free, None)
    if gateway is None:
        raise AutotuneError(f"{network} has no address left for this machine")
    return LabPlan(names(state_dir), known, network, gateway)


def _subnet(addresses: set[IPv4Address]) -> IPv4Network:
    """The smallest network that holds them all, /24 at least."""
    (low, high) = (min(addresses), max(addresses))
    network = IPv4Network((low, 24), strict=False)
    while high not in network:
        network = network.supernet()
    return network
