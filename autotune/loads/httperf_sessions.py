"""httperf with sessions: an open loop of sessions, each with several requests and pauses on one
connection.

httperf prints the duration of each session, but only a mean duration of requests. Sessions of one
kind (the same number of calls and the same sum of pauses) therefore share a process. A request's
latency is the mean latency in its session: the session's duration without pauses, divided by the
number of calls. If a session is late, every request in it counts as late. The rate is in requests/s;
sessions start at the corresponding rate.

Each request that a failed session did not send counts as a violation.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from dataclasses import dataclass, replace
from math import ceil

from autotune.loads.base import (
    ABANDONED_ERROR,
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    WrongAnswers,
    drop_fastest,
    sort_counts,
    with_input_file,
)
from autotune.loads.httperf import (
    CLIENT_NUMBERS,
    MAX_SESSIONS,
    PROCESS_LIMITS,
    HttperfOutput,
    build_command,
    build_failure,
    check_result,
    check_steps,
    compute_mean_gap,
    find_mean_sizes,
    list_visits,
    rotate_for_client,
)
from autotune.loads.workload import SessionKind, group_sessions
from autotune.strict_parsing import parse_uint
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.request import Request

_SESSION_COUNT_PATTERN = re.compile(r"^Session rate \[sess/s\]:.*\((\d+)/(\d+)\)$", re.M)


@dataclass(frozen=True, kw_only=True)
class SessionProcess(LoadProcess):
    """A process that starts sessions of one kind. ``request_count`` is the number of requests in
    all sessions.
    """

    kind: SessionKind

    @property
    def session_count(self) -> int:
        return self.request_count // self.kind.request_count


@dataclass(frozen=True)
class SessionGenerator(LoadGenerator):
    """Debian's httperf 0.9.0 with ``--wsesslog``: for each kind of session, at least one process on
    each load host.
    """

    visits: tuple[WeightedVisit, ...] = ()
    kinds: tuple[SessionKind, ...] = ()
    name = "httperf"
    packages = ("httperf",)
    limits = PROCESS_LIMITS

    @property
    def longest_pause(self) -> float:
        return max((kind.think_seconds for kind in self.kinds), default=0.0)

    @property
    def total_requests(self) -> int:
        """Return the number of requests in all sessions of the list."""
        return sum(kind.request_count * kind.session_count for kind in self.kinds)

    @property
    def min_requests(self) -> float:
        # enough for one session of the most frequent kind
        return self.total_requests / max((kind.session_count for kind in self.kinds), default=1)

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        """Return the generator with a session for each visit and one request per burst."""
        check_steps(visits)
        return SessionGenerator(visits, group_sessions(list_visits(visits)))

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        return tuple((step, visit.weight) for visit in self.visits for step in visit.session_steps)

    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        first_client = secrets.randbelow(CLIENT_NUMBERS) if spec.seed is None else spec.seed
        processes: list[LoadProcess] = []
        for kind in self.kinds:
            rate = spec.rate * kind.session_count / self.total_requests  # sessions/s
            held_seconds = kind.think_seconds + kind.request_count * spec.held_seconds
            process_count = max(hosts, ceil(rate * held_seconds / self.limits.open_connections))
            sessions = int(rate * spec.seconds + 1e-9)
            process_count = min(
                process_count, sessions
            )  # leaves out a kind if no complete session fits into the reading
            for index in range(process_count):
                own_sessions = sessions // process_count + (index < sessions % process_count)
                client = (first_client + len(processes)) % CLIENT_NUMBERS
                processes.append(
                    _build_process(request, spec, kind, client, own_sessions, rate / process_count)
                )
        return tuple(processes)

    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        parsed_output, success_match = (
            HttperfOutput.parse(output),
            _SESSION_COUNT_PATTERN.search(output),
        )
        if (
            parsed_output is None
            or success_match is None
            or not isinstance(process, SessionProcess)
        ):
            return build_failure(process, output)
        result = _build_result(
            parsed_output, parse_uint(success_match[1]), process, request.status_classes
        )
        # httperf reports arrivals, bursts and stalls of sessions, not of requests.
        return check_result(
            result, parsed_output, replace(process, request_count=process.session_count), spec
        )


def _build_process(
    request: Request, spec: LoadSpec, kind: SessionKind, client: int, sessions: int, rate: float
) -> SessionProcess:
    gap = compute_mean_gap(client, sessions, rate)
    span_seconds = max(sessions - 1, 1) / rate
    longest_seconds = kind.think_seconds + kind.request_count * spec.timeout
    open_connections = PROCESS_LIMITS.open_connections
    max_run_seconds = ceil(1.5 * span_seconds + longest_seconds + 2 * spec.timeout + 2)
    # httperf starts with the first session of its log, and a reading sends only a part of a long list.
    sent_kind = replace(kind, sessions=rotate_for_client(kind.sessions, client)[:MAX_SESSIONS])
    return SessionProcess(
        with_input_file(
            build_command(request, spec, client, gap, open_connections, max_run_seconds),
            f"--wsesslog={sessions},0,",
        ),
        sessions * kind.request_count,
        span_seconds,
        max_run_seconds + 1.0,
        open_connections,
        input=sent_kind.session_log.encode(),
        kind=kind,
        max_rate=rate * kind.request_count,
    )


def _build_result(
    output: HttperfOutput,
    succeeded_sessions: int,
    process: SessionProcess,
    status_classes: frozenset[str],
) -> LoadResult:
    """Return the requests of successful sessions, each with the mean latency of its session."""
    kind = process.kind
    # The histogram also contains failed sessions that had at least one response.
    lifetimes = drop_fastest(output.lifetimes, sum(output.lifetimes.values()) - succeeded_sessions)
    histogram: Counter[float] = Counter()
    for bin_edge, sessions in lifetimes.items():
        # The upper edge of the bin for a request's mean latency, rounded to a microsecond.
        call_seconds = round(max(0.001, bin_edge - kind.think_seconds) / kind.request_count, 6)
        histogram[call_seconds] += sessions * kind.request_count
    result = LoadResult(
        process.request_count, output.requests, {}, dict(histogram), output.duration
    )
    wrong_statuses = {k: n for k, n in output.statuses.items() if k not in status_classes and n}
    for status, count in wrong_statuses.items():
        result = result.reclassify(WrongAnswers(status, count))
    errors = Counter(result.errors)
    missing_count = process.request_count - result.right_answers - result.error_count
    for error_kind, count in output.errors.items():
        errors[error_kind] += min(missing_count, count)
        missing_count -= min(missing_count, count)
    unsent_count = min(
        missing_count, max(0, process.session_count - output.connections) * kind.request_count
    )
    errors["not sent"] += unsent_count
    errors[ABANDONED_ERROR] += missing_count - unsent_count
    right_count = sum(n for kind, n in output.statuses.items() if kind in status_classes)
    return replace(result, errors=sort_counts(errors), sizes=find_mean_sizes(output, right_count))
