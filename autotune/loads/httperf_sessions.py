"""httperf with sessions: several requests over a connection, with pauses, an open loop of sessions.

httperf prints how long each session lasted, and only a mean over requests. So sessions of one kind
(the same number of calls, the same pauses in sum) share a process, and a request's latency is the mean
over its session: the session's duration, less its pauses, divided by its calls. If a session is late,
every request in it is late. The rate is still in requests/s: sessions begin at the rate that makes so
many requests.

Requests that a session no longer sends because it failed are violations, each of them.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from dataclasses import dataclass, replace
from math import ceil

from autotune.loads.base import (
    Load,
    LoadResult,
    LoadSpec,
    Process,
    in_order,
    with_file,
    without_fastest,
)
from autotune.loads.httperf import (
    CLIENTS,
    LIMITS,
    MOST_SESSIONS,
    WAITED_LIMITS,
    Printed,
    checked,
    command,
    mean_gap,
    no_result,
)
from autotune.loads.workload import Kind, kinds, session_line, slots
from autotune.strict import whole
from autotune.target.requests import Visit
from autotune.transports.request import Request

GIVEN_UP = "given up"  # what was left of a session that failed
_GOOD = re.compile(r"^Session rate \[sess/s\]:.*\((\d+)/(\d+)\)$", re.M)


@dataclass(frozen=True, kw_only=True)
class Sessions(Process):
    """A process that starts sessions of one kind; ``requests`` is the sum over all of them."""

    kind: Kind

    @property
    def count(self) -> int:
        return self.requests // self.kind.calls


@dataclass(frozen=True)
class HttperfSessions(Load):
    """Debian's httperf 0.9.0 with ``--wsesslog``, at least one process for each kind and load host."""

    kinds: tuple[Kind, ...]
    name = "httperf"
    packages = ("httperf",)
    limits = LIMITS

    def asking(self, visits: tuple[Visit, ...]) -> Load:
        """Each visit becomes a session, with one request in each burst."""
        sessions = ("\n".join(map(session_line, v.steps)) for v in slots(visits, MOST_SESSIONS))
        return HttperfSessions(kinds("\n\n".join(sessions)))

    def processes(self, request: Request, spec: LoadSpec, hosts: int = 1) -> tuple[Process, ...]:
        calls = sum(kind.calls * kind.count for kind in self.kinds)
        first = secrets.randbelow(CLIENTS) if spec.seed is None else spec.seed
        processes: list[Process] = []
        for kind in self.kinds:
            rate = spec.rate * kind.count / calls  # sessions/s
            lasting = kind.think + kind.calls * min(WAITED_LIMITS * spec.limit, spec.timeout)
            count = max(hosts, ceil(rate * lasting / self.limits.open_connections))
            sessions = int(rate * spec.seconds + 1e-9)
            count = min(count, sessions)  # a kind of which no whole session is due is left out
            for index in range(count):
                mine = sessions // count + (index < sessions % count)
                client = (first + len(processes)) % CLIENTS
                processes.append(_process(request, spec, kind, client, mine, rate / count))
        return tuple(processes)

    def read(self, process: Process, printed: str, request: Request, spec: LoadSpec) -> LoadResult:
        output, good = Printed.read(printed), _GOOD.search(printed)
        if output is None or good is None or not isinstance(process, Sessions):
            return no_result(process, printed)
        result = _counted(output, whole(good[1]), process)
        # Arrivals, bursts and stalls are those of sessions.
        return checked(result, output, replace(process, requests=process.count), spec)


def _process(
    request: Request, spec: LoadSpec, kind: Kind, client: int, sessions: int, rate: float
) -> Sessions:
    gap = mean_gap(client, sessions, rate)
    span = max(sessions - 1, 1) / rate
    longest = kind.think + kind.calls * spec.timeout
    held = LIMITS.open_connections
    bound = ceil(1.5 * span + longest + 2 * spec.timeout + 2)
    return Sessions(
        with_file(command(request, spec, client, gap, held, bound), f"--wsesslog={sessions},0,"),
        sessions * kind.calls,
        span,
        bound + 1.0,
        held,
        input=kind.text.encode(),
        kind=kind,
        rate=rate * kind.calls,
    )


def _counted(output: Printed, good: int, process: Sessions) -> LoadResult:
    """The requests of the sessions that succeeded, each with the mean latency of its session."""
    kind = process.kind
    # Failed sessions are in the histogram too, if they had an answer at all.
    lasted = without_fastest(output.lifetimes, sum(output.lifetimes.values()) - good)
    histogram: Counter[float] = Counter()
    for edge, sessions in lasted.items():
        # Upper edge of a request's latency, to the microsecond.
        per_call = round(max(0.001, edge - kind.think) / kind.calls, 6)
        histogram[per_call] += sessions * kind.calls
    whole = LoadResult(process.requests, output.requests, {}, dict(histogram), output.duration)
    wrong = {k: n for k, n in output.statuses.items() if k != "2xx" and n}
    for status, count in wrong.items():
        whole = whole.reclassify(status, count)
    errors = Counter(whole.errors)
    missing = process.requests - whole.replies_ok - whole.failed
    for name, count in output.errors.items():
        errors[name] += min(missing, count)
        missing -= min(missing, count)
    unsent = min(missing, max(0, process.count - output.connections) * kind.calls)
    errors["not sent"] += unsent
    errors[GIVEN_UP] += missing - unsent
    return replace(whole, errors=in_order(errors))
