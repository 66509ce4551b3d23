"""oha: an open loop with an even rate and connections that stay open.

A request that is due waits while all connections are busy. ``--latency-correction`` counts a request's
latency from its due time, so a stall counts for every request that became due during the stall. oha
prints percentiles and eleven bins, which cannot be summed over processes. oha therefore also stores
every response in an SQLite file (``--db-url``), which is appended to its output. In the SQLite file,
autotune counts late responses, wrong statuses and bodies of a wrong size.

Number of connections: if a server holds the requests that arrive in ``MIN_HELD_LIMITS`` latency limits,
the objective is certainly missed (Little's law). More connections would only lengthen the queue. A
request that is still waiting for a connection at the end is never sent. An unsent request is a violation
that the server caused, provided that oha kept its schedule. The SQLite file also shows whether oha kept
its schedule. A request's position in the file determines its due time, and its start is the time at
which oha noticed that the request was due.

By default, oha accepts compressed responses, unlike the other generators and the sample of complete
responses. Compressed bodies are smaller, so correct responses would look wrong. oha therefore accepts
compressed responses only if the target's headers do.
"""

from __future__ import annotations

import base64
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from autotune.loads.base import (
    EXHAUSTION_MESSAGES,
    MAX_STALL_SHARE,
    MIN_ACHIEVED_SHARE,
    NO_FILE_ERROR,
    NO_PORT_ERROR,
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    ProcessLimits,
    build_histogram,
    find_last_line,
    sort_counts,
    with_input_file,
)
from autotune.loads.workload import UnusableWorkload, expand_visits
from autotune.services.base import Argv
from autotune.sqlite_schema import TRUSTED_SCHEMA_PRAGMA, find_active_object
from autotune.strict_parsing import MAX_NUMBER, parse_json
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.request import Request
from autotune.transports.temporary_files import temporary_file_script

PROCESS_LIMITS = ProcessLimits(
    open_connections=900, max_rate=12_000.0, keeps_connections=True
)  # because 1024 descriptors are a common limit
MIN_OPEN_CONNECTIONS = 16
MAX_PATHS = 10_000
MAX_BODY_BYTES = 100_000  # a body is an argument, and Linux limits an argument to 128 KiB
TIMER_GRACE_SECONDS = 0.02  # oha sends the last requests one timer tick late
_SQLITE_MARK = "<autotune sqlite>"
_SQLITE_HEADER = b"SQLite format 3\0"
# Arguments: the command to run. oha before 1.9 has a different JSON option, and accepts only whole
# requests/s.
_RUN_SCRIPT = f"""
{temporary_file_script("oha")}
json=--json
oha --help 2>/dev/null | grep -q -e --output-format && json=--output-format=json
"$@" "$json" --db-url "$temporary"
code=$?
echo
echo '{_SQLITE_MARK}'
base64 --wrap=0 "$temporary"
exit $code
"""
# Words in the error messages of oha, the kernel and hyper, and the kind of error that each word
# indicates.
_ERROR_KINDS = (
    ("too many open files", NO_FILE_ERROR),
    ("cannot assign requested address", NO_PORT_ERROR),
    ("timeout", "timeout"),
    ("timed out", "timeout"),
    ("refused", "refused"),
    ("reset", "reset"),
    ("closed", "reset"),
    ("connection error", "reset"),
    ("certificate", "certificate"),
    ("canceled", "reset"),
    ("broken pipe", "reset"),
    ("deadline", "unanswered"),
)


@dataclass(frozen=True)
class OhaAnswer:
    """A row of oha's SQLite file, with times in seconds since oha's start. ``due_at`` is the time at
    which oha noticed that the request was due.
    """

    due_at: float
    sent_at: float
    ended_at: float
    status: int
    size: int


@dataclass(frozen=True)
class OhaGenerator(LoadGenerator):
    """oha 1.4.7 and later (github.com/hatoo/oha). ``timeout`` bounds each process.

    With ``paths``, each request uses a random path from the list.
    """

    paths: tuple[str, ...] = ()
    name = "oha"
    package_source = "cargo install oha --locked, or a binary from github.com/hatoo/oha/releases"
    limits = PROCESS_LIMITS
    http2 = True

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        for index, visit in enumerate(visits):
            if len(visit.session_steps) > 1 or visit.session_steps[0].method != "GET":
                raise UnusableWorkload(
                    "oha sends only single GET requests",
                    hint="write `generator: k6`, which sends sessions and other methods",
                    index=index,
                )
        return OhaGenerator(
            tuple(visit.session_steps[0].path for visit in expand_visits(visits, MAX_PATHS))
        )

    def find_request_error(self, step: SessionStep) -> str | None:
        body_bytes = len((step.body or "").encode())
        if body_bytes > MAX_BODY_BYTES:
            return f"oha sends bodies of at most {MAX_BODY_BYTES} bytes, not {body_bytes}"
        return None

    def round_rate(self, rate: float, max_rate: float) -> float:
        """Return a whole rate, because oha accepts no others. A rate that would be 0 is not changed."""
        nearest_rate = round(rate)
        whole_rate = nearest_rate if nearest_rate <= max_rate else int(max_rate)
        return float(whole_rate) if whole_rate else rate

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        return tuple((SessionStep(path=path), 1.0) for path in self.paths) or super().list_steps(
            request
        )

    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        """Return one process for each load host, or more if one process has too few connections."""
        connection_seconds = spec.held_seconds
        connections = self.limits.open_connections
        count = max(
            hosts,
            ceil(spec.rate / self.limits.max_rate),
            ceil(spec.rate * connection_seconds / connections),
        )
        whole_rate = int(self.round_rate(spec.rate, spec.max_rate))
        count = min(count, whole_rate)
        rates = (whole_rate // count + (index < whole_rate % count) for index in range(count))
        return tuple(self._build_process(request, spec, rate, connection_seconds) for rate in rates)

    def _build_process(
        self, request: Request, spec: LoadSpec, rate: int, connection_seconds: float
    ) -> LoadProcess:
        open_connections = min(
            self.limits.open_connections, max(MIN_OPEN_CONNECTIONS, ceil(rate * connection_seconds))
        )
        stop_seconds = ceil(spec.seconds + 2 * spec.timeout + 2)
        argv = (
            "sh", "-c", _RUN_SCRIPT, "sh",
            "timeout", "--signal=INT", "--kill-after=1", str(stop_seconds),
            "oha", "--no-tui", "-q", str(rate),
            "-z", f"{round(1000 * (spec.seconds + TIMER_GRACE_SECONDS))}ms",
            "-c", str(open_connections), "-t", f"{round(1000 * spec.timeout)}ms",
            "-w", "--latency-correction", "--redirect", "0", "--disable-compression",
            *build_options(request),
        )  # fmt: skip
        requests = max(1, round(rate * spec.seconds))
        if not self.paths:
            argv = request.with_trusted_ca((*argv, request.url))
            return LoadProcess(
                argv, requests, spec.seconds, stop_seconds + 1.0, open_connections, max_rate=rate
            )
        urls = "".join(f"{replace(request, path=path).url}\n" for path in self.paths)
        argv = request.with_trusted_ca(with_input_file((*argv, "--urls-from-file"), ""))
        return LoadProcess(
            argv,
            requests,
            spec.seconds,
            stop_seconds + 1.0,
            open_connections,
            input=urls.encode(),
            max_rate=rate,
        )

    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        json_text, _, encoded_file = output.partition(_SQLITE_MARK)
        try:
            errors = count_failures(parse_json(json_text[json_text.index("{") :]))
            answers = read_stored_answers(encoded_file)
        except (ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as error:
            reason = f"oha printed no result ({error!r}): {find_last_line(json_text)}"
            return LoadResult.build_unsent_result(process.request_count, reason)
        # drop errors of idle connections; requests that were not sent are counted below
        if request.http2:
            errors.pop("unanswered", None)
        return _check_result(
            _build_result(answers, errors, process, request, spec), answers, process, spec
        )


def build_options(request: Request) -> Argv:
    """Return oha's options for a request, except its URL."""
    options = ["--http2"] if request.http2 else []
    if request.tls and request.tls.insecure:
        options.append("--insecure")
    if request.host:
        options += ["--connect-to", f"{request.host}:{request.endpoint.port}:{request.endpoint}"]
    for header_name, header_value in request.headers:
        options += ["-H", f"{header_name}: {header_value}"]
    if request.method != "GET":
        options += ["-m", request.method]
    if request.body is not None:
        options += ["-d", request.body]
    return tuple(options)


def count_failures(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of requests without a response by kind, from oha's JSON output."""
    counts_by_kind: Counter[str] = Counter()
    for message, failure_count in report["errorDistribution"].items():
        kind = next((kind for word, kind in _ERROR_KINDS if word in message.lower()), "other")
        if not isinstance(failure_count, int) or failure_count < 0:
            raise ValueError(f"{failure_count!r} is not a valid count")
        counts_by_kind[kind] += failure_count
    return dict(counts_by_kind)


def read_stored_answers(encoded_file: str) -> list[OhaAnswer]:
    """Return the rows of oha's SQLite file, which ``encoded_file`` contains in base64.

    Raises ValueError or sqlite3.Error for any other text.
    """
    try:
        file_content = base64.b64decode(encoded_file.strip(), validate=True)
    except ValueError as error:
        raise ValueError(f"the file of responses is damaged: {error}") from error
    if not file_content.startswith(_SQLITE_HEADER):
        raise ValueError("the file of responses is missing")
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(file_content)
        database.execute(f"PRAGMA {TRUSTED_SCHEMA_PRAGMA}")
        if (name := find_active_object(database)) is not None:
            raise ValueError(f"the file of responses contains {name!r}, which oha does not create")
        rows = database.execute(
            'SELECT start_latency_correction, start, "end", status, len_bytes FROM oha'
        ).fetchall()
    finally:
        database.close()
    if not all(isinstance(n, int | float) and 0 <= n < MAX_NUMBER for row in rows for n in row):
        raise ValueError("the file of responses contains invalid numbers")
    return sorted((OhaAnswer(*row) for row in rows), key=lambda answer: answer.due_at)


def _build_result(
    answers: Sequence[OhaAnswer],
    failure_counts: Mapping[str, int],
    process: LoadProcess,
    request: Request,
    spec: LoadSpec,
) -> LoadResult:
    """Return the result of one process. Each intended request counts either as a correct response
    or as one error.

    The deadline admits slightly more requests than intended (``TIMER_GRACE_SECONDS``). Surplus
    requests at the end do not count.
    """
    counted_answers = list(answers)[: max(0, process.request_count - sum(failure_counts.values()))]
    errors = Counter(failure_counts)
    right_answers = []
    count_by_size: Counter[float] = Counter()
    for answer in counted_answers:
        count_by_size[answer.size] += 1
        if answer.status not in request.statuses:
            errors[f"{answer.status // 100}xx"] += 1
        elif request.expected_body is not None and answer.size != len(request.expected_body):
            errors["wrong body"] += 1
        else:
            right_answers.append(answer.ended_at - answer.due_at)
    counted_requests = len(right_answers) + sum(errors.values())
    unsent_count = process.request_count - counted_requests
    if unsent_count > 0:
        errors["not sent"] += unsent_count
    return LoadResult(
        intended=max(process.request_count, counted_requests),
        sent=len(counted_answers)
        + sum(n for kind, n in failure_counts.items() if kind not in EXHAUSTION_MESSAGES),
        errors=sort_counts(errors),
        histogram=build_histogram(right_answers, spec.latency_limit),
        duration=max((answer.ended_at for answer in counted_answers), default=spec.seconds),
        sizes=count_by_size if len(right_answers) == len(counted_answers) else {},
    )


def _check_result(
    result: LoadResult, answers: Sequence[OhaAnswer], process: LoadProcess, spec: LoadSpec
) -> LoadResult:
    """Return the result, marked as limited or truncated if the requested load was not sent."""
    if exhausted_result := result.as_exhausted_host():
        return exhausted_result
    # The longest delay between a request's due time and the time at which oha noticed the request.
    # Requests without a response are not in the file, so a request was due no earlier than its
    # position in the file indicates.
    due_interval = process.span_seconds / process.request_count
    largest_delay = max(
        (answer.due_at - index * due_interval for index, answer in enumerate(answers)), default=0.0
    )
    has_free_connections = _count_max_in_flight(answers) < process.open_connections
    if has_free_connections:  # requests that waited were therefore delayed by oha itself
        largest_delay = max(
            [largest_delay, *(answer.sent_at - answer.due_at for answer in answers)]
        )
    went_unnoticed = result.errors.get("not sent", 0) and has_free_connections
    if largest_delay <= MAX_STALL_SHARE * process.span_seconds + spec.latency_limit and not (
        went_unnoticed and result.errors["not sent"] > (1 - MIN_ACHIEVED_SHARE) * result.intended
    ):
        return result
    return result.as_incomplete_load(
        spec.latency_limit, largest_delay, result.errors.get("not sent", 0)
    )


def _count_max_in_flight(answers: Sequence[OhaAnswer]) -> int:
    """Return the largest number of requests that were in flight at the same time."""
    in_flight_changes = sorted(
        [(a.sent_at, 1) for a in answers] + [(a.ended_at, -1) for a in answers]
    )
    max_in_flight = in_flight = 0
    for _, in_flight_change in in_flight_changes:
        in_flight += in_flight_change
        max_in_flight = max(max_in_flight, in_flight)
    return max_in_flight
