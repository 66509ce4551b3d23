"""Values of any sign, to be made large or small, as scores: positive numbers, the more the better.

A study compares peaks by their ratios. What a user's own benchmark answers may be a time to make
small, or a difference that crosses zero. The study's first value (the baseline's, where it has one)
sets the scale:

- above zero, ratios count: the log of the score is that of the value (its negative, to be made
  small). Below ``TINY`` of the first value it goes on as an inverse hyperbolic sine, so that zero
  and what lies beyond it has a place too;
- otherwise differences count, in units of the first value's size.

Both are smooth, strictly monotone and invertible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import asinh, cosh, exp, log, sinh, sqrt

TINY = 0.01
_FARTHEST = 690.0  # exp() and sinh() of more than this are no numbers any more


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
        """``value`` itself where that is positive and to be made large."""
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


# Before anything was repeated: what a benchmark on a machine of its own is likely to do, with next
# to no weight beside evidence.
ASSUMED_SD = 0.05
ASSUMED_WEIGHT = 0.02  # degrees of freedom
EXACT_SD = 1e-4  # of a benchmark that has always given the same answer twice


def scatter(groups: Iterable[Sequence[float]]) -> float:
    """The sd of one value, pooled over groups of log scores of one configuration each."""
    freedom, squares = 0, 0.0
    for group in groups:
        if len(group) > 1:
            mean = sum(group) / len(group)
            squares += sum((item - mean) ** 2 for item in group)
            freedom += len(group) - 1
    if freedom >= 2 and squares < freedom * EXACT_SD**2:
        return EXACT_SD
    return sqrt((ASSUMED_WEIGHT * ASSUMED_SD**2 + squares) / (ASSUMED_WEIGHT + freedom))
