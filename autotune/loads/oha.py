"""oha: requests over connections that stay open, at an even rate, an open loop.

A request that is due while all connections are taken waits, and ``--latency-correction`` counts its
latency from when it was due: a stall counts for every request that came due during it. oha prints
percentiles and eleven bins, neither of which can be summed, so it also stores every answer
(``--db-url``, SQLite), and the file follows what it printed. From that file late answers, wrong
statuses and bodies of a wrong size are counted one by one.

How many connections. Once a server has kept ``WAITED_LIMITS`` latency limits' worth of requests waiting
(Little's law), the objective is missed beyond doubt; more connections would only be a longer queue.
A request that still waits for a connection when the time is over is never sent. That is a violation,
caused by the server if oha itself kept its schedule. The file shows this as well: a
request's place in it says when it was due by the rate, its start when oha noticed.
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
    ACHIEVED,
    NO_FILE,
    NO_PORT,
    OUT_OF,
    STALL,
    Limits,
    Load,
    LoadResult,
    LoadSpec,
    Process,
    binned,
    in_order,
    last_line,
    with_file,
)
from autotune.loads.workload import Unusable, slots
from autotune.services.base import Argv
from autotune.strict import LARGEST, parse_json
from autotune.target.requests import Visit
from autotune.transports.request import Request
from autotune.transports.temporary import temporary

LIMITS = Limits(
    open_connections=900, rate=12_000.0, kept=True
)  # 1024 descriptors are the common limit
WAITED_LIMITS = 5.0  # latency limits that all connections together must suffice for
LEAST_OPEN = 16
MOST_PATHS = 10_000
GRACE = 0.02  # s beyond a reading: what is due at its very end is noticed a timer's tick later
_MARK = "<autotune sqlite>"
_SQLITE = b"SQLite format 3\0"
# Arguments: the command to run. oha before 1.9 has another name for its JSON option, and takes whole
# requests/s only.
_SCRIPT = f"""
{temporary("oha")}
json=--json
oha --help 2>/dev/null | grep -q -e --output-format && json=--output-format=json
"$@" "$json" --db-url "$temporary"
code=$?
echo
echo '{_MARK}'
base64 --wrap=0 "$temporary"
exit $code
"""
# Words in oha's error messages (its own, the kernel's and hyper's) → the kind of error.
_KINDS = (
    ("too many open files", NO_FILE),
    ("cannot assign requested address", NO_PORT),
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
class Answer:
    """A row of oha's file: seconds since its start; ``due`` is when oha noticed that it was due."""

    due: float
    sent: float
    end: float
    status: int
    size: int


@dataclass(frozen=True)
class Oha(Load):
    """oha 1.4.7 and later (github.com/hatoo/oha), each process bounded by ``timeout``.

    With ``paths``, each request asks for one of them, at random.
    """

    paths: tuple[str, ...] = ()
    name = "oha"
    elsewhere = "cargo install oha --locked, or a binary from github.com/hatoo/oha/releases"
    limits = LIMITS
    http2 = True

    def asking(self, visits: tuple[Visit, ...]) -> Load:
        if any(len(visit.steps) > 1 or visit.steps[0].method != "GET" for visit in visits):
            raise Unusable("oha asks for single pages with GET alone")
        return Oha(tuple(visit.steps[0].path for visit in slots(visits, MOST_PATHS)))

    def processes(self, request: Request, spec: LoadSpec, hosts: int = 1) -> tuple[Process, ...]:
        """One for each load host, more where connections would not suffice.

        oha takes whole requests/s: the nearest that may be offered.
        """
        lasting = min(WAITED_LIMITS * spec.limit, spec.timeout)
        open_ = self.limits.open_connections
        count = max(hosts, ceil(spec.rate / self.limits.rate), ceil(spec.rate * lasting / open_))
        nearest = round(spec.rate)
        whole = nearest if nearest <= spec.max_rate else int(spec.max_rate)
        count = min(count, whole)
        rates = (whole // count + (index < whole % count) for index in range(count))
        return tuple(self._process(request, spec, rate, lasting) for rate in rates)

    def _process(self, request: Request, spec: LoadSpec, rate: int, lasting: float) -> Process:
        held = min(self.limits.open_connections, max(LEAST_OPEN, ceil(rate * lasting)))
        bound = ceil(spec.seconds + 2 * spec.timeout + 2)
        argv = (
            "sh", "-c", _SCRIPT, "sh", "timeout", "--signal=INT", "--kill-after=1", str(bound),
            "oha", "--no-tui", "-q", str(rate), "-z", f"{round(1000 * (spec.seconds + GRACE))}ms",
            "-c", str(held), "-t", f"{round(1000 * spec.timeout)}ms", "-w",
            "--latency-correction", "--redirect", "0", *options(request),
        )  # fmt: skip
        requests = max(1, round(rate * spec.seconds))
        if not self.paths:
            argv = request.trusting((*argv, request.url))
            return Process(argv, requests, spec.seconds, bound + 1.0, held, rate=rate)
        urls = "".join(f"{replace(request, path=path).url}\n" for path in self.paths)
        argv = request.trusting(with_file((*argv, "--urls-from-file"), ""))
        return Process(
            argv, requests, spec.seconds, bound + 1.0, held, input=urls.encode(), rate=rate
        )

    def read(self, process: Process, printed: str, request: Request, spec: LoadSpec) -> LoadResult:
        text, _, stored = printed.partition(_MARK)
        try:
            errors = failures(parse_json(text[text.index("{") :]))
            answers = stored_answers(stored)
        except (ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as error:
            why = f"oha gave no result ({error!r}): {last_line(text)}"
            return LoadResult.nothing(process.requests, why)
        if request.http2:  # these are idle connections; requests never sent are counted below
            errors.pop("unanswered", None)
        return _checked(_counted(answers, errors, process, request, spec), answers, process, spec)


def options(request: Request) -> Argv:
    """What oha is told of a request beside its URL."""
    options = ["--http2"] if request.http2 else []
    if request.tls and request.tls.insecure:
        options.append("--insecure")
    if request.host:
        options += ["--connect-to", f"{request.host}:{request.endpoint.port}:{request.endpoint}"]
    for name, value in request.headers:
        options += ["-H", f"{name}: {value}"]
    if request.method != "GET":
        options += ["-m", request.method]
    if request.body is not None:
        options += ["-d", request.body]
    return tuple(options)


def failures(report: Mapping[str, Any]) -> dict[str, int]:
    """Requests without an answer, by kind, as oha's JSON has them."""
    kinds: Counter[str] = Counter()
    for message, count in report["errorDistribution"].items():
        kind = next((kind for word, kind in _KINDS if word in message.lower()), "other")
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"{count!r} is no count")
        kinds[kind] += count
    return dict(kinds)


def stored_answers(text: str) -> list[Answer]:
    """The rows of oha's SQLite file, which ``text`` holds in base64. Raises ValueError, or
    sqlite3.Error for what is no such file."""
    try:
        content = base64.b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise ValueError(f"the file of answers is damaged: {error}") from error
    if not content.startswith(_SQLITE):
        raise ValueError("there is no file of answers")
    store = sqlite3.connect(":memory:")
    try:
        store.deserialize(content)
        rows = store.execute(
            'SELECT start_latency_correction, start, "end", status, len_bytes FROM oha'
        ).fetchall()
    finally:
        store.close()
    if not all(isinstance(n, int | float) and 0 <= n < LARGEST for row in rows for n in row):
        raise ValueError("the file of answers has something else than numbers in it")
    return sorted((Answer(*row) for row in rows), key=lambda answer: answer.due)


def _counted(
    answers: Sequence[Answer],
    failed: Mapping[str, int],
    process: Process,
    request: Request,
    spec: LoadSpec,
) -> LoadResult:
    """Every intended request either answered right or an error of one kind.

    The deadline lets through a few more than were intended (``GRACE``): the last ones do not count.
    """
    kept = list(answers)[: max(0, process.requests - sum(failed.values()))]
    errors = Counter(failed)
    right = []
    for answer in kept:
        if not 200 <= answer.status < 300:
            errors[f"{answer.status // 100}xx"] += 1
        elif request.expect is not None and answer.size != len(request.expect):
            errors["wrong body"] += 1
        else:
            right.append(answer.end - answer.due)
    counted = len(right) + sum(errors.values())
    unsent = process.requests - counted
    if unsent > 0:
        errors["not sent"] += unsent
    return LoadResult(
        intended=max(process.requests, counted),
        sent=len(kept) + sum(n for kind, n in failed.items() if kind not in OUT_OF),
        errors=in_order(errors),
        histogram=binned(right, spec.limit),
        duration=max((answer.end for answer in kept), default=spec.seconds),
    )


def _checked(
    result: LoadResult, answers: Sequence[Answer], process: Process, spec: LoadSpec
) -> LoadResult:
    """The result with the reason why it says nothing about the server, if there is one."""
    if short := result.without_means():
        return short
    # The longest time from when a request was due by the rate to when oha noticed. Requests without
    # an answer are not in the file, so each in it was due no earlier than its place there says.
    gap = process.span / process.requests
    late = max((answer.due - index * gap for index, answer in enumerate(answers)), default=0.0)
    free = _in_hand(answers) < process.open_connections
    if free:  # with connections free, requests waited for oha itself
        late = max([late, *(answer.sent - answer.due for answer in answers)])
    unnoticed = result.errors.get("not sent", 0) and free
    if late <= STALL * process.span + spec.limit and not (
        unnoticed and result.errors["not sent"] > (1 - ACHIEVED) * result.intended
    ):
        return result
    return result.fallen_short(spec.limit, late, result.errors.get("not sent", 0))


def _in_hand(answers: Sequence[Answer]) -> int:
    """The most requests that were under way at a time."""
    moments = sorted([(a.sent, 1) for a in answers] + [(a.end, -1) for a in answers])
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most
