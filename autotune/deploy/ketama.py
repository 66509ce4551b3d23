"""Which of several memcached servers stores a key, as the client of the reference site decides.

The client is libmemcached with the option ``LIBKETAMA_COMPATIBLE``. It hashes consistently with MD5, as
libketama does (https://github.com/RJ/ketama). Every server has 160 points on a ring of 32-bit numbers. A
key belongs to the server with the first point at or after the key's own number.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.services.base import Endpoint

HASHES_PER_SERVER = 40
POINTS_PER_HASH = 4
POINT_BYTES = 4
DEFAULT_PORT = 11211  # the client omits this port from the name of a server


@dataclass(frozen=True)
class Ring:
    """The points of all servers in ascending order, and the index of each point's server."""

    points: tuple[int, ...]
    servers: tuple[int, ...]

    def find_server(self, key: str) -> int:
        """Return the index of the server that stores ``key``."""
        index = bisect_left(self.points, _read_point(_hash_text(key), 0))
        return self.servers[index % len(self.points)]


def build_ring(servers: Sequence[Endpoint]) -> Ring:
    """Return the ring of equally weighted ``servers``."""
    ring = sorted(
        (_read_point(_hash_text(f"{_name_server(server)}-{number}"), offset), index)
        for index, server in enumerate(servers)
        for number in range(HASHES_PER_SERVER)
        for offset in range(POINTS_PER_HASH)
    )
    return Ring(tuple(point for point, _ in ring), tuple(index for _, index in ring))


def _name_server(server: Endpoint) -> str:
    return server.host if server.port == DEFAULT_PORT else f"{server.host}:{server.port}"


def _hash_text(text: str) -> bytes:
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()


def _read_point(digest: bytes, offset: int) -> int:
    """Return the point in bytes ``4 * offset`` to ``4 * offset + 3`` of a hash."""
    first_byte = POINT_BYTES * offset
    return int.from_bytes(digest[first_byte : first_byte + POINT_BYTES], "little")
