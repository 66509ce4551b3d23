"""Names and plan of a lab. The plan is recorded before any other object of the lab is created.

Names derive only from the lab's directory. Objects left by a killed `autotune lab up` can therefore be
found without a record, and two labs on one machine never share a name.
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

from autotune import durable_files
from autotune.errors import AutotuneError

# RFC 2544 reserves this network for benchmarks, so no lab hides a real network.
LAB_NETWORK = IPv4Network("198.18.0.0/15")
MIN_MEMORY_BYTES = 64 * 1024 * 1024  # systemd, its journal and sshd use about 30 MB
_HOST_NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class LabHost:
    """One lab host.

    ``cpus`` is the number of CPUs that the host may use (0.5 is half a CPU). ``memory`` is the
    host's memory limit in bytes, including page cache. ``None`` means no limit.
    """

    name: str
    address: str
    cpus: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class LabNames:
    """Names of the objects that a lab creates on this machine."""

    directory: Path
    tag: str
    link_prefix: str
    bridge: str
    cgroup: str
    private_cgroups: Path
    plan_file: Path
    key: Path
    known_hosts: Path
    ssh_config: Path
    machines_directory: Path

    def format_link_name(self, host_number: int) -> str:
        return f"{self.link_prefix}{host_number}"

    def get_machine_directory(self, host: str) -> Path:
        return self.machines_directory / host


def derive_names(state_dir: Path) -> LabNames:
    """Return the names of the lab in ``state_dir``."""
    directory = state_dir.resolve()
    tag = hashlib.sha256(bytes(directory)).hexdigest()[:6]
    return LabNames(
        directory,
        tag,
        link_prefix=f"at{tag}-",  # link names have at most 15 characters
        bridge=f"at{tag}-br",
        cgroup=f"autotune-lab-{tag}",
        private_cgroups=directory / "cgroup",
        plan_file=directory / "lab.json",
        key=directory / "key",
        known_hosts=directory / "known_hosts",
        ssh_config=directory / "ssh_config",
        machines_directory=directory / "hosts",
    )


@dataclass(frozen=True)
class LabPlan:
    """A lab's hosts, and their subnet with this machine as ``gateway``."""

    names: LabNames
    hosts: tuple[LabHost, ...]
    network: IPv4Network
    gateway: IPv4Address

    def find_host(self, host_name: str) -> LabHost:
        hosts_by_name = {host.name: host for host in self.hosts}
        if host_name not in hosts_by_name:
            raise AutotuneError(
                f"the lab contains no host {host_name}",
                hint="its hosts are " + ", ".join(hosts_by_name),
            )
        return hosts_by_name[host_name]

    def format_interface_address(self, address: str) -> str:
        """Return ``address`` with the subnet's prefix length, for a network interface."""
        return f"{address}/{self.network.prefixlen}"


def build_plan(hosts: Iterable[LabHost], state_dir: Path) -> LabPlan:
    """Return the plan of a lab with ``hosts`` in ``state_dir``. Raises ``AutotuneError`` if the hosts
    cannot form a lab.
    """
    checked_hosts = check_hosts(hosts)
    used_addresses = {IPv4Address(host.address) for host in checked_hosts}
    # Find the smallest network that contains all addresses.
    network = IPv4Network((min(used_addresses), 24), strict=False)
    while max(used_addresses) not in network:
        network = network.supernet()
    for reserved_address in (network.network_address, network.broadcast_address):
        if reserved_address in used_addresses:
            raise AutotuneError(
                f"{reserved_address} is reserved in {network} and cannot be a host's address",
                hint="give the host another address, such as 198.18.0.10",
            )
    gateway = next((address for address in network.hosts() if address not in used_addresses), None)
    if gateway is None:
        raise AutotuneError(
            f"{network} contains no free address for this machine",
            hint="spread the addresses of the hosts over a larger network",
        )
    return LabPlan(derive_names(state_dir), checked_hosts, network, gateway)


def check_hosts(hosts: Iterable[LabHost]) -> tuple[LabHost, ...]:
    """Return ``hosts`` as a tuple after validating them.

    Raises ``AutotuneError`` if a host is invalid or two hosts conflict.
    """
    hosts = tuple(hosts)
    if not hosts:
        raise AutotuneError(
            "the target contains no SSH hosts to create",
            hint="use host addresses in 198.18.0.0/15, and remove `transport: local`",
        )
    for host in hosts:
        _check_host(host)
    for field_name in ("name", "address"):
        field_values = [getattr(host, field_name) for host in hosts]
        for field_value in field_values:
            if field_values.count(field_value) > 1:
                raise AutotuneError(
                    f"two lab hosts share the {field_name} {field_value}",
                    hint=f"give each host its own {field_name}",
                )
    return hosts


def _check_host(host: LabHost) -> None:
    if not _HOST_NAME_PATTERN.fullmatch(host.name):
        raise AutotuneError(
            f"{host.name!r} is not a valid lab host name",
            hint="use at most 63 lower-case letters, digits and hyphens",
        )
    try:
        address = IPv4Address(host.address)
    except AddressValueError:
        raise AutotuneError(
            f"{host.name}: {host.address!r} is not an IPv4 address",
            hint="use an address such as 198.18.0.10",
        ) from None
    if address not in LAB_NETWORK:
        raise AutotuneError(
            f"{host.name}: {address} is outside {LAB_NETWORK}",
            hint="use an address in the range reserved for benchmarks, such as 198.18.0.10",
        )
    if host.cpus is not None and host.cpus < 0.01:
        raise AutotuneError(
            f"{host.name}: {host.cpus} CPUs are not enough to boot (minimum 0.01)",
            hint="raise `cpus:` of the host",
        )
    if host.memory is not None and host.memory < MIN_MEMORY_BYTES:
        raise AutotuneError(
            f"{host.name}: {host.memory} bytes of memory are not enough to boot (minimum "
            f"{MIN_MEMORY_BYTES})",
            hint="raise `memory:` of the host",
        )


def write_plan(plan: LabPlan) -> None:
    """Record ``plan`` durably. After a crash, the record is either complete or missing."""
    durable_files.write_file(plan.names.plan_file, json.dumps(encode_plan(plan), indent=1).encode())


def read_plan(lab_names: LabNames) -> LabPlan | None:
    """Return the recorded plan, or ``None`` if no lab exists."""
    try:
        plan_bytes = lab_names.plan_file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return decode_plan(json.loads(plan_bytes), lab_names)
    except (ValueError, KeyError, TypeError) as error:
        raise AutotuneError(
            f"{lab_names.plan_file} cannot be read: {error}",
            hint="if the directory contains the lab's key, `autotune lab down` removes the lab",
        ) from None


def encode_plan(plan: LabPlan) -> dict[str, Any]:
    """Return ``plan`` as plain values, without its names, which derive from the lab's directory."""
    return {
        "schema": _SCHEMA_VERSION,
        "network": str(plan.network),
        "gateway": str(plan.gateway),
        "hosts": [asdict(host) for host in plan.hosts],
    }


def decode_plan(record: dict[str, Any], lab_names: LabNames) -> LabPlan:
    """Return the plan in a record from ``encode_plan``. Raises ``ValueError``, ``KeyError`` or
    ``TypeError``.
    """
    if record["schema"] != _SCHEMA_VERSION:
        raise ValueError(f"unsupported schema {record['schema']}, expected {_SCHEMA_VERSION}")
    return LabPlan(
        lab_names,
        tuple(LabHost(**host) for host in record["hosts"]),
        IPv4Network(record["network"]),
        IPv4Address(record["gateway"]),
    )
