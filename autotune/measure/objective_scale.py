"""Values of any sign, to be maximized or minimized, as scores: positive numbers, higher is better.

A study compares peaks by their ratios. What a user's own benchmark answers may be a time to
minimize, or a difference that crosses zero. The study's first value (the baseline's, where it has one)
sets the scale:

- if it is above zero, ratios count: the log of the score is the log of the value, or its negative
  if values are minimized. Below ``TINY`` of the first value the log continues as an inverse hyperbolic
  sine, so that zero and negative values have a place too;
- otherwise differences count, in units of the first value's size.

Both are smooth, strictly monotone and invertible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import asinh, cosh, exp, log, sinh, sqrt

TINY = 0.01
_FARTHEST = 690.0  # exp() and sinh() overflow not far beyond this


@dataclass(frozen=True)
class Scale:
    """How the values of one study compare; ``reference`` is its first value."""

    maximize: bool
    reference: float

    @property
    def ratios(self) -> bool:
        """Whether values compare by their ratios."""
        return self.reference > 0

    def log(self, value: float) -> float:
        """The log of the score of ``value``."""
        return self._offset + self._sign * self._place(value)

    def score(self, value: float) -> float:
        """``value`` itself if large is good, and it is neither negative nor tiny beside the reference."""
        return exp(max(-_FARTHEST, min(_FARTHEST, self.log(value))))

    def value(self, score: float) -> float:
        """The value with this score."""
        place = self._sign * (log(score) - self._offset)
        if not self.ratios:
            return self.reference + self._unit * _sinh(place)
        if place >= log(TINY):
            return self.reference * exp(place)
        return self.reference * TINY * (1.0 - _sinh(log(TINY) - place))

    def sd(self, value: float, sd: float) -> float:
        """The sd of the log of the score, of a value with the standard deviation ``sd``."""
        if not self.ratios:
            return sd / self._unit / cosh(asinh((value - self.reference) / self._unit))
        share = value / self.reference
        if share >= TINY:
            return sd / value
        return sd / self.reference / TINY / sqrt(1.0 + (1.0 - share / TINY) ** 2)

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    @property
    def _offset(self) -> float:
        return log(self.reference) if self.ratios and self.maximize else 0.0

    @property
    def _unit(self) -> float:
        return abs(self.reference) or 1.0

    def _place(self, value: float) -> float:
        if not self.ratios:
            return asinh((value - self.reference) / self._unit)
        share = value / self.reference
        return log(share) if share >= TINY else log(TINY) - asinh(1.0 - share / TINY)


def _sinh(place: float) -> float:
    return sinh(max(-_FARTHEST, min(_FARTHEST, place)))


# The scatter assumed before any value was repeated: what a benchmark on a dedicated machine is likely
# to show. It has next to no weight once there is evidence.
ASSUMED_SD = 0.05
ASSUMED_WEIGHT = 0.02  # degrees of freedom
EXACT_SD = 1e-4  # of a benchmark that gave the same answer whenever it was repeated


def scatter(groups: Iterable[Sequence[float]]) -> float:
    """The sd of one value, pooled over groups of log scores, each group of one configuration."""
    freedom, squares = 0, 0.0
    for group in groups:
        if len(group) > 1:
            mean = sum(group) / len(group)
            squares += sum((item - mean) ** 2 for item in group)
            freedom += len(group) - 1
    if freedom >= 2 and squares < freedom * EXACT_SD**2:
        return EXACT_SD
    return sqrt((ASSUMED_WEIGHT * ASSUMED_SD**2 + squares) / (ASSUMED_WEIGHT + freedom))
