"""httperf: an open loop with one request per new connection and Poisson arrivals.

Number of processes: httperf polls without sleeping, so each process takes all spare CPU time of a core.
On a shared machine, the servers need this CPU time, so autotune starts as few processes as possible. A
process opens up to ``PROCESS_LIMITS.max_rate`` connections/s, and FD_SETSIZE limits it to about a
thousand open connections. A process needs connections for the requests that arrive within
``MIN_HELD_LIMITS`` latency limits, not within the timeout. If all connections are in use, the objective
is certainly missed, because the average request waits several latency limits (Little's law). A request
that is not sent for lack of a connection (``fd-unavailable``) is a violation, because its response would
have been late. ``prlimit`` sets the number of connections, which also bounds the queue in a reading.

No due request is skipped. If httperf lacks CPU time, it sends due requests later in one burst
(``Maximum connect burst length``). If httperf does not catch up by the end, or if one burst is a large
share of the reading, the requested load was not sent (``limited``). If the server failed even under the
load that was sent, the reading is ``truncated`` instead.

Arrivals are predictable: ``--period=e<mean>`` draws exponential gaps with ``erand48``, whose state
httperf 0.9 sets from the client's number alone (``rate_generator_start`` in ``gen/rate.c``). The
same client number therefore has the same arrivals in every reading. The *achieved* mean rate of n
arrivals deviates from the nominal rate by 1/√n (1.8 % for 3000). autotune therefore scales the mean
gap such that exactly n requests are sent in the requested time: a Poisson process, conditioned on
its count. For few requests at a low rate, n is drawn from the Poisson distribution. With a fixed n,
early arrivals would compensate for late arrivals, and a short reading would hide the queues that
random arrivals cause.
"""

from __future__ import annotations

import random
import re
import secrets
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, isfinite, log
from typing import TypeVar

from autotune.loads.base import (
    FELL_BEHIND_MESSAGE,
    MAX_STALL_SHARE,
    MIN_ACHIEVED_SHARE,
    NO_FILE_ERROR,
    NO_PORT_ERROR,
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    ProcessLimits,
    WrongAnswers,
    drop_fastest,
    find_last_line,
    with_input_file,
)
from autotune.loads.workload import (
    UnusableWorkload,
    escape_text,
    expand_visits,
    format_session_line,
)
from autotune.services.base import Argv
from autotune.strict_parsing import parse_decimal, parse_uint
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.request import Request

# Below both limits (requests, and requests/s), a reading has a random number of requests. With
# FEW_REQUESTS or more, a random number of requests would have an sd of at most 5 %. At SLOW_RATE or
# more, the queue settles within the reading.
FEW_REQUESTS, SLOW_RATE = 400, 20.0
# number of clients with different arrivals, which depend on 16 bits of a client's number
CLIENT_NUMBERS = 1 << 16
# Consecutive clients start at distant positions in the list of requests, at multiples of the golden
# section, so that a reading covers the whole list. See Knuth, Volume 3, section 6.4.
CLIENT_SPACING = 40503

_MULTIPLIER, _INCREMENT, _MODULUS = 0x5DEECE66D, 0xB, 1 << 48  # POSIX drand48


def sum_unit_gaps(client: int, gap_count: int) -> float:
    """Return the sum of the first ``gap_count`` exponential gaps of ``client``. Their mean is one."""
    generator_state = (
        ((0x9ABC ^ (~client & 0xFFFF)) << 32)
        | ((0x5678 ^ ((client << 8) & 0xFFFF)) << 16)
        | (0x1234 ^ (client & 0xFFFF))
    )
    gap_sum = 0.0
    for _ in range(gap_count):
        generator_state = (_MULTIPLIER * generator_state + _INCREMENT) % _MODULUS
        gap_sum -= log(1.0 - generator_state / _MODULUS)
    return gap_sum


def draw_request_count(spec: LoadSpec) -> int:
    """Return the number of requests to send, at most ``spec.max_rate`` per second.

    For few requests at a low rate, the number is drawn from the Poisson distribution, unless
    ``spec.seed`` requires repeatable arrivals.
    """
    mean_request_count, max_requests = spec.rate * spec.seconds, spec.max_rate * spec.seconds
    max_count = max(1, floor(max_requests + 1e-9)) if isfinite(max_requests) else sys.maxsize
    if mean_request_count >= FEW_REQUESTS or spec.rate >= SLOW_RATE or spec.seed is not None:
        return min(spec.request_count, max_count)
    random_source, count = random.SystemRandom(), 0
    arrival_time = random_source.expovariate(1.0)
    while arrival_time < mean_request_count:
        count, arrival_time = count + 1, arrival_time + random_source.expovariate(1.0)
    return max(1, min(count, max_count))


def compute_mean_gap(client: int, requests: int, rate: float) -> float:
    """Return the ``--period`` (seconds) with which ``requests`` are sent at exactly ``rate`` per
    second.

    The first request is sent at once, so there is one gap fewer than there are requests.
    """
    if requests < 2:
        return 1.0 / rate
    return (requests - 1) / rate / sum_unit_gaps(client, requests - 1)


ERROR_KINDS = {
    "client-timo": "timeout",
    "socket-timo": "timeout",
    "connrefused": "refused",
    "connreset": "reset",
    "fd-unavail": "fd-unavailable",
    "addrunavail": NO_PORT_ERROR,
    "ftab-full": NO_FILE_ERROR,
    "other": "other",
}
# httperf counts a connection that gets no client port as "other", and prints the number of the
# first unexpected error (EADDRNOTAVAIL).
_NO_PORT_TEXT = "connection failed with unexpected error 99"
# httperf exits without figures after the first TLS handshake that fails.
_FAILED_HANDSHAKE_TEXT = "failed to connect to SSL server"

_HISTOGRAM_PATTERN = re.compile(
    r"^Connection lifetime histogram.*\n((?: +(?::|[\d.]+ \d+)\n)*)", re.M
)
_BIN_PATTERN = re.compile(r"^ +([\d.]+) (\d+)$", re.M)
_TOTAL_PATTERN = re.compile(
    r"^Total: connections (\d+) requests (\d+) replies (\d+) test-duration ([\d.]+) s", re.M
)
_MAX_TIME_PATTERN = re.compile(r"^Connection time \[ms\]: min [\d.]+ avg [\d.]+ max ([\d.]+)", re.M)
_CONTENT_PATTERN = re.compile(r"^Reply size \[B\]: header [\d.]+ content ([\d.]+)", re.M)
_STATUS_PATTERN = re.compile(r"^Reply status: (.+)$", re.M)
_STATUS_COUNT_PATTERN = re.compile(r"(\dxx)=(\d+)")
_BURST_PATTERN = re.compile(r"^Maximum connect burst length: (\d+)", re.M)
_ERROR_LINE_PATTERN = re.compile(r"^Errors: (.+)$", re.M)
_ERROR_COUNT_PATTERN = re.compile(r"(?<![a-z-])([a-z][a-z-]{0,40}) (\d+)")


@dataclass(frozen=True)
class HttperfOutput:
    """The result of one process, as httperf 0.9.0 prints it with ``-v -v``.

    - ``lifetimes`` maps upper edges of bins in seconds to counts of connections with a complete
      response of any status. ``connections`` excludes connections that were never opened for lack
      of a descriptor.
    - ``mean_body_bytes`` is the mean body size, and ``max_lifetime`` the longest lifetime of a
      connection with a response (seconds).
    - ``duration`` is the duration of the whole test (seconds), and ``max_burst`` the largest number
      of connections opened at once.
    """

    connections: int
    requests: int
    replies: int
    duration: float
    lifetimes: Mapping[float, int] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    max_lifetime: float = 0.0
    mean_body_bytes: float | None = None
    max_burst: int = 0

    @classmethod
    def parse(cls, output: str) -> HttperfOutput | None:
        """Return the result; ``None`` if httperf was killed, did not start, or could not complete a
        TLS handshake.
        """
        total_match = _TOTAL_PATTERN.search(output)
        error_lines = _ERROR_LINE_PATTERN.findall(output)
        # A complete result ends with two lines of errors.
        if total_match is None or len(error_lines) < 2:
            return None
        errors: Counter[str] = Counter()
        for name, count in _ERROR_COUNT_PATTERN.findall(" ".join(error_lines)):
            if error_kind := ERROR_KINDS.get(name):
                errors[error_kind] += parse_uint(count)
        if _NO_PORT_TEXT in output:
            errors[NO_PORT_ERROR] += errors.pop("other", 0)
        histogram, status = _HISTOGRAM_PATTERN.search(output), _STATUS_PATTERN.search(output)
        longest_match, content_match, burst_match = (
            pattern.search(output)
            for pattern in (_MAX_TIME_PATTERN, _CONTENT_PATTERN, _BURST_PATTERN)
        )
        bins = _BIN_PATTERN.findall(histogram[1]) if histogram else []
        return cls(
            connections=parse_uint(total_match[1]),
            requests=parse_uint(total_match[2]),
            replies=parse_uint(total_match[3]),
            duration=parse_decimal(total_match[4]),
            lifetimes={
                round((parse_decimal(at) + 0.5) / 1000, 6): parse_uint(count) for at, count in bins
            },
            statuses={k: parse_uint(n) for k, n in _STATUS_COUNT_PATTERN.findall(status[1])}
            if status
            else {},
            errors=errors,
            max_lifetime=parse_decimal(longest_match[1]) / 1000 if longest_match else 0.0,
            mean_body_bytes=parse_decimal(content_match[1]) if content_match else None,
            max_burst=parse_uint(burst_match[1]) if burst_match else 0,
        )


SUPPORTED_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"})
CLOSE_HEADER = ("Connection", "close")
MAX_SESSIONS = 1000  # maximum number of sessions in a session log, a limit of httperf
# maximum length of a line in a session log; httperf would send the rest of the line as another request
MAX_LINE_BYTES = 9998
# number of visits in a list of weighted visits; a longer file is used completely
MAX_LISTED_VISITS = 10_000
ListItem = TypeVar("ListItem")
PROCESS_LIMITS = ProcessLimits(
    open_connections=1000, max_rate=6000.0
)  # FD_SETSIZE is 1024; a process reaches about 12,000/s at most
MAX_HELD_LIMITS = 10.0
MIN_OPEN_CONNECTIONS = 64
OTHER_DESCRIPTORS = 16
STOPPED_MESSAGE = "the load generator was stopped before it sent all requests"


@dataclass(frozen=True)
class HttperfGenerator(LoadGenerator):
    """Debian's httperf 0.9.0 (httperf.github.io). ``timeout`` bounds each process.

    ``uris`` or ``steps`` are requested in order, instead of the request's path. Each process and
    each reading starts at a different position in the list.
    """

    uris: tuple[str, ...] = ()
    steps: tuple[SessionStep, ...] = ()
    name = "httperf"
    packages = ("httperf",)
    limits = replace(PROCESS_LIMITS, closes_connections=True)
    ipv6 = False
    unchecked_tls = (
        "httperf sends no server name in TLS and checks no certificate; the probe does both"
    )
    supported_methods = SUPPORTED_METHODS
    counts_incomplete_bodies = True

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        check_steps(visits)
        is_plain = all(
            step.method == "GET" and step.expect is None for v in visits for step in v.session_steps
        )
        steps = tuple(visit.session_steps[0] for visit in list_visits(visits))
        if is_plain:
            return HttperfGenerator(uris=tuple(step.path for step in steps))
        return HttperfGenerator(steps=steps)

    def find_request_error(self, step: SessionStep) -> str | None:
        return find_request_error(step)

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        steps = self.steps or tuple(SessionStep(path=uri) for uri in self.uris)
        return tuple((step, 1.0) for step in steps) or super().list_steps(request)

    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        connection_seconds = spec.held_seconds
        count = max(
            hosts,
            ceil(spec.rate * connection_seconds / self.limits.open_connections),
            ceil(spec.rate / self.limits.max_rate),
        )
        requests = draw_request_count(spec)
        if requests != spec.request_count:
            spec = replace(spec, rate=min(spec.max_rate, requests / spec.seconds))
        count = min(count, requests)
        first_client = secrets.randbelow(CLIENT_NUMBERS) if spec.seed is None else spec.seed * count
        return tuple(
            self._build_process(request, spec, first_client, i, count, requests)
            for i in range(count)
        )

    def _build_process(
        self,
        request: Request,
        spec: LoadSpec,
        first_client: int,
        index: int,
        process_count: int,
        total_requests: int,
    ) -> LoadProcess:
        rate = spec.rate / process_count
        requests = total_requests // process_count + (index < total_requests % process_count)
        client = (first_client + index) % CLIENT_NUMBERS
        gap = compute_mean_gap(client, requests, rate)
        open_connections = self._count_open_connections(rate, spec)
        span_seconds = (requests - 1) / rate
        # one timeout to connect, and one for the response
        max_run_seconds = ceil(1.5 * span_seconds + 2 * spec.timeout + 2)
        argv = build_command(request, spec, client, gap, open_connections, max_run_seconds)
        if steps := self._list_session_steps(request, client):
            session_log = "\n\n".join(map(format_session_line, steps)) + "\n"
            argv = with_input_file(argv, f"--wsesslog={requests},0,")
            return LoadProcess(
                argv,
                requests,
                span_seconds,
                max_run_seconds + 1.0,
                open_connections,
                input=session_log.encode(),
                max_rate=rate,
            )
        argv = (*argv, "--uri", request.path, f"--num-conns={requests}", "--num-calls=1")
        plain_process = LoadProcess(
            argv, requests, span_seconds, max_run_seconds + 1.0, open_connections, max_rate=rate
        )
        if not self.uris:
            return plain_process
        uri_list = "".join(f"{uri}\0" for uri in rotate_for_client(self.uris, client))
        return replace(
            plain_process, argv=with_input_file(argv, "--wlog=y,"), input=uri_list.encode()
        )

    def _count_open_connections(self, rate: float, spec: LoadSpec) -> int:
        """Return the maximum number of connections that may be open at ``rate`` requests/s."""
        expected_count = ceil(rate * min(MAX_HELD_LIMITS * spec.latency_limit, spec.timeout))
        return min(self.limits.open_connections, max(MIN_OPEN_CONNECTIONS, expected_count))

    def _list_session_steps(self, request: Request, client: int) -> tuple[SessionStep, ...]:
        """Return the requests for a session log, or an empty result if command-line options can
        express the request. A part of a long list is requested, starting at the client's position.
        """
        if self.steps or request.body is None:
            return rotate_for_client(self.steps, client)[:MAX_SESSIONS]
        return (SessionStep(path=request.path, method=request.method, body=request.body),)

    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        parsed_output = HttperfOutput.parse(output)
        if parsed_output is None:
            return build_failure(process, output)
        result = build_result(parsed_output, process.request_count, request.status_classes)
        if request.expected_body is not None:
            wrong_count = count_wrong_sizes(parsed_output, len(request.expected_body))
            result = result.reclassify(WrongAnswers("wrong body", wrong_count))
        return check_result(result, parsed_output, process, spec)


def find_request_error(step: SessionStep) -> str | None:
    """Return why httperf cannot send a request; ``None`` if it can send the request."""
    if step.method not in SUPPORTED_METHODS:
        return f"httperf cannot send {step.method}"
    line_bytes = len(format_session_line(step).encode())
    if line_bytes > MAX_LINE_BYTES:
        return f"httperf reads at most {MAX_LINE_BYTES} bytes per request, not {line_bytes}"
    return None


def check_steps(visits: Sequence[WeightedVisit]) -> None:
    """Raise UnusableWorkload if httperf cannot send one of the requests."""
    for index, visit in enumerate(visits):
        for step in visit.session_steps:
            if reason := find_request_error(step):
                hint = "write `load: {generator: k6, requests: FILE}`"
                raise UnusableWorkload(reason, hint=hint, index=index)


def list_visits(visits: Sequence[WeightedVisit]) -> tuple[WeightedVisit, ...]:
    """Return the visits as a list in which each visit is repeated in proportion to its weight."""
    return expand_visits(visits, max(MAX_LISTED_VISITS, len(visits)))


def rotate_for_client(items: tuple[ListItem, ...], client: int) -> tuple[ListItem, ...]:
    """Return a list that is rotated to the client's own position, far from the positions of
    adjacent clients.
    """
    start_index = len(items) * (client * CLIENT_SPACING % CLIENT_NUMBERS) // CLIENT_NUMBERS
    return (*items[start_index:], *items[:start_index])


def build_command(
    request: Request,
    spec: LoadSpec,
    client: int,
    gap: float,
    open_connections: int,
    stop_seconds: int,
) -> Argv:
    """Return the command for ``client``, with exponential gaps whose mean is ``gap``.

    httperf exits by itself after the last request. On SIGINT, httperf prints its results so far.
    The command's output also contains httperf's warnings.
    """
    return (
        "sh", "-c", 'exec "$@" 2>&1', "sh", "prlimit", f"--nofile={open_connections + OTHER_DESCRIPTORS}",
        "timeout", "--signal=INT", "--kill-after=1", str(stop_seconds),
        "httperf", "-v", "-v", f"--client={client}/{CLIENT_NUMBERS}",
        "--server", request.endpoint.host, "--port", str(request.endpoint.port),
        f"--period=e{gap:.12f}", f"--timeout={spec.timeout:g}", *build_options(request),
    )  # fmt: skip


def build_options(request: Request) -> Argv:
    """Return httperf's options for a request, except its path.

    Each connection represents a new visitor, so no connection resumes a TLS session. Over TLS, the
    server must close the connection. On an open connection, httperf would read only 8 KB of a TLS
    record, and wait for the rest until the timeout (`do_recv` in ``core.c``).
    """
    options = ["--ssl", "--ssl-no-reuse"] if request.tls else []
    if request.authority:
        options += ["--server-name", request.authority]
    if request.method != "GET":
        options += ["--method", request.method]
    headers = request.headers
    if request.tls and not any(name.lower() == "connection" for name, _ in headers):
        headers = (*headers, CLOSE_HEADER)
    if headers:
        header_lines = "".join(
            f"{escape_text(name)}: {escape_text(value)}\\n" for name, value in headers
        )
        options += ["--add-header", header_lines]
    return tuple(options)


def build_failure(process: LoadProcess, output: str) -> LoadResult:
    """Return the result of a process that printed no figures.

    After a failed TLS handshake, all requests count as errors of the server, because httperf sends no
    further requests.
    """
    if _FAILED_HANDSHAKE_TEXT in output:
        return LoadResult(
            process.request_count, errors={"reset": process.request_count}, truncated=True
        )
    return LoadResult.build_unsent_result(
        process.request_count, f"httperf printed no result: {find_last_line(output)}"
    )


def build_result(
    output: HttperfOutput, intended: int, status_classes: frozenset[str] = frozenset({"2xx"})
) -> LoadResult:
    """Return the result of one process. Each intended request counts either as a correct response
    or as one error.
    """
    errors = Counter(output.errors)
    statuses = {kind: n for kind, n in output.statuses.items() if kind not in status_classes}
    answer_count, wrong_count = sum(output.lifetimes.values()), sum(statuses.values())
    right_count = sum(n for kind, n in output.statuses.items() if kind in status_classes)
    ok_answer_count = min(right_count, max(0, answer_count - wrong_count))
    missing_count = intended - ok_answer_count - wrong_count - sum(errors.values())
    for kind in ("reset", "other", "timeout"):
        # A complete response counts, even if its connection failed later.
        surplus_errors = min(max(0, -missing_count), errors[kind])
        errors[kind] -= surplus_errors
        missing_count += surplus_errors
    unsent_count = max(
        0, min(missing_count, intended - output.connections - errors["fd-unavailable"])
    )
    errors.update(
        {**statuses, "not sent": unsent_count, "unanswered": max(0, missing_count - unsent_count)}
    )
    return LoadResult(
        intended=intended,
        sent=output.requests,
        errors={kind: n for kind, n in errors.items() if n},
        histogram=drop_fastest(output.lifetimes, answer_count - ok_answer_count),
        duration=output.duration,
        sizes=find_mean_sizes(output, right_count),
    )


def find_mean_sizes(output: HttperfOutput, right_answers: int) -> dict[float, int]:
    """Return the number of bodies by mean size; empty if a response had an incorrect status."""
    if output.mean_body_bytes is None or not right_answers or right_answers != output.replies:
        return {}
    return {output.mean_body_bytes: right_answers}


def count_wrong_sizes(output: HttperfOutput, expected_bytes: int) -> int:
    """Estimate the number of wrong bodies from the mean size of all bodies; 0 if the mean is as
    expected.

    The estimate assumes that wrong bodies are empty (or twice as large). The result is 0 if there
    are error pages, because the mean includes them.
    """
    right_count = output.statuses.get("2xx", 0)
    if output.mean_body_bytes is None or right_count == 0 or right_count != output.replies:
        return 0
    deviation_bytes = abs(output.mean_body_bytes - expected_bytes)
    if deviation_bytes <= 0.051:
        return 0
    return max(1, ceil(right_count * min(1.0, deviation_bytes / max(1, expected_bytes))))


def check_result(
    result: LoadResult, output: HttperfOutput, process: LoadProcess, spec: LoadSpec
) -> LoadResult:
    """Return the result, marked as limited or truncated if the requested load was not sent.

    If httperf lacks CPU time on a machine that it shares with overloaded servers, the latencies decide
    whether the result is valid. If responses exceed the latency limit by more than twice the longest
    stall, the server caused the delay, at *less* load than requested. The server would therefore fail
    under the requested load as well.
    """
    if exhausted_result := result.as_exhausted_host():
        return exhausted_result
    lag_seconds = (
        max(0, output.max_burst - 1) * process.span_seconds / max(1, process.request_count - 1)
    )
    if not _is_incomplete(result, output, process, spec, lag_seconds):
        return replace(result, truncated="unanswered" in result.errors)
    unmade_requests = sum(
        result.errors.get(kind, 0) for kind in ("fd-unavailable", "not sent", "unanswered")
    )
    was_stopped = result.errors.get("not sent") and output.duration < process.span_seconds
    return result.as_incomplete_load(
        spec.latency_limit,
        lag_seconds,
        unmade_requests,
        STOPPED_MESSAGE if was_stopped else FELL_BEHIND_MESSAGE,
    )


def _is_incomplete(
    result: LoadResult,
    output: HttperfOutput,
    process: LoadProcess,
    spec: LoadSpec,
    lag_seconds: float,
) -> bool:
    """True unless the requested load was sent completely, on time and without a large burst.

    httperf does not print when it sent the last request. The time from the last request to the end
    of the run is at most the longest wait for a response. The load is also incomplete if one burst
    of httperf used up its connections.
    """
    if (
        result.errors.get("not sent")
        or lag_seconds > MAX_STALL_SHARE * process.span_seconds + spec.latency_limit
    ):
        return True
    if result.errors.get("fd-unavailable") and output.max_burst > process.open_connections / 2:
        return True
    has_timed_out = result.errors.get("timeout", 0) > 0
    # a session with pauses lasts longer than the timeouts of one request
    longest_seconds = max(2 * spec.timeout if has_timed_out else 0.0, output.max_lifetime)
    return output.duration - longest_seconds > process.span_seconds / MIN_ACHIEVED_SHARE + 0.010
