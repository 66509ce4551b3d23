"""A positive quantity with its uncertainty: a capacity, or the ratio of two capacities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

MIN_LOG_SD: Final = 0.005  # smallest sd of a log peak, because no search measures more precisely
# The sd of a log peak between measurements, in addition to the sd of each measurement.
MEASUREMENT_LOG_SD: Final = 0.05


def compute_half_width(level: float) -> float:
    """Return the half width of a normal distribution's central interval, in standard deviations.

    ``level`` is the probability of the interval. For 0.9, the result is 1.645.
    """
    return round(NormalDist().inv_cdf(0.5 + level / 2), 3)


SDS_WITHIN_90: Final = compute_half_width(0.90)


class InstanceCapacity(NamedTuple):
    """The capacity of one service instance: the logarithm of requests/s, and the sd of the logarithm.

    ``tiers`` are the tiers whose parameters affect the capacity.
    """

    log: float
    sd: float
    tiers: tuple[str, ...]


@dataclass(frozen=True)
class Estimate:
    """An estimate of a positive quantity: a normal distribution of its logarithm."""

    log_mean: float
    sd: float

    @classmethod
    def from_value(cls, value: float, sd: float = 0.0) -> Estimate:
        """Return the estimate for ``value``. ``sd`` is the standard deviation of its logarithm.

        Raises ValueError unless ``value`` is positive.
        """
        return cls(log(value), sd)

    @property
    def value(self) -> float:
        return exp(self.log_mean)

    def interval(self, level: float = 0.90) -> tuple[float, float]:
        """Return the limits of the interval that contains the quantity with probability ``level``."""
        half_width = compute_half_width(level) * self.sd
        return exp(self.log_mean - half_width), exp(self.log_mean + half_width)

    @property
    def differs_from_one(self) -> bool:
        """True if the 90 % interval excludes 1, so the two quantities of a ratio differ."""
        return abs(self.log_mean) > SDS_WITHIN_90 * self.sd

    def ratio_to(self, other: Estimate) -> Estimate:
        """Return this quantity divided by an independently measured quantity."""
        return Estimate(self.log_mean - other.log_mean, hypot(self.sd, other.sd))

    def widen_by_noise(self, sd: float) -> Estimate:
        """Return the estimate with additional independent noise, whose sd of the logarithm is ``sd``."""
        return Estimate(self.log_mean, hypot(self.sd, sd))

    @classmethod
    def pool(cls, estimates: Sequence[Estimate]) -> Estimate:
        """Return the precision-weighted mean, on the log scale, of several measurements of one
        quantity.

        If the measurements scatter more than their sds allow, a scale factor widens the sd
        (Particle Data Group, Review of Particle Physics, Introduction, section 5.2.2).
        """
        weights = [max(estimate.sd, MIN_LOG_SD) ** -2 for estimate in estimates]
        total_weight = sum(weights)
        weighted_estimates = list(zip(weights, estimates, strict=True))
        mean = (
            sum(weight * estimate.log_mean for weight, estimate in weighted_estimates)
            / total_weight
        )
        chi_square = sum(weight * (e.log_mean - mean) ** 2 for weight, e in weighted_estimates)
        degrees_of_freedom = len(estimates) - 1
        scale = max(1.0, sqrt(chi_square / degrees_of_freedom)) if degrees_of_freedom else 1.0
        return cls(mean, scale / sqrt(total_weight))
