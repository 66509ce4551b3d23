"""The servers of `bench.servers`, but with simulated requests, which are served in order of arrival.

Unlike with counts from a formula, violations come in bursts during busy periods, and a reading starts
with the requests that are queued at the end of its warm-up.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from math import log, sqrt

import numpy as np

from autotune.measure import Reading
from bench.servers import Bench


class LiveBench(Bench):
    """A server under test whose requests are simulated one by one.

    The load starts ``overhead`` seconds before a reading.
    """

    def __call__(self, rate: float, seconds: float) -> Reading:
        """Simulate a reading of at most ``seconds``."""
        capacity = self.capacity()
        waited = self._late(rate, self.overhead + seconds, capacity)
        counted = waited[1][waited[0] >= self.overhead]
        first = waited[1][(waited[0] >= self.overhead) & (waited[0] < self.overhead + 1.0)]
        truncated = self.cut and seconds > 1.0 and first.size > 0 and first.mean() > 0.5
        if truncated:
            seconds, counted = 1.0, first
        self.spent += seconds + self.overhead
        self.count += 1
        return Reading(
            rate,
            seconds,
            counted.size,
            int(counted.sum()),
            truncated=bool(truncated),
            stolen=self.stolen,
        )

    def _late(self, rate: float, seconds: float, capacity: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the arrival times of requests in seconds, and a mask of those that exceed the SLO."""
        n = self.rng.poisson(rate * seconds)
        arrivals = np.sort(self.rng.random(n)) * seconds
        cv, mean = self.server.cv, self.server.service / capacity
        spread = sqrt(log(1.0 + cv**2))
        services = (
            self.rng.exponential(mean, n)
            if cv == 1.0
            else self.rng.lognormal(log(mean) - spread**2 / 2.0, spread, n)
        )
        free = [0.0] * self.server.workers
        heapify(free)
        late = np.empty(n, dtype=bool)
        for i, (arrived, service) in enumerate(
            zip(arrivals.tolist(), services.tolist(), strict=True)
        ):
            done = max(free[0], arrived) + service
            heapreplace(free, done)
            late[i] = done - arrived > self.slo.limit
        return arrivals, late
