"""The result of a capacity search, as it is stored in a study."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from autotune.estimate import SDS_WITHIN_90, Estimate

LIMITED_VERDICT = "limited"
UNMET_VERDICT = "unmet"


@dataclass(frozen=True)
class Peak:
    """Result of one peak search: a rate in requests/s, its 90 % interval, and the standard
    deviation of its logarithm.

    If the load could not reach the peak, ``limit`` contains the reason, and ``peak`` is a lower bound:
    the highest rate that met the SLO. ``p99`` is the 99th-percentile latency, in seconds, of the reading
    with the highest rate up to the peak that met the SLO.
    """

    peak: float
    low: float
    high: float
    sd: float
    verdict: str
    p99: float | None = None
    limit: str | None = None

    @classmethod
    def from_estimate(cls, estimate: Estimate) -> Peak:
        """Return a peak with the value and the interval of an estimate."""
        return cls(estimate.value, *estimate.interval(), estimate.sd, "measured")

    @property
    def estimate(self) -> Estimate:
        """Return the peak as an estimate. The peak must be feasible."""
        return Estimate.from_value(self.peak, self.sd)

    @property
    def upper_sd(self) -> float:
        """Return the standard deviation implied by the upper bound of the interval, because a pruned
        search has no lower bound.
        """
        return log(self.high / self.peak) / SDS_WITHIN_90

    @property
    def is_feasible(self) -> bool:
        """True if the peak can be compared with other peaks."""
        return self.verdict not in ("unmeetable", LIMITED_VERDICT) and self.peak > 0

    @property
    def is_load_limited(self) -> bool:
        """True if the load could not reach the peak."""
        return self.verdict == LIMITED_VERDICT

    @property
    def is_unmet(self) -> bool:
        """True if the search ran out of time before any load met the objective. ``peak`` is then an
        estimate.
        """
        return self.verdict == UNMET_VERDICT

    @property
    def met_slo(self) -> bool:
        """True if the objective was met at any rate. The capacity is then ``peak`` or more."""
        return (self.is_feasible and not self.is_unmet) or (self.is_load_limited and self.peak > 0)

    @property
    def is_incomplete(self) -> bool:
        """True if the search stopped before the peak was known, because the peak was pruned or unmet."""
        return self.is_pruned or self.is_unmet

    @property
    def is_rough(self) -> bool:
        """True if the search stopped with a wide interval, because the peak was a multiple of the
        best peak, or because the study is short.
        """
        return self.verdict == "rough"

    @property
    def is_pruned(self) -> bool:
        """True if the search stopped early because the peak was unlikely to exceed the best peak.
        ``peak`` is then an upper bound.
        """
        return self.verdict == "screened"
