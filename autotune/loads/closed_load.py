"""Closed loops: a fixed number of clients, each of which sends its next request after a response.

A closed loop measures a throughput ceiling, never a capacity. A client that waits for a slow
response sends no requests. A stall therefore counts only once, instead of for all users who would
have arrived during the stall. Do not compare latencies of closed loops with latencies of open loops.
Do not compare a closed loop's rate with a sustained rate.

A closed loop has no fixed rate, but it can have a maximum rate. With wrk, a script delays each
request until ``max_rate`` allows it. ab cannot limit its rate, so a target must allow ab explicitly
(``unpaced``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf

from autotune.errors import AutotuneError
from autotune.loads.base import find_last_line, with_input_file
from autotune.services.base import Argv
from autotune.strict_parsing import parse_decimal, parse_uint
from autotune.transports.request import Request

CLOSED_LOOP_LABEL = "closed loop: a ceiling, not a capacity"
THROTTLED_RATE_SHARE = 0.9  # above this share of ``max_rate``, the rate limit throttled the clients
REFUSED_ERROR = "refused"  # kind of the requests that were not sent for lack of a connection


@dataclass(frozen=True)
class ClosedLoopClients:
    """The number of clients, and for how many seconds they run. Clients abandon a request after
    ``timeout`` seconds.

    If the generator is paced, all clients together send at most ``max_rate`` requests/s.
    """

    concurrency: int
    seconds: float
    timeout: float = 2.0
    max_rate: float = inf


@dataclass(frozen=True)
class ClosedLoopCeiling:
    """The result of closed-loop clients.

    ``requests`` includes requests without a response. ``percentiles`` (50, 99 …) are in seconds;
    ``errors`` are counts by kind. ``failure`` is the reason why a result is missing; all other figures
    are then meaningless. If ``is_rate_limited``, ``max_rate`` limited the clients, so the ceiling is at
    least ``rate``. Percentiles of a rate-limited result include waiting times. ``example`` describes a
    wrong response.
    """

    concurrency: int
    seconds: float = 0.0
    requests: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    percentiles: Mapping[float, float] = field(default_factory=dict)
    failure: str | None = None
    is_rate_limited: bool = False
    example: str = ""

    @property
    def error_count(self) -> int:
        return min(self.requests, sum(self.errors.values()))

    @property
    def sent_rate(self) -> float:
        """Return the requests per second that were sent, even if the response was wrong or missing."""
        sent_count = self.requests - min(self.requests, self.errors.get(REFUSED_ERROR, 0))
        return sent_count / self.seconds if self.seconds > 0 else 0.0

    @property
    def rate(self) -> float:
        """Return correct responses per second."""
        return (self.requests - self.error_count) / self.seconds if self.seconds > 0 else 0.0


class ClosedLoopGenerator(ABC):
    """A generator of closed-loop load. ``packages`` are the Debian packages that contain it.

    If ``is_paced``, the generator obeys the clients' ``max_rate``. The generator does not count
    statuses as errors whose class, such as 2 for 2xx, is in ``accepted_classes``.
    """

    name: str
    packages: tuple[str, ...]
    is_paced = False
    accepted_classes = frozenset({2})

    @abstractmethod
    def build_command(self, request: Request, clients: ClosedLoopClients) -> Argv:
        """Return the command for one process, which exits by itself."""

    def build_input(self, clients: ClosedLoopClients) -> bytes | None:
        """Return the standard input of the generator's process, or ``None``."""
        return None

    @abstractmethod
    def parse_output(self, output: str, clients: ClosedLoopClients) -> ClosedLoopCeiling:
        """Return the throughput ceiling in the generator's output. If the output contains no
        ceiling, ``failure`` is set. May raise ValueError for unreadable figures.
        """

    def parse_checked(self, output: str, clients: ClosedLoopClients) -> ClosedLoopCeiling:
        """Return the ceiling that ``parse_output`` returns. If figures are unreadable, ``failure`` is
        set.
        """
        try:
            ceiling = self.parse_output(output, clients)
        except ValueError:
            return self.build_failure(output, clients)
        is_rate_limited = (
            self.is_paced and ceiling.sent_rate >= THROTTLED_RATE_SHARE * clients.max_rate
        )
        return replace(ceiling, is_rate_limited=is_rate_limited and ceiling.failure is None)

    def build_failure(self, output: str, clients: ClosedLoopClients) -> ClosedLoopCeiling:
        reason = f"{self.name} printed no result: {find_last_line(output)}"
        return ClosedLoopCeiling(clients.concurrency, failure=reason)


def build_options(request: Request) -> Argv:
    """Return the request's headers as options for ab and wrk. Raises AutotuneError if ab and wrk
    cannot send the request.
    """
    if request.method != "GET" or request.http2:
        raise AutotuneError("--closed needs GET requests over HTTP/1.1", hint="remove --closed")
    host_header = [("Host", request.authority)] if request.authority else []
    return tuple(
        option_word
        for name, value in (*host_header, *request.headers)
        for option_word in ("-H", f"{name}: {value}")
    )


MAX_REQUESTS = 50_000_000  # never reached, because the time limit ends the run first
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 100.0)
_PERCENTILE_LINE_PATTERN = re.compile(r"^(\d+),([\d.]+)$", re.M)
_COUNT_PATTERN = re.compile(r"^(Complete requests|Non-2xx responses):\s+(\d+)$", re.M)
_FAILURE_PATTERN = re.compile(
    r"\(Connect: (\d+), Receive: (\d+), Length: (\d+), Exceptions: (\d+)\)"
)
_DURATION_PATTERN = re.compile(r"^Time taken for tests:\s+([\d.]+) seconds$", re.M)


class AbGenerator(ClosedLoopGenerator):
    """Debian's ab 2.3 (httpd.apache.org/docs/2.4/programs/ab.html): a new connection per request.

    ab writes all percentiles up to 99, in milliseconds, as CSV to standard output. A time limit
    (``-t``) changes ab's number of requests (``-n``), so both options are set. ab counts a refused
    connection as a failed request (twice in the total).
    """

    name = "ab"
    packages = ("apache2-utils",)

    def build_command(self, request: Request, clients: ClosedLoopClients) -> Argv:
        stop_seconds = ceil(clients.seconds + 2 * clients.timeout + 2)
        return (
            "timeout", "--signal=INT", "--kill-after=1", str(stop_seconds),
            "ab", "-q", "-l", "-r", "-c", str(clients.concurrency),
            "-t", str(ceil(clients.seconds)), "-n", str(MAX_REQUESTS), "-s", str(ceil(clients.timeout)),
            "-e", "/dev/stdout", *build_options(request), request.url_by_address,
        )  # fmt: skip

    def parse_output(self, output: str, clients: ClosedLoopClients) -> ClosedLoopCeiling:
        count_by_name = {name: parse_uint(count) for name, count in _COUNT_PATTERN.findall(output)}
        duration_match = _DURATION_PATTERN.search(output)
        if duration_match is None or "Complete requests" not in count_by_name:
            return self.build_failure(output, clients)
        failure_match = _FAILURE_PATTERN.search(output)
        error_counts = {"status": count_by_name.get("Non-2xx responses", 0)}
        if failure_match:
            # ab also counts broken connections as exceptions, but their requests are already counted.
            error_counts |= {
                REFUSED_ERROR: parse_uint(failure_match[1]),
                "broken off": parse_uint(failure_match[2]),
            }
        percentiles = {
            parse_decimal(at): parse_decimal(percentile_milliseconds) / 1000
            for at, percentile_milliseconds in _PERCENTILE_LINE_PATTERN.findall(output)
        }
        return ClosedLoopCeiling(
            clients.concurrency,
            parse_decimal(duration_match[1]),
            count_by_name["Complete requests"],
            {error_kind: count for error_kind, count in error_counts.items() if count},
            {at: percentiles[at] for at in PERCENTILES if at in percentiles},
        )


UNIT_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_TOTAL_PATTERN = re.compile(r"^[ \t]+(\d+) requests in ([\d.]+)(us|ms|s|m),", re.M)
_PERCENTILE_PATTERN = re.compile(r"^[ \t]+([\d.]+)%\s+([\d.]+)(us|ms|s|m)$", re.M)
_STATUS_PATTERN = re.compile(r"^[ \t]+Non-2xx or 3xx responses: (\d+)$", re.M)
_SOCKET_ERROR_PATTERN = re.compile(
    r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)"
)


# A single thread sends the requests of all clients, and waits at least ``gap`` seconds between two
# requests, even after an error.
_PACE_SCRIPT = """
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


class WrkGenerator(ClosedLoopGenerator):
    """Debian's wrk 4.1 (github.com/wg/wrk), with one thread and connections that stay open."""

    name = "wrk"
    packages = ("wrk",)
    is_paced = True
    accepted_classes = frozenset({2, 3})

    def build_input(self, clients: ClosedLoopClients) -> bytes:
        """Return the script (LuaJIT) that enforces the rate limit."""
        return _PACE_SCRIPT.replace("GAP", f"{1 / clients.max_rate:.12f}").encode()

    def build_command(self, request: Request, clients: ClosedLoopClients) -> Argv:
        stop_seconds = ceil(clients.seconds + 2 * clients.timeout + 2)
        return with_input_file((
            "timeout", "--kill-after=1", str(stop_seconds),
            "wrk", "--threads", "1", "--connections", str(clients.concurrency),
            "--duration", f"{ceil(clients.seconds)}s", "--timeout", f"{ceil(clients.timeout)}s",
            "--latency", *build_options(request), request.url_by_address,
        ), "--script=")  # fmt: skip

    def parse_output(self, output: str, clients: ClosedLoopClients) -> ClosedLoopCeiling:
        total_match = _TOTAL_PATTERN.search(output)
        if total_match is None:
            return self.build_failure(output, clients)
        errors, unanswered_count = {}, 0
        if status := _STATUS_PATTERN.search(output):
            errors["status"] = parse_uint(status[1])
        if socket_errors := _SOCKET_ERROR_PATTERN.search(output):
            error_kinds = (REFUSED_ERROR, "reset", "reset while sending", "timeout")
            counts = list(map(parse_uint, socket_errors.groups()))
            errors |= dict(zip(error_kinds, counts, strict=True))
            # wrk counts only responses as requests. A timeout is a response that was too late.
            unanswered_count = sum(counts[:-1])
        return ClosedLoopCeiling(
            clients.concurrency,
            parse_decimal(total_match[2]) * UNIT_SECONDS[total_match[3]],
            parse_uint(total_match[1]) + unanswered_count,
            {error_kind: error_count for error_kind, error_count in errors.items() if error_count},
            {
                parse_decimal(percentile): parse_decimal(t) * UNIT_SECONDS[latency_unit]
                for percentile, t, latency_unit in _PERCENTILE_PATTERN.findall(output)
            },
        )
