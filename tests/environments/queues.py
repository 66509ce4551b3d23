"""A simulation of a site with a queue and several workers, request by request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapreplace

import numpy as np

from autotune.diagnose.diagnosis import WatchedReading
from autotune.estimate import InstanceCapacity
from autotune.loads import httperf
from autotune.loads.base import LoadSpec
from autotune.loads.reading_run import RUNAWAY_VIOLATION_SHARE
from autotune.measure.reading import Reading
from autotune.monitor.host_watch import Observations
from autotune.services.base import Settings
from autotune.target.slo import Slo

MANY_REQUESTS, STEPS = 40_000, 9  # of a long measurement, and halvings of the rates to try


def list_latencies(arrivals: Iterable[float], page: float, workers: int) -> list[float]:
    """Return the latency of each request in seconds. Requests are served in the order of arrival."""
    free, latencies = [0.0] * workers, list[float]()
    for moment in arrivals:
        done = max(free[0], moment) + page
        heapreplace(free, done)
        latencies.append(done - moment)
    return latencies


def measure_long(rate: float, page: float, workers: int, limit: float) -> float:
    """Return the fraction of late requests in a long measurement."""
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, MANY_REQUESTS))
    latencies = list_latencies(arrivals.tolist(), page, workers)
    return sum(latency > limit for latency in latencies) / MANY_REQUESTS


def find_true_capacity(page: float, workers: int, slo: Slo) -> float:
    """Return the highest rate at which a long measurement meets the SLO."""
    low, high = 0.3 * workers / page, workers / page
    for _ in range(STEPS):
        rate = (low + high) / 2.0
        is_met = measure_long(rate, page, workers, slo.limit) <= slo.allowed_violations
        low, high = (rate, high) if is_met else (low, rate)
    return low


@dataclass
class QueueMeter:
    """A meter that sends requests like httperf. Each of ``workers`` needs ``page`` seconds per
    request.

    A reading starts with an empty queue, because the ramp-up has ended.
    """

    page: float
    workers: int
    slo: Slo
    seed: int
    readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def take_reading(self, rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        ramp = (
            self._send(rate, ramp_seconds) if rate * ramp_seconds >= 1 else Reading(rate, 1, 1, 0)
        )
        has_run_away = ramp.violations > RUNAWAY_VIOLATION_SHARE * ramp.intended
        reading = ramp if has_run_away else self._send(rate, seconds)
        self.readings.append(reading)
        return WatchedReading(reading, Observations())

    def _send(self, rate: float, seconds: float) -> Reading:
        count = self._count_requests(rate, seconds)
        gaps = self._random.exponential(size=count)
        arrivals = np.cumsum(gaps) * seconds / gaps.sum()
        latencies = list_latencies(arrivals.tolist(), self.page, self.workers)
        late = sum(latency > self.slo.limit for latency in latencies)
        histogram = Counter(round(latency, 2) + 0.01 for latency in latencies)
        return Reading(rate, seconds, count, late, {}, histogram)

    def _count_requests(self, rate: float, seconds: float) -> int:
        mean = rate * seconds
        if mean >= httperf.FEW_REQUESTS or rate >= httperf.SLOW_RATE:
            return LoadSpec(rate, seconds).request_count
        return max(1, int(self._random.poisson(mean)))

    def find_bottleneck(self, settings: Settings, watched: object) -> None:
        return None

    def estimate_capacities(
        self, settings: Settings, watched: object
    ) -> dict[str, InstanceCapacity]:
        return {}

    def begin_measurement(self, *, is_deployed: bool) -> tuple[()]:
        return ()

    def end_warm_up(self, windows: int) -> None:
        """Discard nothing, because responses are not checked."""

    def count_cache_lookups(self) -> None:
        return None

    def probe_latency(self) -> float:
        return self.page

    def wait_until_drained(self) -> float:
        """Return at once, because each reading starts with an empty queue."""
        return self.page
