"""One lab for all tests of a worker that need new hosts. It is reset between tests instead of
created again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from autotune.lab.lifecycle import build_ssh_host, halt_host, start_lab
from autotune.lab.plan import LabHost, derive_names
from autotune.transports.ssh import SshTransport
from tests.lab.pictures import picture

# : Number of this pytest worker. Each worker uses separate networks.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
NETWORKS = 8  # number of networks for a worker's shared lab


def free_network(first: int) -> str:
    """Return the first three numbers of a /24 network without a route on this machine."""
    for number in range(first, first + NETWORKS):
        network = IPv4Network(f"198.19.{number}.0/24")
        if not any(network.overlaps(route) for route in _routes()):
            return f"198.19.{number}"
    raise AssertionError(f"198.19.{first}.0/24 and those after it are in use")


def _routes() -> list[IPv4Network]:
    """Return the routes in /proc/net/route without default routes. Addresses are in the machine's
    byte order.
    """
    rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    routes = [[int.from_bytes(bytes.fromhex(row[at])[::-1]) for at in (1, 7)] for row in rows]
    return [IPv4Network((to, str(IPv4Address(mask)))) for to, mask in routes if mask]


NETWORK = free_network(16 + NETWORKS * WORKER)
HOSTS = [LabHost(f"fl{name}", f"{NETWORK}.{21 + number}")
         for number, name in enumerate(("lb", "web", "cache", "store"))]  # fmt: skip


@dataclass(frozen=True)
class SharedLab:
    """Running hosts. ``new`` contains their states after the first boot."""

    directory: Path
    new: dict[str, list[str]]

    @classmethod
    def made(cls, directory: Path) -> SharedLab:
        start_lab(HOSTS, directory)
        settled(directory, [host.name for host in HOSTS])
        return cls(directory, cls(directory, {}).pictures())

    def pictures(self) -> dict[str, list[str]]:
        return {host.name: picture(derive_names(self.directory), host.name) for host in HOSTS}

    def renew(self) -> None:
        """Reset every host: changed or stopped hosts boot again from an empty layer."""
        changed = [name for name, lines in self.pictures().items() if lines != self.new[name]]
        for name in changed:
            halt_host(self.directory, name)
            (derive_names(self.directory).get_machine_directory(name) / "made").unlink()
        start_lab(HOSTS, self.directory)
        settled(self.directory, changed)
        self.new.update({name: picture(derive_names(self.directory), name) for name in changed})


def settled(directory: Path, hosts: Iterable[str]) -> None:
    """Wait until these hosts have finished booting, so that one-time units write nothing more."""
    transports = [SshTransport(build_ssh_host(directory, name)) for name in hosts]
    for transport in transports:
        transport.run(["systemctl", "is-system-running", "--wait"], timeout=300.0)
        transport.close()
