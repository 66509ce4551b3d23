"""k6: an open loop with constant arrivals and connections that stay open.

The scenario is `k6.js`; k6 reads the load parameters and then the script from standard input.
Requests are due at an even rate, whatever the results of earlier requests, and a free client (a
"VU") sends each request. If no client is free, the request is dropped, which is a violation: there
are as many clients as a server that meets the objective could occupy (Little's law). The scenario
counts latencies in bins. The objective's limit is the edge of a bin, so late responses are counted
exactly. The percentiles that k6 prints cannot be combined across processes.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil, gcd
from typing import Any

from autotune.loads.base import (
    ABANDONED_ERROR,
    MAX_STALL_SHARE,
    MIN_ACHIEVED_SHARE,
    NO_FILE_ERROR,
    NO_PORT_ERROR,
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    ProcessLimits,
    find_last_line,
    sort_counts,
)
from autotune.loads.workload import check_pauses, sum_pauses
from autotune.services.base import Argv, Endpoint
from autotune.strict_parsing import is_ip_address, parse_json, split_lines
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.request import DEFAULT_PORTS, Request

PROCESS_LIMITS = ProcessLimits(
    open_connections=500, max_rate=3000.0, keeps_connections=True
)  # few connections, because each client is a JavaScript engine
MIN_CLIENTS = 16
START_SECONDS = 30  # time for k6 to start and for a script's `setup`
# the growth factor applies to bins beyond the latency limit
BINS_WITHIN_LIMIT, BIN_GROWTH_FACTOR = 25, 1.25
GOLDEN_SECTION = 0.6180339887498949  # its successive multiples, modulo 1, are evenly spread
ERROR_KINDS = (
    "1xx", "3xx", "4xx", "5xx", "wrong body", "timeout", "refused", "reset", "certificate",
    NO_PORT_ERROR, NO_FILE_ERROR, "other", "failed check", "script error", "no request made", "elsewhere",
    "too many requests",
)  # fmt: skip
RUN_COMMAND = ("k6", "run", "--quiet", "--no-usage-report", "--address=")
_VISITS_SCRIPT = """
Object.assign(exports, { options: load, handleSummary });
const visits = new Counter('visits'); // started visits
const planned = new Counter('planned'); // requests of the started visits
exports.default = () => arrive(() => {
  const { steps } = chosen();
  visits.add(1);
  planned.add(steps.length);
  steps.forEach(ask);
});
"""


def read_source(file_name: str) -> str:
    """Return the text of a file next to this module."""
    return (files("autotune.loads") / file_name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class K6Generator(LoadGenerator):
    """k6 0.52 (grafana.com/docs/k6). ``timeout`` bounds each process.

    With ``visits``, each arrival is one visit instead of one request. Visits are evenly mixed in
    proportion to their weights, so that every reading sends the requested number of requests.
    """

    visits: tuple[WeightedVisit, ...] = ()
    name = "k6"
    package_source = (
        "a binary from github.com/grafana/k6/releases, or go install go.k6.io/k6@v0.52.0"
    )
    limits = PROCESS_LIMITS
    http2 = True

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        check_pauses(visits)
        return K6Generator(visits)

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        steps = tuple((step, visit.weight) for visit in self.visits for step in visit.session_steps)
        return steps or super().list_steps(request)

    @property
    def requests_per_visit(self) -> float:
        """Return the mean number of requests per visit."""
        weight = sum(visit.weight for visit in self.visits)
        weighted_requests = sum(visit.weight * len(visit.session_steps) for visit in self.visits)
        return weighted_requests / weight if self.visits else 1.0

    @property
    def min_requests(self) -> float:
        return self.requests_per_visit

    @property
    def longest_pause(self) -> float:
        return max(map(sum_pauses, self.visits), default=0.0)

    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        connection_seconds = spec.held_seconds + self.longest_pause / self.requests_per_visit
        count = max(
            hosts,
            ceil(spec.rate / self.limits.max_rate),
            ceil(spec.rate * connection_seconds / self.limits.open_connections),
        )
        # Round down, because the visits may not exceed the rate.
        visits = int(spec.rate * spec.seconds / self.requests_per_visit + 1e-9)
        count = min(count, visits)
        return tuple(
            self._build_process(
                request,
                spec,
                visits // count + (index < visits % count),
                visits * self.requests_per_visit / spec.rate,
                connection_seconds,
            )
            for index in range(count)
        )

    def _build_process(
        self,
        request: Request,
        spec: LoadSpec,
        iterations: int,
        span_seconds: float,
        held_seconds: float,
    ) -> LoadProcess:
        """Return a process that starts ``iterations`` visits, evenly spread over ``span_seconds``.

        The processes of a reading share this span. The span is slightly shorter than the reading, so that
        the whole visits add up to exactly the requested rate.
        """
        rate = iterations * self.requests_per_visit / span_seconds
        clients = min(self.limits.open_connections, max(MIN_CLIENTS, ceil(rate * held_seconds)))
        offered_rate = rate * self.requests_per_iteration
        scenario_parameters = {
            "iterations": iterations,
            "span": ceil(1000 * span_seconds - 1e-6),
            "clients": clients,
            "grace": round(1000 * (spec.timeout + self.longest_pause + 1)),
            "stride": find_stride(iterations),
            "first": secrets.randbelow(iterations),
            **self.describe_rate(offered_rate),
        }
        stop_seconds = ceil(spec.seconds + 2 * spec.timeout + self.longest_pause + START_SECONDS)
        argv, scenario = self._build_run_command(request, spec, scenario_parameters, stop_seconds)
        return LoadProcess(
            argv,
            max(1, round(iterations * self.requests_per_visit)),
            span_seconds,
            stop_seconds + 1.0,
            clients,
            input=scenario,
            max_rate=offered_rate,
        )

    def describe_rate(self, rate: float) -> Mapping[str, Any]:
        """Return the scenario's parameters for a rate of ``rate`` requests/s."""
        return {}

    def _build_run_command(
        self,
        request: Request,
        spec: LoadSpec,
        scenario_parameters: Mapping[str, Any],
        stop_seconds: int,
    ) -> tuple[Argv, bytes]:
        """Return a command and its standard input. The command runs a scenario, and stops it after
        ``stop_seconds``.
        """
        document = {
            **describe_requests(request, shuffle_visits(self.visits)),
            **scenario_parameters,
            "timeout": f"{spec.timeout:g}s",
            "edges": list_bin_edges(spec),
            "kinds": ERROR_KINDS,
        }
        argv, scenario = self.build_run_command(
            f"const order = {json.dumps(document)};\n{read_source('k6.js')}"
        )
        argv = ("timeout", "--signal=INT", "--kill-after=1", str(stop_seconds), *argv)
        # Go reads proxies from the environment, and uses HTTP/2 over TLS by default.
        version = () if request.http2 else ("GODEBUG=http2client=0",)
        return request.with_trusted_ca(
            ("env", "NO_PROXY=*", "no_proxy=*", *version, *argv)
        ), scenario

    def build_run_command(self, scenario: str) -> tuple[Argv, bytes]:
        """Return the command that runs the text of a scenario, and the command's standard input."""
        return (*RUN_COMMAND, "--log-output=none", "-"), (scenario + _VISITS_SCRIPT).encode()

    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        try:
            summary = parse_json((split_lines(output.strip()) or [""])[-1])
            count_by_name = {name: parse_whole_count(n) for name, n in summary["counts"].items()}
            lag_seconds = float(summary["lag"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"k6 printed no result ({error!r}): {find_last_line(output)}"
            return LoadResult.build_unsent_result(process.request_count, reason)
        result = _build_result(count_by_name, spec, self._count_unsent(count_by_name, process))
        return result.as_exhausted_host() or _check_result(result, lag_seconds, process, spec)

    def _count_unsent(self, counts: Mapping[str, int], process: LoadProcess) -> int:
        """Return the number of requests in visits that were dropped or never started."""
        planned_visits = round(process.request_count / self.requests_per_visit)
        started_visits = counts.get("visits" if self.visits else "sent", 0)
        missing_visits = max(counts.get("dropped_iterations", 0), planned_visits - started_visits)
        return round(missing_visits * self.requests_per_visit)


def shuffle_visits(visits: tuple[WeightedVisit, ...]) -> tuple[WeightedVisit, ...]:
    """Return the visits sorted by their number of requests. Visits with equal numbers are in random
    order.

    The scenario rounds down the number of the last visits, which are the longest. The load therefore
    never contains more requests than requested.
    """
    shuffled_visits = secrets.SystemRandom().sample(visits, len(visits))
    return tuple(sorted(shuffled_visits, key=lambda visit: len(visit.session_steps)))


def find_stride(count: int) -> int:
    """Return a number whose first multiples, modulo ``count``, are all different and evenly spread."""
    stride = max(1, round(count * GOLDEN_SECTION))
    while gcd(stride, count) != 1:
        stride += 1
    return stride


def describe_requests(request: Request, visits: tuple[WeightedVisit, ...]) -> dict[str, Any]:
    """Return the scenario's requests and the addresses to which they are sent, as JSON values."""
    page = SessionStep(path=request.path, method=request.method, body=request.body)
    weighted_steps = [(visit.weight, visit.session_steps) for visit in visits] or [(1.0, (page,))]
    has_host_name = request.host is not None and is_ip_address(request.endpoint.host)
    site_url = replace(request, path="", host=request.host if has_host_name else None).url
    host_header = {"Host": request.authority} if request.authority and not has_host_name else {}
    return {
        "site": site_url,
        "hosts": {request.host: request.endpoint.host} if has_host_name else {},
        "headers": {**host_header, **dict(request.headers)},
        "names": list_authorities(request),
        "insecure": bool(request.tls and request.tls.insecure),
        "statuses": sorted(request.statuses),
        "expect": None
        if request.expected_body is None or visits
        else request.expected_body.decode(),
        "visits": [
            {
                "weight": weight,
                "steps": [
                    {
                        "path": step.path,
                        "method": step.method,
                        "body": step.body,
                        "think": step.think if number < len(steps) else 0.0,
                    }
                    for number, step in enumerate(steps, 1)
                ],
            }
            for weight, steps in weighted_steps
        ],
    }


def list_authorities(request: Request) -> list[str]:
    """Return the host names of the site in URLs, with and without a port."""
    hosts = [host for host in (request.host, request.endpoint.host) if host]
    names_with_port = [str(Endpoint(host, request.endpoint.port)) for host in hosts]
    # IPv6 addresses are in brackets in URLs without a port, too
    host_names = [name.rpartition(":")[0] for name in names_with_port]
    is_default_port = request.endpoint.port == DEFAULT_PORTS[request.scheme]
    return [
        name.lower()
        for name in (
            *host_names[: None if is_default_port or not request.host else 1],
            *names_with_port,
        )
    ]


def list_bin_edges(spec: LoadSpec) -> list[float]:
    """Return the upper edges of latency bins in seconds. The latency limit is one of the edges, and
    the last edge exceeds every latency.
    """
    edges_within_limit = [
        round(spec.latency_limit * bin_number / BINS_WITHIN_LIMIT, 9)
        for bin_number in range(1, BINS_WITHIN_LIMIT)
    ]
    edges_beyond_limit = [spec.latency_limit]
    while edges_beyond_limit[-1] < 2 * spec.timeout:
        edges_beyond_limit.append(round(edges_beyond_limit[-1] * BIN_GROWTH_FACTOR, 9))
    return [*edges_within_limit, *edges_beyond_limit]


def parse_whole_count(printed_number: object) -> int:
    """Return a number that k6 printed as an integer. Raises ValueError for any other value."""
    if (
        isinstance(printed_number, bool)
        or not isinstance(printed_number, int | float)
        or printed_number != int(printed_number)
    ):
        raise ValueError(f"{printed_number!r} is not a valid count")
    return int(printed_number)


def _build_result(counts: Mapping[str, int], spec: LoadSpec, unsent_count: int) -> LoadResult:
    """Return the result of one process. Each intended request counts either as a correct response
    or as one error.

    ``unsent_count`` is the number of requests in visits that were not started.
    """
    histogram = {edge: counts.get(f"bin_{i}", 0) for i, edge in enumerate(list_bin_edges(spec))}
    errors = Counter({kind: counts.get(f"failed_{i}", 0) for i, kind in enumerate(ERROR_KINDS)})
    sent_count = counts.get("sent", 0)
    errors["unanswered"] = max(0, sent_count - sum(histogram.values()) - errors.total())
    errors[ABANDONED_ERROR] = max(0, counts.get("planned", 0) - sent_count)
    errors["not sent"] = unsent_count
    return LoadResult(
        intended=sum(histogram.values()) + errors.total(),
        sent=sent_count,
        errors=sort_counts(errors),
        histogram=sort_counts(histogram),
        duration=spec.seconds,
    )


def _check_result(
    result: LoadResult, lag: float, process: LoadProcess, spec: LoadSpec
) -> LoadResult:
    """Return the result, marked as limited or truncated if the requested load was not sent.

    ``lag`` (seconds) is correct only if no request was dropped; otherwise, later arrivals are
    mistaken for earlier arrivals.
    """
    unsent_count = result.errors.get("not sent", 0)
    is_late = not unsent_count and lag > MAX_STALL_SHARE * process.span_seconds + spec.latency_limit
    if not is_late and unsent_count <= (1 - MIN_ACHIEVED_SHARE) * result.intended:
        return result
    return result.as_incomplete_load(spec.latency_limit, lag if is_late else 0.0, unsent_count)
