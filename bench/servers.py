"""Servers with a known peak. The counts in their readings are drawn from a queueing formula.

Below saturation, the wait has the stationary distribution of M/M/c (Erlang C, exponential tail).
Its tail is stretched by ``(1 + cv**2) / 2`` for more variable service times. The service time is
added to the wait. Above saturation, the backlog grows as long as the reading lasts. The true peak
is the solution of the stationary formula without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import exp, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from autotune.measure import Reading, Slo

Array = NDArray[np.float64]
_PARTS = 64  # number of points in the distribution of service times
STOLEN = 0.06  # share of CPU time that is stolen in a disturbed reading
_MOMENTS = 24  # number of points in a reading


@dataclass(frozen=True)
class Server:
    """A server with ``workers`` and a mean service time of ``service`` seconds. ``cv`` is the
    coefficient of variation of the service time, which is exponential for 1.0 and otherwise
    log-normal. ``abrupt`` servers fail most requests immediately in an overload.
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
        """Return equally likely service times in seconds."""
        u = (np.arange(_PARTS * 16) + 0.5) / (_PARTS * 16)
        if self.cv == 1.0:
            return np.asarray(-self.service * np.log1p(-u))
        spread = sqrt(log(1.0 + self.cv**2))
        return np.asarray(self.service * np.exp(spread * _normal_quantile(u) - spread**2 / 2.0))

    def late(self, use: float, limit: float, seconds: float | None) -> float:
        """Return the probability that a request takes longer than ``limit`` at utilisation ``use``.

        It applies to a reading of ``seconds`` from an idle start, or to the long run if ``seconds``
        is ``None``.
        """
        if seconds is None and use >= 1.0:
            return 1.0
        # Within ``seconds``, no queue reaches the stationary state of a utilisation above this
        # limit.
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
        """Return the true peak in requests/s: the highest rate whose long-run violations are
        allowed.
        """
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
    30 % less capacity, and ``drift`` the gain of log capacity over 100 s of load. With ``cut``, a
    reading in which more than half of the requests violate the SLO stops after a second, as with a
    careful generator. In the share ``stormy`` of the readings, the share ``STOLEN`` of the CPU time
    is stolen, which costs the share ``lost`` of the capacity.
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
        """Return one reading."""
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
        """Return the capacity during the next reading, relative to the server's."""
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
    """Return standard normal quantiles."""
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf
    return np.array([inverse(float(v)) for v in u])
