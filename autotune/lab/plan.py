"""Everything a lab is going to make, named and on record before any of it is made.

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

#: Set apart for benchmarks by RFC 2544: no real network is ever shadowed by a lab.
LAB_NETWORK = IPv4Network("198.18.0.0/15")
LEAST_MEMORY = 64 * 1024 * 1024  # bytes; systemd, its journal and sshd take about 30 MB
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SCHEMA = 1


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


@dataclass(frozen=True)
class Names:
    """What the things of one lab are called on this machine."""

    directory: Path
    tag: str
    link_prefix: str
    bridge: str
    cgroup: str
    private_cgroups: Path
    journal: Path
    key: Path
    known_hosts: Path
    ssh_config: Path
    machines: Path

    def link(self, number: int) -> str:
        return f"{self.link_prefix}{number}"

    def machine(self, host: str) -> Path:
        return self.machines / host


def names(state_dir: Path) -> Names:
    """The names of the lab kept in ``state_dir``."""
    directory = state_dir.resolve()
    tag = hashlib.sha256(bytes(directory)).hexdigest()[:6]
    return Names(
        directory,
        tag,
        link_prefix=f"at{tag}-",  # 15 characters is all a link name may have
        bridge=f"at{tag}-br",
        cgroup=f"autotune-lab-{tag}",
        private_cgroups=directory / "cgroup",
        journal=directory / "lab.json",
        key=directory / "key",
        known_hosts=directory / "known_hosts",
        ssh_config=directory / "ssh_config",
        machines=directory / "hosts",
    )


@dataclass(frozen=True)
class LabPlan:
    """One lab: its hosts, and the subnet they share with this machine (``gateway``)."""

    names: Names
    hosts: tuple[LabHost, ...]
    network: IPv4Network
    gateway: IPv4Address

    def host(self, name: str) -> LabHost:
        hosts = {host.name: host for host in self.hosts}
        if name not in hosts:
            raise AutotuneError(f"the lab has no host {name}", hint="it has " + ", ".join(hosts))
        return hosts[name]

    def interface(self, address: str) -> str:
        """``address`` as an interface wants it, with the length of the subnet's prefix."""
        return f"{address}/{self.network.prefixlen}"


def plan(hosts: Iterable[LabHost], state_dir: Path) -> LabPlan:
    """The lab of ``hosts`` kept in ``state_dir``; raises ``AutotuneError`` if it cannot be."""
    checked_hosts = checked(hosts)
    used = {IPv4Address(host.address) for host in checked_hosts}
    network = IPv4Network((min(used), 24), strict=False)  # the smallest that holds them all
    while max(used) not in network:
        network = network.supernet()
    for reserved in (network.network_address, network.broadcast_address):
        if reserved in used:
            raise AutotuneError(f"{reserved} is not a host's address in {network}")
    gateway = next((address for address in network.hosts() if address not in used), None)
    if gateway is None:
        raise AutotuneError(f"{network} has no address left for this machine")
    return LabPlan(names(state_dir), checked_hosts, network, gateway)


def checked(hosts: Iterable[LabHost]) -> tuple[LabHost, ...]:
    """The same hosts, in order.

    Raises ``AutotuneError`` if one of them cannot be made or two are in each other's way.
    """
    hosts = tuple(hosts)
    if not hosts:
        raise AutotuneError(
            "none of these hosts is reached over SSH, so there is none to make",
            hint="give hosts addresses in 198.18.0.0/15 and leave `transport: local` out",
        )
    for host in hosts:
        _check(host)
    for what in ("name", "address"):
        values = [getattr(host, what) for host in hosts]
        for value in values:
            if values.count(value) > 1:
                raise AutotuneError(f"two lab hosts have the {what} {value}")
    return hosts


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
