"""memcaslap (libmemcached): measure the ceiling of a memcached host alone, in a closed loop.

autotune reads only memcaslap's counts, because memcaslap prints latencies as powers of two, and its
rate option does not throttle. memcaslap first stores its own objects (the window). If gets miss, the
cache has less memory than the window needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from autotune.loads.base import find_last_line, with_input_file
from autotune.services.base import Argv, Endpoint
from autotune.strict_parsing import parse_decimal, parse_uint

CACHE_PROTOCOL = "memcached"  # name of the protocol in the definitions of services
MEMCASLAP_PACKAGES = ("libmemcached-tools",)  # names of the Debian packages
KEY_BYTES = 17  # memcaslap itself uses the first 16 bytes
WINDOW_SIZE = "1k"  # objects per client, the smallest allowed number
GET_SHARE = 0.9

_COUNT_PATTERN = re.compile(r"^(cmd_get|cmd_set|get_misses|written_bytes|read_bytes): (\d+)$", re.M)
_TOTAL_PATTERN = re.compile(r"^Run time: ([\d.]+)s Ops: (\d+) ", re.M)


@dataclass(frozen=True)
class MemcaslapShape:
    """Sizes of cached objects in bytes, as (smallest, largest, share of the objects) tuples."""

    name: str
    sizes: tuple[tuple[int, int, float], ...]
    keys_per_get: int = 1
    """Number of keys that one request reads."""

    def build_config(self) -> bytes:
        """Return the file for ``--cfg_cmd``: lengths of keys, lengths of values, and the shares of
        sets (0) and gets (1).
        """
        value_lines = "".join(f"{low} {high} {share:g}\n" for low, high, share in self.sizes)
        config_lines = (
            f"key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{value_lines}cmd\n0 {1 - GET_SHARE:.2g}\n1 "
            f"{GET_SHARE:g}\n"
        )
        return config_lines.encode()


# Sizes in the published single-instance measurements (Radovic). The middle shape is a mix of tiny,
# small and medium objects with a mean of about 2 KB.
CACHE_SHAPES = (
    MemcaslapShape("100 B", ((100, 100, 1.0),)),
    MemcaslapShape("2 KB", ((4, 100, 0.76), (1024, 2048, 0.095), (5120, 20_480, 0.145))),
    MemcaslapShape("4 KB", ((4096, 4096, 1.0),)),
)


@dataclass(frozen=True)
class CacheCeiling:
    """A cache's operations and traffic. Each key counts as an operation. ``traffic`` is the number
    of bytes in both directions.

    ``failure`` is the reason why a result is missing.
    """

    shape: str
    seconds: float = 0.0
    operations: int = 0
    gets: int = 0
    misses: int = 0
    traffic: int = 0
    keys_per_get: int = 1
    failure: str | None = None
    generator = "memcaslap (closed loop)"
    is_load_limited = False

    @property
    def rate(self) -> float:
        """Return operations per second."""
        return self.operations / self.seconds if self.seconds > 0 else 0.0

    @property
    def gigabits(self) -> float:
        """Return the traffic in Gb/s, without the overhead of lower-level protocols."""
        return 8e-9 * self.traffic / self.seconds if self.seconds > 0 else 0.0

    @property
    def hit_share(self) -> float:
        """Return the fraction of the gets that were hits."""
        return 1.0 - self.misses / self.gets if self.gets else 0.0


def build_command(
    servers: tuple[Endpoint, ...],
    load_shape: MemcaslapShape,
    clients: int,
    seconds: float,
    *,
    udp: bool = False,
) -> Argv:
    """Return a command with one thread per server. The command reads the shape's configuration from
    standard input.
    """
    division_options = (
        ("--division", str(load_shape.keys_per_get)) if load_shape.keys_per_get > 1 else ()
    )
    return with_input_file((
        "timeout", "--kill-after=1", str(ceil(seconds) + 10),
        "memcaslap", "--servers", ",".join(map(str, servers)), "--threads", str(len(servers)),
        "--concurrency", str(clients * len(servers)), "--time", f"{ceil(seconds)}s",
        "--win_size", WINDOW_SIZE, *division_options,
        *(("--udp",) if udp else ()), "--cfg_cmd",
    ), "")  # fmt: skip


def parse_output(output: str, load_shape: MemcaslapShape) -> CacheCeiling:
    """Return the cache's throughput ceiling from memcaslap's output. If the output is unreadable,
    ``failure`` is set.
    """
    try:
        return _parse_counts(output, load_shape)
    except ValueError:
        reason = f"memcaslap printed no result: {find_last_line(output)}"
        return CacheCeiling(load_shape.name, keys_per_get=load_shape.keys_per_get, failure=reason)


def _parse_counts(output: str, load_shape: MemcaslapShape) -> CacheCeiling:
    counts = {name: parse_uint(count) for name, count in _COUNT_PATTERN.findall(output)}
    total_match = _TOTAL_PATTERN.search(output)
    if total_match is None or not {"cmd_get", "read_bytes", "written_bytes"} <= counts.keys():
        raise ValueError("the output contains no result")
    return CacheCeiling(
        load_shape.name,
        parse_decimal(total_match[1]),
        parse_uint(total_match[2]),
        counts["cmd_get"],
        counts.get("get_misses", 0),
        counts["read_bytes"] + counts["written_bytes"],
        load_shape.keys_per_get,
    )
