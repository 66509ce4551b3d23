"""Closed loops: so many clients, each asking again as soon as it has its answer.

They find a ceiling, never a peak: a client that waits for a slow answer asks nothing meanwhile, so
a stall is counted once and not for all who would have come during it. Their latencies must not be
set beside those of an open loop, and their rate must not be taken for what the stack would carry.

A closed loop has no rate, but it has a limit: wrk runs a script that waits before a request until
``max_rate`` allows another one. ab has nothing of the kind, so a target has to allow it (``unpaced``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf

from autotune.errors import AutotuneError
from autotune.loads.base import last_line, with_file
from autotune.services.base import Argv
from autotune.strict import decimal, whole
from autotune.transports.request import Request

LABEL = "closed loop: a ceiling, not what would be carried"
HELD = 0.9  # of ``max_rate``: clients that send so much were held back


@dataclass(frozen=True)
class Clients:
    """How many clients, for how many seconds; a request is given up after ``timeout`` seconds.

    Together they send ``max_rate`` requests/s at most, if their generator is paced.
    """

    concurrency: int
    seconds: float
    timeout: float = 2.0
    max_rate: float = inf


@dataclass(frozen=True)
class Ceiling:
    """What clients got. ``percentiles`` (50, 99 …) are in seconds; ``errors`` count by kind.

    ``failed`` says why there is no result; the other figures mean nothing then. ``limited``: the clients
    were held at ``max_rate``, so the ceiling is at least ``rate``, and the percentiles include waiting.
    ``example`` says what was wrong with an answer.
    """

    concurrency: int
    seconds: float = 0.0
    requests: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    percentiles: Mapping[float, float] = field(default_factory=dict)
    failed: str | None = None
    limited: bool = False
    example: str = ""

    @property
    def wrong(self) -> int:
        return min(self.requests, sum(self.errors.values()))

    @property
    def sent(self) -> float:
        """Answers per second, right or wrong."""
        return self.requests / self.seconds if self.seconds > 0 else 0.0

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return (self.requests - self.wrong) / self.seconds if self.seconds > 0 else 0.0


class ClosedLoad(ABC):
    """A generator of closed-loop load; ``packages`` are the distribution's (Debian's names).

    ``paced``: it keeps to the clients' ``max_rate``.
    """

    name: str
    packages: tuple[str, ...]
    paced = False

    @abstractmethod
    def argv(self, request: Request, clients: Clients) -> Argv:
        """One process, which ends by itself."""

    def input(self, clients: Clients) -> bytes | None:
        """What the process reads from its standard input."""
        return None

    @abstractmethod
    def read(self, printed: str, clients: Clients) -> Ceiling:
        """What it printed; ``failed`` where there is no result in it. May raise ValueError."""

    def parse(self, printed: str, clients: Clients) -> Ceiling:
        """As ``read``; ``failed`` too where figures cannot be read."""
        try:
            ceiling = self.read(printed, clients)
        except ValueError:
            return self.no_result(printed, clients)
        held = self.paced and ceiling.sent >= HELD * clients.max_rate
        return replace(ceiling, limited=held and ceiling.failed is None)

    def no_result(self, printed: str, clients: Clients) -> Ceiling:
        why = f"{self.name} printed no result: {last_line(printed)}"
        return Ceiling(clients.concurrency, failed=why)


def options(request: Request) -> Argv:
    """Headers, as ab and wrk take them. Raises AutotuneError for what they cannot send."""
    if request.method != "GET" or request.http2:
        raise AutotuneError(
            "a ceiling is measured with GET over HTTP/1.1", hint="leave --closed out"
        )
    named = [("Host", request.authority)] if request.authority else []
    return tuple(
        word for name, value in (*named, *request.headers) for word in ("-H", f"{name}: {value}")
    )


MOST = 50_000_000  # requests; the time limit is what ends the run
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 100.0)
_LINE = re.compile(r"^(\d+),([\d.]+)$", re.M)
_COUNT = re.compile(r"^(Complete requests|Non-2xx responses):\s+(\d+)$", re.M)
_FAILED = re.compile(r"\(Connect: (\d+), Receive: (\d+), Length: (\d+), Exceptions: (\d+)\)")
_TIME = re.compile(r"^Time taken for tests:\s+([\d.]+) seconds$", re.M)


class Ab(ClosedLoad):
    """Debian's ab 2.3 (httpd.apache.org/docs/2.4/programs/ab.html): a new connection per request.

    It writes every percentile to 99, in milliseconds, as CSV to a file, here standard output.
    Its time limit (``-t``) implies a number of requests, so both are given. A refused connection
    counts as a failed request (twice, in the total).
    """

    name = "ab"
    packages = ("apache2-utils",)

    def argv(self, request: Request, clients: Clients) -> Argv:
        bound = ceil(clients.seconds + 2 * clients.timeout + 2)
        return (
            "timeout", "--signal=INT", "--kill-after=1", str(bound),
            "ab", "-q", "-l", "-r", "-c", str(clients.concurrency),
            "-t", str(ceil(clients.seconds)), "-n", str(MOST), "-s", str(ceil(clients.timeout)),
            "-e", "/dev/stdout", *options(request), request.url_by_address,
        )  # fmt: skip

    def read(self, printed: str, clients: Clients) -> Ceiling:
        counts = {name: whole(count) for name, count in _COUNT.findall(printed)}
        time = _TIME.search(printed)
        if time is None or "Complete requests" not in counts:
            return self.no_result(printed, clients)
        failed = _FAILED.search(printed)
        kinds = {"status": counts.get("Non-2xx responses", 0)}
        if failed:
            # An exception is the same request's broken connection, counted once more.
            kinds |= {"refused": whole(failed[1]), "broken off": whole(failed[2])}
        percentiles = {decimal(at): decimal(ms) / 1000 for at, ms in _LINE.findall(printed)}
        return Ceiling(
            clients.concurrency,
            decimal(time[1]),
            counts["Complete requests"],
            {kind: count for kind, count in kinds.items() if count},
            {at: percentiles[at] for at in PERCENTILES if at in percentiles},
        )


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_TOTAL = re.compile(r"^[ \t]+(\d+) requests in ([\d.]+)(us|ms|s|m),", re.M)
_PERCENTILE = re.compile(r"^[ \t]+([\d.]+)%\s+([\d.]+)(us|ms|s|m)$", re.M)
_STATUS = re.compile(r"^[ \t]+Non-2xx or 3xx responses: (\d+)$", re.M)
_SOCKETS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")


# One thread asks for every request here, whichever client is to send it, also after an error. So no two
# requests of a process are less than ``gap`` seconds apart.
_PACE = """
local ffi = require("ffi")
ffi.cdef[[
struct autotune_time { long seconds; long nanoseconds; };
int clock_gettime(int clock, struct autotune_time *time);
int nanosleep(const struct autotune_time *time, struct autotune_time *left);
]]
local MONOTONIC = 1
local read, pause = ffi.new("struct autotune_time"), ffi.new("struct autotune_time")
local gap, due, page = GAP, 0, nil

local function now()
  ffi.C.clock_gettime(MONOTONIC, read)
  return tonumber(read.seconds) + tonumber(read.nanoseconds) / 1e9
end

function init()
  page = wrk.format()
end

function request()
  local at = now()
  while at < due do
    pause.seconds = math.floor(due - at)
    pause.nanoseconds = math.floor((due - at) % 1 * 1e9)
    ffi.C.nanosleep(pause, nil)
    at = now()
  end
  due = at + gap
  return page
end
"""


class Wrk(ClosedLoad):
    """Debian's wrk 4.1 (github.com/wg/wrk), one thread, over connections that stay open."""

    name = "wrk"
    packages = ("wrk",)
    paced = True

    def input(self, clients: Clients) -> bytes:
        """The script that keeps to the limit (LuaJIT)."""
        return _PACE.replace("GAP", f"{1 / clients.max_rate:.12f}").encode()

    def argv(self, request: Request, clients: Clients) -> Argv:
        bound = ceil(clients.seconds + 2 * clients.timeout + 2)
        return with_file((
            "timeout", "--kill-after=1", str(bound),
            "wrk", "--threads", "1", "--connections", str(clients.concurrency),
            "--duration", f"{ceil(clients.seconds)}s", "--timeout", f"{ceil(clients.timeout)}s",
            "--latency", *options(request), request.url_by_address,
        ), "--script=")  # fmt: skip

    def read(self, printed: str, clients: Clients) -> Ceiling:
        total = _TOTAL.search(printed)
        if total is None:
            return self.no_result(printed, clients)
        errors = {}
        if status := _STATUS.search(printed):
            errors["status"] = whole(status[1])
        if sockets := _SOCKETS.search(printed):
            errors |= dict(
                zip(("refused", "reset", "reset while sending", "timeout"),
                    map(whole, sockets.groups()), strict=True)
            )  # fmt: skip
        return Ceiling(
            clients.concurrency,
            decimal(total[2]) * UNITS[total[3]],
            whole(total[1]),
            {kind: count for kind, count in errors.items() if count},
            {decimal(at): decimal(t) * UNITS[unit] for at, t, unit in _PERCENTILE.findall(printed)},
        )
