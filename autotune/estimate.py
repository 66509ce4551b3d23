"""A positive quantity and how sure it is: a capacity, or the ratio of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

MIN_LOG_SD: Final = 0.005  # no search knows the capacity better than this
# The sd of a log peak from one measurement to the next, beyond the sd that each states.
MEASUREMENT_LOG_SD: Final = 0.05


def normal_half_width(level: float) -> float:
    """How many standard deviations either side of the mean hold ``level`` of a normal distribution,
    as tables give it: 1.645 for 90 %."""
    return round(NormalDist().inv_cdf(0.5 + level / 2), 3)


SDS_WITHIN_90: Final = normal_half_width(0.90)


class InstanceCapacity(NamedTuple):
    """What a part of a stack carries: the logarithm of requests/s, its sd, and the tiers whose
    parameters it depends on."""

    log: float
    sd: float
    tiers: tuple[str, ...]


@dataclass(frozen=True)
class Estimate:
    """Normal distribution of the quantity's logarithm."""

    log_mean: float
    sd: float

    @classmethod
    def from_value(cls, value: float, sd: float = 0.0) -> Estimate:
        """``sd`` is that of the logarithm; raises ``ValueError`` unless ``value`` is positive."""
        return cls(log(value), sd)

    @property
    def value(self) -> float:
        return exp(self.log_mean)

    def interval(self, level: float = 0.90) -> tuple[float, float]:
        """The ends of the interval that holds the quantity with probability ``level``."""
        half = normal_half_width(level) * self.sd
        return exp(self.log_mean - half), exp(self.log_mean + half)

    def ratio_to(self, other: Estimate) -> Estimate:
        """This quantity over another one that was measured independently."""
        return Estimate(self.log_mean - other.log_mean, hypot(self.sd, other.sd))

    def add_noise(self, sd: float) -> Estimate:
        """With independent noise added: ``sd`` is that of its logarithm."""
        return Estimate(self.log_mean, hypot(self.sd, sd))

    @classmethod
    def pool(cls, estimates: Sequence[Estimate]) -> Estimate:
        """Several measurements of one quantity: the mean of the logs, weighted by precision.

        Where they scatter more than their sds tell, the sd is widened by the scale factor of the
        Particle Data Group (Review of Particle Physics, Introduction, section 5.2.2).
        """
        weights = [max(estimate.sd, MIN_LOG_SD) ** -2 for estimate in estimates]
        total = sum(weights)
        weighted = list(zip(weights, estimates, strict=True))
        mean = sum(weight * estimate.log_mean for weight, estimate in weighted) / total
        chi_square = sum(weight * (e.log_mean - mean) ** 2 for weight, e in weighted)
        freedom = len(estimates) - 1
        scale = max(1.0, sqrt(chi_square / freedom)) if freedom else 1.0
        return cls(mean, scale / sqrt(total))
