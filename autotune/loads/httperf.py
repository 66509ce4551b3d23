"""httperf: one request per new connection, Poisson arrivals, an open loop.

Facts about httperf 0.9.0 that this file is built on are in MEASUREMENT.md: the lifetime histogram
(``-v -v``) is per connection, so it is request latency only with one call each; connections without
an answer are missing from it; it exits with 0 whatever happened; one process holds about a thousand
connections (FD_SETSIZE) and counts those it could not open outside of ``connections``.

httperf spins, so each process takes a core that the servers may need: there are only as many as keep
a thousand connections from being used up before requests wait four times the latency limit. Where
they are used up after that, the server has long failed, and what was not sent counts against it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from autotune.loads.base import Argv, Order, Request, Tally, without_fastest

# Connections one process may have open at a time, out of FD_SETSIZE = 1024.
OPEN_AT_ONCE = 1000
# Waiting that a process must be able to hold connections for, in latency limits.
PATIENCE = 4.0
# New connections/s of one process that leave it headroom (it manages about 12 000).
RATE_AT_ONCE = 6000.0
# A process that takes this much longer to send than it was told did not make the offered load;
# beyond what chance does to Poisson arrivals (4 standard deviations).
LATE_SENDING = 1.05

_BIN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s+(\d+)\s*$")
_TOTAL = re.compile(
    r"^Total: connections (\d+) requests (\d+) replies (\d+) test-duration ([\d.]+) s", re.MULTILINE
)
_STATUS = re.compile(r"^Reply status: 1xx=(\d+) 2xx=(\d+) 3xx=(\d+) 4xx=(\d+) 5xx=(\d+)", re.M)
_CONTENT = re.compile(r"^Reply size \[B\]: header [\d.]+ content ([\d.]+)", re.MULTILINE)
_ERRORS = re.compile(r"([a-z][a-z-]*) (\d+)")
_KINDS = {
    "client-timo": "timeout",
    "socket-timo": "timeout",
    "connrefused": "refused",
    "connreset": "reset",
    "addrunavail": "no free port",
    "fd-unavail": "not sent",
    "ftab-full": "not sent",
    "other": "other",
}

_client = itertools.count()


@dataclass(frozen=True)
class Httperf:
    """Several processes where one would run out of connections; their sum is the offered rate."""

    name: str = "httperf"
    packages: tuple[str, ...] = ("httperf",)

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"httperf": ("httperf",)}

    def processes(self, request: Request, order: Order) -> tuple[Argv, ...]:
        waiting = order.rate * min(PATIENCE * order.limit, order.timeout)
        count = max(1, ceil(waiting / OPEN_AT_ONCE), ceil(order.rate / RATE_AT_ONCE))
        return tuple(self._process(request, order, index, count) for index in range(count))

    def _process(self, request: Request, order: Order, index: int, count: int) -> Argv:
        requests = share(order.requests, index, count)
        bound = order.seconds * 2 + order.timeout + 10
        return (
            # Ends by itself even when whoever started it is gone.
            "timeout", "--signal=INT", "--kill-after=2", f"{bound:.0f}",
            "httperf", f"--client={next(_client) % 4096}/4096",
            "--server", request.endpoint.host, "--port", str(request.endpoint.port),
            "--uri", request.path, f"--period=e{count / order.rate:.9g}",
            f"--num-conns={requests}", "--num-calls=1", f"--timeout={order.timeout:g}",
            "-v", "-v",
        )  # fmt: skip

    def parse(self, printed: str, order: Order, processes: int) -> Tally:
        """Raises nothing: what cannot be read is a generator that failed (``limited``)."""
        intended = max(1, round(order.requests / processes))
        found = _TOTAL.search(printed)
        if found is None:
            said = printed.strip().splitlines()[-1:] or ["nothing"]
            return Tally(intended=intended, limited=f"httperf printed no result: {said[0]}")
        connections, _, replies, duration = (float(number) for number in found.groups())
        errors = dict(_errors(printed))
        intended = int(connections) + errors.get("not sent", 0)
        wrong = dict(_wrong_statuses(printed))
        unanswered = int(connections - replies) - sum(
            n for kind, n in errors.items() if kind != "not sent"
        )
        if unanswered > 0:
            errors["no answer"] = unanswered
        content = _CONTENT.search(printed)
        histogram = dict(_histogram(printed))
        # The last request may have been sent this long before the process was done.
        longest = order.timeout if "timeout" in errors else max(histogram, default=0.0)
        return Tally(
            intended=intended,
            errors={kind: n for kind, n in {**errors, **wrong}.items() if n > 0},
            histogram=without_fastest(histogram, sum(wrong.values())),
            sending=duration,
            body_bytes=float(content[1]) if content else None,
            limited=_limited(errors, longest, duration, intended, order.rate / processes),
        )


def share(requests: int, index: int, count: int) -> int:
    """How many of ``requests`` the ``index``-th of ``count`` processes sends."""
    return requests // count + (1 if index < requests % count else 0)


def _histogram(printed: str) -> Iterator[tuple[float, int]]:
    """Upper edges in seconds: a bin is a millisecond wide and printed by its middle."""
    inside = False
    for line in printed.splitlines():
        if line.startswith("Connection lifetime histogram"):
            inside = True
        elif inside and (match := _BIN.match(line)):
            yield round((float(match[1]) + 0.5) / 1000, 6), int(match[2])
        elif inside and line.strip() not in ("", ":"):
            inside = False


def _errors(printed: str) -> Iterator[tuple[str, int]]:
    found: dict[str, int] = {}
    for line in printed.splitlines():
        if line.startswith("Errors:"):
            for name, count in _ERRORS.findall(line):
                if kind := _KINDS.get(name):
                    found[kind] = found.get(kind, 0) + int(count)
    yield from found.items()


def _wrong_statuses(printed: str) -> Iterator[tuple[str, int]]:
    if match := _STATUS.search(printed):
        for kind, count in zip(("1xx", "2xx", "3xx", "4xx", "5xx"), match.groups(), strict=True):
            if kind != "2xx":
                yield kind, int(count)


def _limited(
    errors: Mapping[str, int], longest: float, duration: float, intended: int, rate: float
) -> str | None:
    """In words why this process did not offer what it should have, with what to add."""
    if errors.get("no free port"):
        return "the load host ran out of ports: widen ip_local_port_range or add load hosts"
    expected = intended / rate * LATE_SENDING * (1 + 4 / sqrt(intended))
    if duration - longest > expected:
        return (
            f"httperf took {duration - longest:.1f} s to send what was due in {intended / rate:.1f}"
            " s: give the load host more CPU, or add load hosts"
        )
    return None
