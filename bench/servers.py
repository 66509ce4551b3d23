"""Servers with a known peak, whose violation counts are drawn from a queueing formula.

A response time is a waiting time plus a service time. Below saturation, waiting times have the stationary
distribution of M/M/c (Erlang C, exponential tail). The tail is stretched by ``(1 + cv**2) / 2`` for more
variable service times. Above saturation, the backlog grows as long as a reading takes. The true peak is
computed from the stationary distribution without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import exp, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from autotune.measure import Reading, Slo

Array = NDArray[np.float64]
_PARTS = 64  # a sixteenth of the number of service times that represent their distribution
STOLEN = 0.06  # share of CPU time that is stolen in a disturbed reading
_MOMENTS = 24  # number of moments of a reading for which the backlog is computed


@dataclass(frozen=True)
class Server:
    """A server with ``workers`` and a mean service time of ``service`` seconds.

    ``cv`` is the coefficient of variation of service times. They are exponential if ``cv`` is 1.0, and
    otherwise log-normal. In an overload, most requests to an ``abrupt`` server fail immediately.
    """

    workers: int = 8
    service: float = 0.005
    cv: float = 1.0
    abrupt: bool = False

    @property
    def saturation(self) -> float:
        """Return the requests/s at which all workers are always busy."""
        return self.workers / self.service

    @cached_property
    def services(self) -> Array:
        """Return service times in seconds, which are equally likely."""
        u = (np.arange(_PARTS * 16) + 0.5) / (_PARTS * 16)
        if self.cv == 1.0:
            return np.asarray(-self.service * np.log1p(-u))
        spread = sqrt(log(1.0 + self.cv**2))
        return np.asarray(self.service * np.exp(spread * _normal_quantile(u) - spread**2 / 2.0))

    def late(self, use: float, limit: float, seconds: float | None) -> float:
        """Return the probability that a request takes longer than ``limit`` at utilisation ``use``.

        The server is idle at the beginning of a reading of ``seconds``. If ``seconds`` is ``None``, the
        probability is that of a stationary state.
        """
        if seconds is None and use >= 1.0:
            return 1.0
        # Near saturation, ``seconds`` are too short for a stationary state, so the use is capped.
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
        """Return the true peak, the highest requests/s that meet the SLO in the stationary state."""
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2.0
            good = self.late(middle, slo.limit, None) <= slo.allowed_violations
            low, high = (middle, high) if good else (low, middle)
        return low * self.saturation


@dataclass
class Bench:
    """A server under test, which counts its readings and their seconds under load.

    ``noise`` is the sd of log capacity between readings, ``disturbed`` the share of readings with
    30 % less capacity, and ``drift`` the increase of log capacity over 100 s of load. If ``cut`` is true,
    a reading stops after a second if more than half of its requests have violated the SLO. CPU time is
    stolen in the share ``stormy`` of readings, whose capacity falls by the share ``lost``.
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
        """Take a reading of at most ``seconds``."""
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
        """Draw the capacity during the next reading, as a multiple of the server's usual capacity."""
        gain = self.drift * self.spent / 100.0 - self.noise * self.rng.standard_normal()
        capacity = exp(gain) * (0.7 if self.rng.random() < self.disturbed else 1.0)
        self.stolen = STOLEN if self.stormy and self.rng.random() < self.stormy else 0.0
        return capacity * (1.0 - self.lost if self.stolen else 1.0)


@lru_cache(maxsize=4096)
def _erlang_c(workers: int, use: float) -> float:
    """Return the probability that a request waits in M/M/c (Erlang 1917)."""
    if use >= 1.0:
        return 1.0
    load = workers * use
    if load <= 0.0:
        return 0.0
    terms = [k * log(load) - lgamma(k + 1) for k in range(workers)]
    top = workers * log(load) - lgamma(workers + 1) - log(1.0 - use)
    return 1.0 / (1.0 + sum(exp(min(t - top, 600.0)) for t in terms))


def _normal_quantile(u: Array) -> Array:
    """Return the standard normal quantiles of the probabilities ``u``."""
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf
    return np.array([inverse(float(v)) for v in u])
