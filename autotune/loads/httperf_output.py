"""What httperf 0.9.0 prints with ``-v -v``, as numbers.

The lifetime histogram has bins of 1 ms printed by their middle, and holds every connection with a
complete answer, whatever its status. Connections it never opened for want of a descriptor are in
``fd-unavail`` and not in ``connections``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ERRORS = {
    "client-timo": "timeout",
    "socket-timo": "timeout",
    "connrefused": "refused",
    "connreset": "reset",
    "fd-unavail": "fd-unavailable",
    "addrunavail": "no free port",
    "ftab-full": "file table full",
    "other": "other",
}

_HISTOGRAM = re.compile(r"^Connection lifetime histogram.*\n((?: +(?::|[\d.]+ \d+)\n)*)", re.M)
_BIN = re.compile(r"^ +([\d.]+) (\d+)$", re.M)
_TOTAL = re.compile(
    r"^Total: connections (\d+) requests (\d+) replies (\d+) test-duration ([\d.]+) s", re.M
)
_LONGEST = re.compile(r"^Connection time \[ms\]: min [\d.]+ avg [\d.]+ max ([\d.]+)", re.M)
_CONTENT = re.compile(r"^Reply size \[B\]: header [\d.]+ content ([\d.]+)", re.M)
_STATUS = re.compile(r"^Reply status: (.+)$", re.M)
_STATUS_COUNT = re.compile(r"(\dxx)=(\d+)")
_BURST = re.compile(r"^Maximum connect burst length: (\d+)", re.M)
_ERROR_LINE = re.compile(r"^Errors: (.+)$", re.M)
_ERROR_COUNT = re.compile(r"([a-z][a-z-]*) (\d+)")


@dataclass(frozen=True)
class Printed:
    """One process's result. ``lifetimes`` maps upper edges in seconds to counts of all statuses.

    ``content`` is the mean body size in bytes, ``longest`` the longest answered request and
    ``duration`` that of the whole test (seconds), ``burst`` the most connections opened in one go.
    """

    connections: int
    requests: int
    replies: int
    duration: float
    lifetimes: Mapping[float, int] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    longest: float = 0.0
    content: float | None = None
    burst: int = 0

    @classmethod
    def read(cls, printed: str) -> Printed | None:
        """``None`` when there is no result in it: httperf was killed, or never got to start."""
        found = _TOTAL.search(printed)
        errors = _errors(printed)
        if found is None or errors is None:
            return None
        longest = _LONGEST.search(printed)
        content = _CONTENT.search(printed)
        status = _STATUS.search(printed)
        burst = _BURST.search(printed)
        return cls(
            connections=int(found[1]),
            requests=int(found[2]),
            replies=int(found[3]),
            duration=float(found[4]),
            lifetimes=_lifetimes(printed),
            statuses={k: int(n) for k, n in _STATUS_COUNT.findall(status[1])} if status else {},
            errors=errors,
            longest=float(longest[1]) / 1000 if longest else 0.0,
            content=float(content[1]) if content else None,
            burst=int(burst[1]) if burst else 0,
        )


def _lifetimes(printed: str) -> dict[float, int]:
    block = _HISTOGRAM.search(printed)
    if block is None:
        return {}
    return {
        round((float(middle) + 0.5) / 1000, 6): int(count)
        for middle, count in _BIN.findall(block[1])
    }


def _errors(printed: str) -> dict[str, int] | None:
    """By kind; ``None`` without the two lines that end a whole result."""
    lines = _ERROR_LINE.findall(printed)
    if len(lines) < 2:
        return None
    found: dict[str, int] = {}
    for name, count in _ERROR_COUNT.findall(" ".join(lines)):
        if kind := ERRORS.get(name):
            found[kind] = found.get(kind, 0) + int(count)
    return found
