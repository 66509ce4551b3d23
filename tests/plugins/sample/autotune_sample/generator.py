"""A generator that sends one request after the other at fixed times: an open loop for low rates."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autotune.loads.base import (
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    ProcessLimits,
    build_histogram,
    sort_counts,
)
from autotune.transports.request import Request

CONTRACT = 1
_SEND = """
import json, sys, time, urllib.request
url, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
begun, latencies, errors = time.monotonic(), [], 0
for number in range(count):
    due = begun + number * seconds / count
    time.sleep(max(0.0, due - time.monotonic()))
    try:
        urllib.request.urlopen(url, timeout=30).read()
        latencies.append(time.monotonic() - due)
    except OSError:
        errors += 1
print(json.dumps({"latencies": latencies, "errors": errors}))
"""


class Metronome(LoadGenerator):
    name = "metronome"
    limits = ProcessLimits(open_connections=1, max_rate=200.0)

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"python3": ("python3",)}

    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        count = int(spec.rate * spec.seconds / hosts)
        argv = ("python3", "-c", _SEND, request.url, str(count), str(spec.seconds))
        return (
            LoadProcess(
                argv, count, spec.seconds, spec.seconds + 60.0, 1, max_rate=count / spec.seconds
            ),
        ) * hosts

    def parse_output(
        self, process: LoadProcess, printed: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        answer = json.loads(printed)
        return LoadResult(
            process.request_count, process.request_count, sort_counts({"failed": answer["errors"]}),
            build_histogram(answer["latencies"], spec.latency_limit), spec.seconds,
        )  # fmt: skip


GENERATORS = {"metronome": Metronome()}
