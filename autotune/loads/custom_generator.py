"""The user's own generator, which reads a rate and prints the results of its requests.

From standard input, the generator reads ``{"schema": 1, "url": …, "rate": …, "seconds": …,
"timeout": …, "limit": …}`` (requests/s and seconds). Optional keys are ``method``, ``headers``,
``body``, ``insecure``, ``ca`` (PEM), ``http`` ("2"), and ``connect``, the address for the name in
the URL. The last line of the generator's output is one JSON object:

- ``requests``: the number of requests that the generator intended to send, usually
  ``rate × seconds``;
- ``errors``: requests without a correct response, by kind, ``{"status": 3, "timeout": 1}``;
- ``latencies``: a histogram of correct responses, ``{"0.005": 970, "0.050": 26}``, from the upper
  edge of a bin in seconds to its count. A generator without a histogram prints ``late`` instead,
  the number of responses after ``limit``;
- ``limited``: why the generator could not send the load; absent if the load was sent.

Unreadable output and inconsistent counts are failures of the generator, not of the server.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

from autotune.loads.base import (
    LATE_BIN_LIMITS,
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    ProcessLimits,
    merge_bins,
    sort_counts,
)
from autotune.services.base import Argv
from autotune.strict_parsing import parse_decimal, parse_json, split_lines
from autotune.transports.request import Request, TlsOptions

SCHEMA_VERSION = 1
# maximum share of the requested requests that a generator may omit
MAX_MISSED_SHARE = 0.01
MAX_ARRIVAL_SDS = 4.0  # maximum excess of random arrivals, in sds of a Poisson count
# The limits of the user's program are unknown. The program itself reports that it fell short.
UNKNOWN_LIMITS = ProcessLimits(open_connections=1_000_000, max_rate=1e9)
# numbers of kinds of errors, and of characters in texts of the program, that are recorded
MAX_ERROR_KINDS, MAX_KIND_LENGTH, MAX_REASON_LENGTH = 20, 80, 300


@dataclass(frozen=True)
class CustomGenerator(LoadGenerator):
    """A generator whose ``argv`` runs unchanged on each load host, with an equal share of the rate."""

    argv: Argv
    name = "command"
    package_source = "the program in `load: {command: …}`, and the programs that it runs"
    limits = UNKNOWN_LIMITS
    http2 = True

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        rate, stop_seconds = spec.rate / hosts, ceil(spec.seconds + 2 * spec.timeout + 2)
        request_record = {
            "schema": SCHEMA_VERSION,
            "url": request.url,
            "rate": rate,
            "seconds": spec.seconds,
            "timeout": spec.timeout,
            "limit": spec.latency_limit,
            **build_request_details(request),
        }
        process = LoadProcess(
            ("timeout", "--kill-after=1", str(stop_seconds), *self.argv),
            max(1, round(rate * spec.seconds)),
            spec.seconds,
            stop_seconds + 1.0,
            self.limits.open_connections,
            input=json.dumps(request_record).encode() + b"\n",
            max_rate=rate,
        )
        return (process,) * hosts

    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        parsed_output = _parse_generator_output(output)
        if isinstance(parsed_output, str):
            return LoadResult.build_unsent_result(
                process.request_count, f"cannot read the generator's output: {parsed_output}"
            )
        intended_count, errors, latencies = (
            parsed_output["requests"],
            parsed_output["errors"],
            parsed_output["latencies"],
        )
        if latencies is None:
            late_count = min(parsed_output["late"], intended_count - sum(errors.values()))
            right_count = intended_count - sum(errors.values()) - late_count
            latencies = {
                spec.latency_limit: right_count,
                LATE_BIN_LIMITS * spec.latency_limit: late_count,
            }
        limit_reason, requested_count = parsed_output["limited"], process.request_count
        if not limit_reason and intended_count < (1.0 - MAX_MISSED_SHARE) * requested_count:
            limit_reason = (
                f"the generator planned only {intended_count} of {requested_count} requests"
            )
        if not limit_reason and intended_count > _compute_max_requests(requested_count):
            limit_reason = (
                f"the generator planned {intended_count} instead of {requested_count} requests"
            )
        return LoadResult(
            intended=intended_count,
            sent=intended_count,
            errors=_limit_kinds(errors),
            histogram=sort_counts(merge_bins(latencies, spec.latency_limit)),
            duration=spec.seconds,
            limited=limit_reason,
        )


def _compute_max_requests(request_count: int) -> float:
    """Return the maximum number of requests that still represents the requested rate. Random arrivals
    vary by the square root of their number.
    """
    return (1.0 + MAX_MISSED_SHARE) * request_count + MAX_ARRIVAL_SDS * sqrt(request_count) + 1


def build_request_details(request: Request) -> dict[str, Any]:
    """Return the properties of a request that are not empty, except its URL."""
    tls = request.tls or TlsOptions()
    fields = {
        "connect": str(request.endpoint) if request.host else "",
        "method": "" if request.method == "GET" else request.method,
        "headers": dict(request.headers),
        "body": request.body,
        "insecure": tls.insecure,
        "ca": tls.ca,
        "http": "2" if request.http2 else "",
    }
    return {field_name: value for field_name, value in fields.items() if value}


def _parse_generator_output(output: str) -> dict[str, Any] | str:
    """Return the parsed output, or a description of the error in the output."""
    final_line = (split_lines(output.strip()) or [""])[-1]
    try:
        output_object = parse_json(final_line)
        request_count = _parse_count(output_object["requests"])
        errors = Counter[str]()
        for kind, count in (output_object.get("errors") or {}).items():
            errors[_shorten_text(kind, MAX_KIND_LENGTH)] += _parse_count(count)
        bins = output_object.get("latencies")
        count_by_latency = None if bins is None else _parse_bins(bins)
        late_count = _parse_count(output_object.get("late", 0))
        limit_text = output_object.get("limited")
        limit_reason = _shorten_text(str(limit_text), MAX_REASON_LENGTH) if limit_text else None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"{error!r} in {final_line[:120]!r}"
    if count_by_latency is None and "late" not in output_object:
        return "`latencies` or `late` is missing"
    counted_requests = sum(errors.values()) + (
        late_count if count_by_latency is None else sum(count_by_latency.values())
    )
    if counted_requests > request_count or (
        count_by_latency is not None and counted_requests != request_count
    ):
        return f"responses and errors add up to {counted_requests}, not to {request_count} requests"
    return {
        "requests": request_count,
        "errors": errors,
        "latencies": count_by_latency,
        "late": late_count,
        "limited": limit_reason,
    }


def _parse_bins(bins: Mapping[str, object]) -> Counter[float]:
    count_by_latency = Counter[float]()
    for edge_text, count in bins.items():
        edge = parse_decimal(edge_text)
        if edge < 0:
            raise ValueError(f"{edge_text!r} is not a latency")
        count_by_latency[edge] += _parse_count(count)
    return count_by_latency


def _shorten_text(text: str, max_length: int) -> str:
    """Return a text of the user's program on one line of printable characters."""
    printable_text = "".join(c if c.isprintable() else " " for c in text[: 10 * max_length])
    return " ".join(printable_text.split())[:max_length] or "unnamed"


def _limit_kinds(errors: Counter[str]) -> dict[str, int]:
    """Return the most frequent kinds of errors. The others are summed up, because messages may contain
    ports or other numbers.
    """
    kinds = Counter(dict(errors.most_common(MAX_ERROR_KINDS)))
    kinds["other"] += errors.total() - kinds.total()
    return sort_counts(kinds)


def _parse_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a valid count")
    return value
