"""The outcome of a capacity search, as a study keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from autotune.estimate import WITHIN_90, Estimate

LIMITED = "limited"


@dataclass(frozen=True)
class Peak:
    """The outcome of one peak search: requests/s, its 90 % interval, the sd of its logarithm.

    If the load could not be raised to where the peak is, ``limit`` says what limited it, and ``peak`` is
    a lower bound: the highest rate that met the SLO.

    ``p99`` is the 99th percentile, in seconds, of the highest reading up to the peak that met the
    SLO.
    """

    peak: float
    low: float
    high: float
    sd: float
    verdict: str
    p99: float | None = None
    limit: str | None = None

    @classmethod
    def of(cls, estimate: Estimate) -> Peak:
        """With the interval of the estimate."""
        return cls(estimate.value, *estimate.interval(), estimate.sd, "measured")

    @property
    def estimate(self) -> Estimate:
        """The estimate of a feasible peak."""
        return Estimate.of(self.peak, self.sd)

    @property
    def upper_sd(self) -> float:
        """The sd of the upper side of the interval: a pruned search did not look for a lower bound."""
        return log(self.high / self.peak) / WITHIN_90

    @property
    def feasible(self) -> bool:
        """Whether this is an estimate of the peak, which other peaks can be compared with."""
        return self.verdict not in ("unmeetable", LIMITED) and self.peak > 0

    @property
    def limited(self) -> bool:
        """Whether the load could not be raised to where the peak is."""
        return self.verdict == LIMITED

    @property
    def met(self) -> bool:
        """Whether any load met the objective: the capacity is ``peak``, or at least ``peak``."""
        return self.feasible or (self.limited and self.peak > 0)

    @property
    def screened(self) -> bool:
        """Whether the search gave up because this would hardly beat the best: a ceiling, not a peak."""
        return self.verdict == "screened"
