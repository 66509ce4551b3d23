"""What a lab host is, and which ones can be made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from autotune.errors import AutotuneError

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
