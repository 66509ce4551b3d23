"""httperf: one request per new connection, Poisson arrivals, an open loop.

How many processes. httperf polls without sleeping, so each process takes all the CPU that a core has
to spare, which on a shared machine is the servers' core. So there are as few processes as can do the
job: one opens up to ``LIMITS.rate`` connections/s, and FD_SETSIZE keeps it to about a thousand at a
time. These need to suffice for ``WAITED_LIMITS`` latency limits, not until the timeout. Once a server
holds that many requests (``prlimit`` sets the number), by Little's law the average one waits several
latency limits: the objective is missed beyond doubt, and what is not sent because of it
(``fd-unavailable``) is a violation like the late answer it would have got. This also cuts an overload
short: the queue that a reading can build up is bounded.

A request that was due is never forgotten, but a starved httperf sends it later, together with the
others that were due (``Maximum connect burst length``). If httperf has caught up by the end, the
reading is valid. If it has not, or if one burst was a large part of the reading, the ordered load was
not made (``limited``), unless the server failed under the load that was made (``truncated``).

When it sends is known beforehand: ``--period=e<mean>`` draws exponential gaps with ``erand48``, whose
state httperf 0.9 sets from the client's number alone (``rate_generator_start`` in ``gen/rate.c``). The
arrivals are the same for every reading of the same client number, and the *achieved* mean rate of n
arrivals strays from the nominal one by 1/√n (1.8 % for 3000). So the mean gap is scaled such that
exactly n requests go out in the time they should: a Poisson process given its count.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, log
from typing import TypeVar

from autotune.loads.base import (
    ACHIEVED,
    BEHIND,
    NO_FILE,
    NO_PORT,
    STALL,
    Limits,
    Load,
    LoadResult,
    LoadSpec,
    Process,
    last_line,
    with_file,
    without_fastest,
)
from autotune.loads.workload import Unusable, escaped, session_line, slots
from autotune.services.base import Argv
from autotune.strict import decimal, whole
from autotune.target.requests import Step, Visit
from autotune.transports.request import Request

CLIENTS = 1 << 16  # client numbers with different arrivals: the state takes 16 bits of them
# Places of consecutive clients in a list are the golden section of it apart, so that those of a reading
# are spread over it (multiplicative hashing: Knuth, The Art of Computer Programming 3, 6.4).
SPREAD = 40503

_MULTIPLIER, _INCREMENT, _MODULUS = 0x5DEECE66D, 0xB, 1 << 48  # POSIX drand48


def unit_span(client: int, gaps: int) -> float:
    """The sum of the first ``gaps`` exponential gaps of mean one that this client number draws."""
    state = (
        ((0x9ABC ^ (~client & 0xFFFF)) << 32)
        | ((0x5678 ^ ((client << 8) & 0xFFFF)) << 16)
        | (0x1234 ^ (client & 0xFFFF))
    )
    span = 0.0
    for _ in range(gaps):
        state = (_MULTIPLIER * state + _INCREMENT) % _MODULUS
        span -= log(1.0 - state / _MODULUS)
    return span


def mean_gap(client: int, requests: int, rate: float) -> float:
    """The ``--period`` in seconds with which ``requests`` go out at exactly ``rate`` per second.

    The first one goes out at once, so there is one gap less than there are requests.
    """
    if requests < 2:
        return 1.0 / rate
    return (requests - 1) / rate / unit_span(client, requests - 1)


ERRORS = {
    "client-timo": "timeout",
    "socket-timo": "timeout",
    "connrefused": "refused",
    "connreset": "reset",
    "fd-unavail": "fd-unavailable",
    "addrunavail": NO_PORT,
    "ftab-full": NO_FILE,
    "other": "other",
}
# httperf counts a connection that got no port from the kernel as "other". On standard error it names
# the first error that it does not know, by its number (EADDRNOTAVAIL).
_GOT_NO_PORT = "connection failed with unexpected error 99"

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
_ERROR_COUNT = re.compile(r"(?<![a-z-])([a-z][a-z-]{0,40}) (\d+)")


@dataclass(frozen=True)
class Printed:
    """One process's result, as httperf 0.9.0 prints it with ``-v -v``.

    ``lifetimes`` maps upper edges in seconds to counts of every connection with a complete answer,
    whatever its status; ``connections`` leaves out those never opened for want of a descriptor.
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
        total, error_lines = _TOTAL.search(printed), _ERROR_LINE.findall(printed)
        if total is None or len(error_lines) < 2:  # a whole result ends with two lines of errors
            return None
        errors: Counter[str] = Counter()
        for name, count in _ERROR_COUNT.findall(" ".join(error_lines)):
            if kind := ERRORS.get(name):
                errors[kind] += whole(count)
        if _GOT_NO_PORT in printed:
            errors[NO_PORT] += errors.pop("other", 0)
        histogram, status = _HISTOGRAM.search(printed), _STATUS.search(printed)
        longest, content, burst = (
            pattern.search(printed) for pattern in (_LONGEST, _CONTENT, _BURST)
        )
        bins = _BIN.findall(histogram[1]) if histogram else []
        return cls(
            connections=whole(total[1]),
            requests=whole(total[2]),
            replies=whole(total[3]),
            duration=decimal(total[4]),
            lifetimes={round((decimal(at) + 0.5) / 1000, 6): whole(count) for at, count in bins},
            statuses={k: whole(n) for k, n in _STATUS_COUNT.findall(status[1])} if status else {},
            errors=errors,
            longest=decimal(longest[1]) / 1000 if longest else 0.0,
            content=decimal(content[1]) if content else None,
            burst=whole(burst[1]) if burst else 0,
        )


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"})
CLOSED_AFTER = ("Connection", "close")
MOST_SESSIONS, MOST_URIS = 1000, 10_000  # in a log of sessions (its own limit), in a list
Listed = TypeVar("Listed")
LIMITS = Limits(open_connections=1000, rate=6000.0)  # FD_SETSIZE is 1024; about 12 000/s at most
WAITED_LIMITS = 5.0  # latency limits that a process's connections must suffice for …
ENOUGH = 10.0  # … and the most that it may hold connections for, if it has so many
LEAST_OPEN = 64
OTHER_DESCRIPTORS = 16
STOPPED = "the load generator was stopped before it had sent the load"


@dataclass(frozen=True)
class Httperf(Load):
    """Debian's httperf 0.9.0 (httperf.github.io), each process bounded by ``timeout``.

    With ``uris`` or ``steps``, these are asked for in turn instead of the request's path, each process
    beginning at another place, a new one in every reading.
    """

    uris: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    name = "httperf"
    packages = ("httperf",)
    limits = LIMITS
    unchecked = (
        "httperf sends no server name in TLS and looks at no certificate: the probe does both"
    )
    methods = METHODS

    def asking(self, visits: tuple[Visit, ...]) -> Load:
        for step in (step for visit in visits for step in visit.steps):
            if step.method not in METHODS:
                raise Unusable(f"httperf sends no {step.method}")
        if all(visit.steps[0].method == "GET" for visit in visits):
            return Httperf(uris=tuple(v.steps[0].path for v in slots(visits, MOST_URIS)))
        return Httperf(steps=tuple(v.steps[0] for v in slots(visits, MOST_SESSIONS)))

    def processes(self, request: Request, spec: LoadSpec, hosts: int = 1) -> tuple[Process, ...]:
        lasting = min(WAITED_LIMITS * spec.limit, spec.timeout)
        count = max(
            hosts,
            ceil(spec.rate * lasting / self.limits.open_connections),
            ceil(spec.rate / self.limits.rate),
        )
        count = min(count, spec.requests)
        first = secrets.randbelow(CLIENTS) if spec.seed is None else spec.seed * count
        return tuple(self._process(request, spec, first, i, count) for i in range(count))

    def _process(
        self, request: Request, spec: LoadSpec, first: int, index: int, count: int
    ) -> Process:
        rate = spec.rate / count
        requests = spec.requests // count + (index < spec.requests % count)
        client = (first + index) % CLIENTS
        gap = mean_gap(client, requests, rate)
        held = ceil(rate * min(ENOUGH * spec.limit, spec.timeout))
        held = min(self.limits.open_connections, max(LEAST_OPEN, held))
        span = (requests - 1) / rate
        bound = ceil(1.5 * span + 2 * spec.timeout + 2)  # a timeout each to connect and to answer
        argv = command(request, spec, client, gap, held, bound)
        if steps := self._steps(request, client):
            listed = "\n\n".join(map(session_line, steps)) + "\n"
            argv = with_file(argv, f"--wsesslog={requests},0,")
            return Process(argv, requests, span, bound + 1.0, held, input=listed.encode())
        argv = (*argv, "--uri", request.path, f"--num-conns={requests}", "--num-calls=1")
        plain = Process(argv, requests, span, bound + 1.0, held)
        if not self.uris:
            return plain
        listed = "".join(f"{uri}\0" for uri in _from(self.uris, client))
        return replace(plain, argv=with_file(argv, "--wlog=y,"), input=listed.encode())

    def _steps(self, request: Request, client: int) -> tuple[Step, ...]:
        """What only a log of sessions can say: bodies, and methods that differ."""
        if self.steps or request.body is None:
            return _from(self.steps, client)
        return (Step(path=request.path, method=request.method, body=request.body),)

    def read(self, process: Process, printed: str, request: Request, spec: LoadSpec) -> LoadResult:
        output = Printed.read(printed)
        if output is None:
            return no_result(process, printed)
        result = counted(output, process.requests)
        if request.expect is not None:
            result = result.reclassify("wrong body", wrong_by_size(output, len(request.expect)))
        return checked(result, output, process, spec)


def _from(listed: tuple[Listed, ...], client: int) -> tuple[Listed, ...]:
    """A list from a place of the client's own on, far from those of the clients beside it."""
    at = len(listed) * (client * SPREAD % CLIENTS) // CLIENTS
    return (*listed[at:], *listed[:at])


def command(
    request: Request, spec: LoadSpec, client: int, gap: float, held: int, bound: int
) -> Argv:
    """httperf as ``client``, with exponential gaps of the mean ``gap`` and ``held`` connections.

    It ends by itself even if nobody is left to stop it; on SIGINT it prints what it has. Its warnings
    are read with its results.
    """
    return (
        "sh", "-c", 'exec "$@" 2>&1', "sh", "prlimit", f"--nofile={held + OTHER_DESCRIPTORS}",
        "timeout", "--signal=INT", "--kill-after=1", str(bound),
        "httperf", "-v", "-v", f"--client={client}/{CLIENTS}",
        "--server", request.endpoint.host, "--port", str(request.endpoint.port),
        f"--period=e{gap:.12f}", f"--timeout={spec.timeout:g}", *options(request),
    )  # fmt: skip


def options(request: Request) -> Argv:
    """httperf's options for a request, without its path.

    Each connection is a visitor's first one, so none resumes a TLS session. Over TLS the server is
    asked to close the connection: httperf reads 8 KB of a TLS record whenever the connection becomes
    readable, and would wait for the rest until the timeout (`do_recv` in ``core.c``).
    """
    options = ["--ssl", "--ssl-no-reuse"] if request.tls else []
    if request.authority:
        options += ["--server-name", request.authority]
    if request.method != "GET":
        options += ["--method", request.method]
    headers = request.headers
    if request.tls and not any(name.lower() == "connection" for name, _ in headers):
        headers = (*headers, CLOSED_AFTER)
    if headers:
        lines = "".join(f"{escaped(name)}: {escaped(value)}\\n" for name, value in headers)
        options += ["--add-header", lines]
    return tuple(options)


def no_result(process: Process, printed: str) -> LoadResult:
    return LoadResult.nothing(process.requests, f"httperf printed no result: {last_line(printed)}")


def counted(output: Printed, intended: int) -> LoadResult:
    """Every intended request either answered right or an error of one kind."""
    errors = Counter(output.errors)
    statuses = {kind: n for kind, n in output.statuses.items() if kind != "2xx"}
    answers, wrong = sum(output.lifetimes.values()), sum(statuses.values())
    ok = min(output.statuses.get("2xx", 0), max(0, answers - wrong))
    missing = intended - ok - wrong - sum(errors.values())
    for kind in ("reset", "other", "timeout"):
        # An answer counts as an answer if its connection failed only after it was complete.
        surplus = min(max(0, -missing), errors[kind])
        errors[kind] -= surplus
        missing += surplus
    unsent = max(0, min(missing, intended - output.connections - errors["fd-unavailable"]))
    errors.update({**statuses, "not sent": unsent, "unanswered": max(0, missing - unsent)})
    return LoadResult(
        intended=intended,
        sent=output.requests,
        errors={kind: n for kind, n in errors.items() if n},
        histogram=without_fastest(output.lifetimes, answers - ok),
        duration=output.duration,
    )


def wrong_by_size(output: Printed, expected: int) -> int:
    """How many bodies were wrong, going by the mean size of all of them; 0 when it is as expected.

    An estimate: it takes a wrong body for an empty one (or one of twice the size). The mean covers
    answers of all kinds and has one decimal, so it says nothing once there are error pages.
    """
    right = output.statuses.get("2xx", 0)
    if output.content is None or right == 0 or right != output.replies:
        return 0
    off = abs(output.content - expected)
    if off <= 0.051:
        return 0
    return max(1, ceil(right * min(1.0, off / max(1, expected))))


def checked(result: LoadResult, output: Printed, process: Process, spec: LoadSpec) -> LoadResult:
    """The result with the reason why it says nothing about the server, if there is one.

    On a machine that it shares with overloaded servers httperf starves with them. Then the answers
    decide: those later than the limit by more than twice the longest stall (``lag``) were late
    because of the server, at *less* load than ordered, so it fails the ordered load as well.
    """
    if short := result.without_means():
        return short
    lag = max(0, output.burst - 1) * process.span / max(1, process.requests - 1)
    if not _fell_short(result, output, process, spec, lag):
        return replace(result, truncated="unanswered" in result.errors)
    unmade = sum(
        result.errors.get(kind, 0) for kind in ("fd-unavailable", "not sent", "unanswered")
    )
    stopped = result.errors.get("not sent") and output.duration < process.span
    return result.fallen_short(spec.limit, lag, unmade, STOPPED if stopped else BEHIND)


def _fell_short(
    result: LoadResult, output: Printed, process: Process, spec: LoadSpec, lag: float
) -> bool:
    """Whether the ordered load was not made: not all of it, not in time, or in one burst.

    httperf does not print when the last request went out, but that was no earlier than the longest
    wait before the end. Nor was the load made if a burst of httperf's own used up its connections.
    """
    if result.errors.get("not sent") or lag > STALL * process.span + spec.limit:
        return True
    if result.errors.get("fd-unavailable") and output.burst > process.open_connections / 2:
        return True
    timed_out = result.errors.get("timeout", 0) > 0
    longest = 2 * spec.timeout if timed_out else output.longest
    return output.duration - longest > process.span / ACHIEVED + 0.010
