"""k6: a scenario of constant arrivals, an open loop over connections that stay open.

The scenario is `k6.js`, run from standard input with the order before it. Requests are due at an even
rate, whatever became of earlier ones, and a free client (a "VU") makes each. If no client is free, the
request is dropped, which is a violation: there are as many clients as a server that meets the objective
could possibly hold (Little's law). The scenario itself counts latencies in bins, and the objective's
limit is one of the edges, so late answers are counted exactly; k6's own percentiles of two processes
could not be combined.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil
from typing import Any

from autotune.loads.base import (
    ACHIEVED,
    NO_FILE,
    NO_PORT,
    STALL,
    Limits,
    Load,
    LoadResult,
    LoadSpec,
    Process,
    in_order,
    last_line,
)
from autotune.services.base import Argv
from autotune.strict import is_address, parse_json, split_lines
from autotune.target.requests import Step, Visit
from autotune.transports.request import DEFAULT_PORTS, Request

LIMITS = Limits(open_connections=500, rate=3000.0, kept=True)  # each client is a JavaScript engine
WAITED_LIMITS = 5.0  # latency limits that all clients together must suffice for
LEAST_CLIENTS = 16
STARTS = 30  # s at most, for its own start and a script's `setup`
FINE, COARSE = 25, 1.25  # bins within the limit, and the ratio of those beyond it
KINDS = (
    "1xx", "3xx", "4xx", "5xx", "wrong body", "timeout", "refused", "reset", "certificate",
    NO_PORT, NO_FILE, "other", "failed check", "script error", "nothing asked", "elsewhere",
    "too many requests",
)  # fmt: skip
RUN = ("k6", "run", "--quiet", "--no-usage-report", "--address=")
_VISITS = """
Object.assign(exports, { options: load, handleSummary });
exports.default = () => arrive(() => chosen().steps.forEach(ask));
"""


def source(name: str) -> str:
    """The text of a file beside this one."""
    return (files("autotune.loads") / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class K6(Load):
    """k6 0.52 (grafana.com/docs/k6), each process bounded by ``timeout``.

    With ``visits``, each arrival makes one of them, chosen by its weight, in place of the request.
    """

    visits: tuple[Visit, ...] = ()
    name = "k6"
    elsewhere = "a binary from github.com/grafana/k6/releases, or go install go.k6.io/k6@v0.52.0"
    limits = LIMITS
    http2 = True

    def asking(self, visits: tuple[Visit, ...]) -> Load:
        return K6(visits)

    def steps_of(self, request: Request) -> tuple[tuple[Step, float], ...]:
        steps = tuple((step, visit.weight) for visit in self.visits for step in visit.steps)
        return steps or super().steps_of(request)

    @property
    def calls(self) -> float:
        """Requests of a visit, on average."""
        weight = sum(visit.weight for visit in self.visits)
        calls = sum(visit.weight * len(visit.steps) for visit in self.visits)
        return calls / weight if self.visits else 1.0

    @property
    def thinking(self) -> float:
        """Pauses of the longest visit, in seconds."""
        return max((sum(step.think for step in v.steps) for v in self.visits), default=0.0)

    def processes(self, request: Request, spec: LoadSpec, hosts: int = 1) -> tuple[Process, ...]:
        lasting = min(WAITED_LIMITS * spec.limit, spec.timeout) + self.thinking / self.calls
        count = max(
            hosts,
            ceil(spec.rate / self.limits.rate),
            ceil(spec.rate * lasting / self.limits.open_connections),
        )
        # Rounded down: no process may have a request more than its share of the rate.
        count = min(count, int(spec.rate * spec.seconds / self.calls + 1e-9))
        if count < 1:
            return ()
        return (self._process(request, spec, spec.rate / count, lasting),) * count

    def _process(self, request: Request, spec: LoadSpec, rate: float, lasting: float) -> Process:
        clients = min(self.limits.open_connections, max(LEAST_CLIENTS, ceil(rate * lasting)))
        iterations = int(rate * spec.seconds / self.calls + 1e-9)
        offered = iterations * self.calls * self.requests_each / spec.seconds
        order = {
            "iterations": iterations,
            "span": round(1000 * spec.seconds),
            "clients": clients,
            "grace": round(1000 * (spec.timeout + 1)),
            **self.more(offered),
        }
        bound = ceil(spec.seconds + 2 * spec.timeout + STARTS)
        argv, scenario = self._command(request, spec, order, bound)
        return Process(
            argv,
            max(1, round(iterations * self.calls)),
            spec.seconds,
            bound + 1.0,
            clients,
            input=scenario,
            rate=offered,
        )

    def more(self, rate: float) -> Mapping[str, Any]:
        """What else a scenario needs that offers ``rate`` requests/s."""
        return {}

    def _command(
        self, request: Request, spec: LoadSpec, order: Mapping[str, Any], bound: int
    ) -> tuple[Argv, bytes]:
        """The command of a scenario, which is stopped after ``bound`` seconds, and its standard input."""
        whole = {
            **asked(request, self.visits), **order,
            "timeout": f"{spec.timeout:g}s", "edges": edges(spec), "kinds": KINDS,
        }  # fmt: skip
        argv, scenario = self.run(f"const order = {json.dumps(whole)};\n{source('k6.js')}")
        argv = ("timeout", "--signal=INT", "--kill-after=1", str(bound), *argv)
        # Go takes proxies from the environment, and uses HTTP/2 over TLS unless told not to.
        version = () if request.http2 else ("GODEBUG=http2client=0",)
        return request.trusting(("env", "NO_PROXY=*", "no_proxy=*", *version, *argv)), scenario

    def run(self, scenario: str) -> tuple[Argv, bytes]:
        """The command that runs this text, and its standard input."""
        return (*RUN, "--log-output=none", "-"), (scenario + _VISITS).encode()

    def read(self, process: Process, printed: str, request: Request, spec: LoadSpec) -> LoadResult:
        try:
            summary = parse_json((split_lines(printed.strip()) or [""])[-1])
            counts = {name: whole_count(n) for name, n in summary["counts"].items()}
            lag = float(summary["lag"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            why = f"k6 gave no result ({error!r}): {last_line(printed)}"
            return LoadResult.nothing(process.requests, why)
        result = _counted(counts, process, spec, self.calls)
        return result.without_means() or _checked(result, lag, process, spec)


def asked(request: Request, visits: tuple[Visit, ...]) -> dict[str, Any]:
    """What the scenario asks for, and of whom."""
    page = Step(path=request.path, method=request.method, body=request.body)
    listed = [(visit.weight, visit.steps) for visit in visits] or [(1.0, (page,))]
    by_name = request.host is not None and is_address(request.endpoint.host)
    site = replace(request, path="", host=request.host if by_name else None).url
    named = {"Host": request.authority} if request.authority and not by_name else {}
    return {
        "site": site,
        "hosts": {request.host: request.endpoint.host} if by_name else {},
        "headers": {**named, **dict(request.headers)},
        "names": authorities(request),
        "insecure": bool(request.tls and request.tls.insecure),
        "statuses": sorted(request.statuses),
        "expect": None if request.expect is None or visits else request.expect.decode(),
        "visits": [
            {"weight": weight, "steps": [
                {"path": s.path, "method": s.method, "body": s.body, "think": s.think} for s in steps
            ]} for weight, steps in listed
        ],
    }  # fmt: skip


def authorities(request: Request) -> list[str]:
    """The names by which URLs may call the site, with and without a port."""
    names = [name for name in (request.host, request.endpoint.host) if name]
    ports = [f"{name}:{request.endpoint.port}" for name in names]
    usual = request.endpoint.port == DEFAULT_PORTS[request.scheme]
    return [name.lower() for name in (*names[: None if usual or not request.host else 1], *ports)]


def edges(spec: LoadSpec) -> list[float]:
    """Upper edges of bins, in seconds: the limit is one of them, the last is beyond every answer."""
    within = [round(spec.limit * step / FINE, 9) for step in range(1, FINE)]
    beyond = [spec.limit]
    while beyond[-1] < 2 * spec.timeout:
        beyond.append(round(beyond[-1] * COARSE, 9))
    return [*within, *beyond]


def whole_count(number: object) -> int:
    """A count as k6 prints it. Raises ValueError."""
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
        raise ValueError(f"{number!r} is no count")
    return int(number)


def _counted(
    counts: Mapping[str, int], process: Process, spec: LoadSpec, calls: float
) -> LoadResult:
    """Every intended request either answered right or an error of one kind."""
    histogram = {edge: counts.get(f"bin_{i}", 0) for i, edge in enumerate(edges(spec))}
    errors = Counter({kind: counts.get(f"failed_{i}", 0) for i, kind in enumerate(KINDS)})
    sent = counts.get("sent", 0)
    errors["unanswered"] = max(0, sent - sum(histogram.values()) - errors.total())
    errors["not sent"] = max(
        round(counts.get("dropped_iterations", 0) * calls), process.requests - sent
    )
    return LoadResult(
        intended=sum(histogram.values()) + errors.total(),
        sent=sent,
        errors=in_order(errors),
        histogram=in_order(histogram),
        duration=spec.seconds,
    )


def _checked(result: LoadResult, lag: float, process: Process, spec: LoadSpec) -> LoadResult:
    """The result with the reason why it says nothing about the server, if there is one.

    ``lag`` (seconds) is right only if nothing was dropped: otherwise later arrivals count as earlier.
    """
    unsent = result.errors.get("not sent", 0)
    late = not unsent and lag > STALL * process.span + spec.limit
    if not late and unsent <= (1 - ACHIEVED) * result.intended:
        return result
    return result.fallen_short(spec.limit, lag if late else 0.0, unsent)
