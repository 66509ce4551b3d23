"""Free ports for a private stack."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from autotune.errors import AutotuneError
from autotune.target.read import TargetFile

FIRST = 20_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(address: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: ports whose connections are only winding down count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def local_of(tier: str) -> str:
    """What stands for the cache on each host of a tier, among the tiers that have ports."""
    return f"{tier}.local"


def allocate(file: TargetFile) -> dict[tuple[str, str], int]:
    """A port for every host of every tier: the target's own, or a free one below ephemeral ones.

    Above them the load's own connections could take a port while its server restarts. Raises
    AutotuneError where a port the target names is in use.
    """
    candidates = _candidates(file)
    chosen: dict[tuple[str, str], int] = {}
    for name, tier in file.target.tiers.items():
        for host in tier.hosts:
            address = file.target.hosts[host].address
            if tier.port is not None:
                if not is_free(address, tier.port):
                    line, column = file.document.position(["tiers", name, "port"])
                    raise AutotuneError(
                        f"{file.path}:{line}:{column}: port {tier.port} on {address} is in use",
                        hint="end what listens there, or leave `port:` out to have a free one",
                    )
                chosen[name, host] = tier.port
            else:
                chosen[name, host] = next(p for p in candidates if is_free(address, p))
            if tier.local_cache:
                free = (p for p in candidates if is_free("127.0.0.1", p))
                chosen[local_of(name), host] = next(free)
    return chosen


def _candidates(file: TargetFile) -> Iterator[int]:
    """From a place that depends on the target and this process: two studies seldom meet."""
    ports = range(FIRST, _first_ephemeral())
    start = crc32(f"{file.path.resolve()} {os.getpid()}".encode()) % len(ports)
    yield from (*ports[start:], *ports[:start])


def _first_ephemeral() -> int:
    try:
        return max(FIRST + 1000, int(EPHEMERAL.read_text().split()[0]))
    except (OSError, ValueError):
        return 32_768
