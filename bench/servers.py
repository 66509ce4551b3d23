"""Servers with a known peak, whose readings are counts drawn from a queueing formula.

Below saturation the wait has the stationary law of M/M/c (Erlang C, exponential tail), with the
tail stretched by ``(1 + cv**2) / 2`` for services that vary more; the service time comes on top.
Above saturation the backlog grows for as long as the reading lasts. The true peak solves the
stationary formula without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import exp, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from autotune.measure import Reading, Slo

Array = NDArray[np.float64]
_PARTS = 64  # points of the service time's distribution
STOLEN = 0.06  # of the CPU time, in a reading of a storm
_MOMENTS = 24  # points of a reading


@dataclass(frozen=True)
class Server:
    """``workers`` with a mean service of ``service`` seconds. ``cv``: its coefficient of variation,
    exponential at 1.0 and log-normal otherwise. ``abrupt``: overload fails most requests at once.
    """

    workers: int = 8
    service: float = 0.005
    cv: float = 1.0
    abrupt: bool = False

    @property
    def saturation(self) -> float:
        """Requests/s at which the workers are always busy."""
        return self.workers / self.service

    @cached_property
    def services(self) -> Array:
        """Equally likely service times in seconds."""
        u = (np.arange(_PARTS * 16) + 0.5) / (_PARTS * 16)
        if self.cv == 1.0:
            return np.asarray(-self.service * np.log1p(-u))
        spread = sqrt(log(1.0 + self.cv**2))
        return np.asarray(self.service * np.exp(spread * _normal_quantile(u) - spread**2 / 2.0))

    def late(self, use: float, limit: float, seconds: float | None) -> float:
        """Chance that a request takes longer than ``limit`` at utilisation ``use``.

        Over a reading of ``seconds`` from an idle start, or in the long run (``None``).
        """
        if seconds is None and use >= 1.0:
            return 1.0
        # In so many seconds no queue reaches the stationary state of a utilisation this close to 1.
        cap = 1.0 if seconds is None else 1.0 - 0.5 / sqrt(self.saturation * seconds)
        settled = min(use, cap)
        tail = self.saturation * (1.0 - settled) * 2.0 / (1.0 + self.cv**2)
        waits = _erlang_c(self.workers, settled)
        if use <= 1.0 or seconds is None:
            growth = np.zeros(1)
        else:
            growth = (use - 1.0) * seconds * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
        left = limit - growth[:, None] - self.services[None, :]
        beyond = np.where(left > 0, waits * np.exp(-tail * np.maximum(left, 0.0)), 1.0)
        fraction = float(beyond.mean())
        return max(fraction, 0.9) if self.abrupt and use > 1.0 else fraction

    def peak(self, slo: Slo) -> float:
        """The true peak in requests/s: the highest rate whose long-run violations are allowed."""
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2.0
            good = self.late(middle, slo.limit, None) <= slo.allowed_violations
            low, high = (middle, high) if good else (low, middle)
        return low * self.saturation


@dataclass
class Bench:
    """A server under test: counts readings and the load they cost.

    ``noise``: sd of log capacity per reading; ``disturbed``: part of the readings with 30 % less;
    ``drift``: log capacity gained over 100 s of load. ``cut``: a reading with more than half of its
    requests violated is given up after a second, as a careful generator does. In ``stormy`` of the
    readings ``STOLEN`` of the CPU time is stolen, which takes ``lost`` of the capacity.
    """

    server: Server
    slo: Slo
    rng: np.random.Generator
    noise: float = 0.03
    disturbed: float = 0.05
    drift: float = 0.0
    overhead: float = 1.0
    cut: bool = True
    stormy: float = 0.0
    lost: float = 0.0
    stolen: float = field(default=0.0, init=False)
    spent: float = field(default=0.0, init=False)
    count: int = field(default=0, init=False)

    def __call__(self, rate: float, seconds: float) -> Reading:
        """One reading."""
        use = rate / (self.server.saturation * self.capacity())
        truncated = False
        fraction = self.server.late(use, self.slo.limit, seconds)
        if self.cut and seconds > 1.0 and self.server.late(use, self.slo.limit, 1.0) > 0.5:
            fraction, seconds, truncated = self.server.late(use, self.slo.limit, 1.0), 1.0, True
        intended = max(1, int(self.rng.poisson(rate * seconds)))
        self.spent += seconds + self.overhead
        self.count += 1
        return Reading(
            rate=rate,
            seconds=seconds,
            intended=intended,
            violations=int(self.rng.binomial(intended, fraction)),
            truncated=truncated,
            stolen=self.stolen,
        )

    def capacity(self) -> float:
        """The capacity that the next reading meets, relative to the server's."""
        gain = self.drift * self.spent / 100.0 - self.noise * self.rng.standard_normal()
        capacity = exp(gain) * (0.7 if self.rng.random() < self.disturbed else 1.0)
        self.stolen = STOLEN if self.stormy and self.rng.random() < self.stormy else 0.0
        return capacity * (1.0 - self.lost if self.stolen else 1.0)


@lru_cache(maxsize=4096)
def _erlang_c(workers: int, use: float) -> float:
    """Chance that a request waits in M/M/c (Erlang 1917)."""
    if use >= 1.0:
        return 1.0
    load = workers * use
    if load <= 0.0:
        return 0.0
    terms = [k * log(load) - lgamma(k + 1) for k in range(workers)]
    top = workers * log(load) - lgamma(workers + 1) - log(1.0 - use)
    return 1.0 / (1.0 + sum(exp(min(t - top, 600.0)) for t in terms))


def _normal_quantile(u: Array) -> Array:
    """Standard normal quantiles."""
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf
    return np.array([inverse(float(v)) for v in u])
