"""Everything a lab is going to make, named before any of it is made.

Names derive from the directory of the lab alone, so that what a killed ``up`` left behind can be
found without any record of it, and two labs on one machine never share a name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from autotune import durable
from autotune.errors import AutotuneError


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


#: Set apart for benchmarks by RFC 2544: no real network is ever shadowed by a lab.
LAB_NETWORK = IPv4Network("198.18.0.0/15")
LEAST_MEMORY = 64 * 1024 * 1024  # bytes; systemd, its journal and sshd take about 30 MB
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class LabHost:
    """One machine of a lab.

    ``cpus``: how many CPUs' worth of time it may use (0.5: half of one), ``None``: all.
    ``memory``: bytes it may use, page cache included, ``None``: all.
    """

    name: str
    address: str
    cpus: float | None = None
    memory: int | None = None


def checked(hosts: Iterable[LabHost]) -> tuple[LabHost, ...]:
    """The same hosts, in order.

    Raises ``AutotuneError`` if one of them cannot be made or two are in each other's way.
    """
    known = tuple(hosts)
    if not known:
        raise AutotuneError(
            "none of these hosts is reached over SSH, so there is none to make",
            hint="give hosts addresses in 198.18.0.0/15 and leave `transport: local` out",
        )
    for host in known:
        _check(host)
    for what, values in (
        ("name", [host.name for host in known]),
        ("address", [host.address for host in known]),
    ):
        for value in values:
            if values.count(value) > 1:
                raise AutotuneError(f"two lab hosts have the {what} {value}")
    return known


def _check(host: LabHost) -> None:
    if not _NAME.fullmatch(host.name):
        raise AutotuneError(
            f"{host.name!r} cannot be the name of a lab host",
            hint="use lower-case letters, digits and hyphens, 63 at most",
        )
    try:
        address = IPv4Address(host.address)
    except AddressValueError:
        raise AutotuneError(f"{host.name}: {host.address!r} is not an IPv4 address") from None
    if address not in LAB_NETWORK:
        raise AutotuneError(
            f"{host.name}: {address} is outside {LAB_NETWORK}",
            hint="lab hosts live in the range set apart for benchmarks, such as 198.18.0.10",
        )
    if host.cpus is not None and host.cpus < 0.01:
        raise AutotuneError(f"{host.name}: {host.cpus} CPUs are too few to boot (0.01 at least)")
    if host.memory is not None and host.memory < LEAST_MEMORY:
        raise AutotuneError(
            f"{host.name}: {host.memory} bytes of memory are too few to boot ({LEAST_MEMORY})"
        )


_SCHEMA = 1


def write_plan(plan: LabPlan) -> None:
    """Record ``plan``, durably: whoever reads it after a crash sees all of it or nothing."""
    durable.write(plan.names.journal, json.dumps(encoded(plan), indent=1).encode())


def read_plan(names: Names) -> LabPlan | None:
    """The recorded plan, or ``None`` if there is no lab here."""
    try:
        text = names.journal.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return decoded(json.loads(text), names)
    except (ValueError, KeyError, TypeError) as error:
        raise AutotuneError(
            f"{names.journal} cannot be read: {error}",
            hint="`autotune lab down` removes the lab without it",
        ) from None


def encoded(plan: LabPlan) -> dict[str, Any]:
    """``plan`` as plain values. Names are left out: they derive from the directory."""
    return {
        "schema": _SCHEMA,
        "network": str(plan.network),
        "gateway": str(plan.gateway),
        "hosts": [asdict(host) for host in plan.hosts],
    }


def decoded(record: dict[str, Any], names: Names) -> LabPlan:
    """The plan that ``encoded`` was given; raises ``ValueError``, ``KeyError``, ``TypeError``."""
    if record["schema"] != _SCHEMA:
        raise ValueError(f"schema {record['schema']} is not {_SCHEMA}")
    return LabPlan(
        names,
        tuple(LabHost(**host) for host in record["hosts"]),
        IPv4Network(record["network"]),
        IPv4Address(record["gateway"]),
    )
