"""Convert benchmark values to scores. Values may be negative, and are maximized or minimized. Scores are
positive, and higher scores are better.

A study compares peaks by their ratios. A user's own benchmark may return a time to minimize, or a
difference that can change its sign. The study's first value, usually of the baseline, sets the scale:

- If the first value is positive, values are compared by their ratios. The log score is the log of the
  value, or its negative if values are minimized. Below ``TINY_VALUE_RATIO`` of the first value, an
  inverse hyperbolic sine replaces the log, so that zero and negative values have a score, too.
- Otherwise, values are compared by their differences, in units of the first value's magnitude.

Both scales are smooth, strictly monotone and invertible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import asinh, cosh, exp, log, sinh, sqrt

TINY_VALUE_RATIO = 0.01
_MAX_EXPONENT = 690.0  # exp() and sinh() overflow just above this exponent


@dataclass(frozen=True)
class ObjectiveScale:
    """The scale for comparing the values of one study. ``reference`` is the study's first value."""

    maximize: bool
    reference: float

    @property
    def compares_ratios(self) -> bool:
        """True if values are compared by their ratios."""
        return self.reference > 0

    def log_score(self, value: float) -> float:
        """Return the logarithm of the score of ``value``."""
        return self._offset + self._sign * self._to_linear(value)

    def score(self, value: float) -> float:
        """Return the score of ``value``. If values are maximized, a value that is neither tiny nor
        negative is its own score.
        """
        return exp(max(-_MAX_EXPONENT, min(_MAX_EXPONENT, self.log_score(value))))

    def convert_score_to_value(self, score: float) -> float:
        """Return the value whose score is ``score``."""
        linear_score = self._sign * (log(score) - self._offset)
        if not self.compares_ratios:
            return self.reference + self._linear_unit * _sinh_bounded(linear_score)
        if linear_score >= log(TINY_VALUE_RATIO):
            return self.reference * exp(linear_score)
        return (
            self.reference
            * TINY_VALUE_RATIO
            * (1.0 - _sinh_bounded(log(TINY_VALUE_RATIO) - linear_score))
        )

    def log_score_sd(self, value: float, sd: float) -> float:
        """Return the sd of the log score of ``value``, given the sd of the value."""
        if not self.compares_ratios:
            return (
                sd / self._linear_unit / cosh(asinh((value - self.reference) / self._linear_unit))
            )
        value_ratio = value / self.reference
        if value_ratio >= TINY_VALUE_RATIO:
            return sd / value
        return (
            sd
            / self.reference
            / TINY_VALUE_RATIO
            / sqrt(1.0 + (1.0 - value_ratio / TINY_VALUE_RATIO) ** 2)
        )

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    @property
    def _offset(self) -> float:
        return log(self.reference) if self.compares_ratios and self.maximize else 0.0

    @property
    def _linear_unit(self) -> float:
        return abs(self.reference) or 1.0

    def _to_linear(self, value: float) -> float:
        if not self.compares_ratios:
            return asinh((value - self.reference) / self._linear_unit)
        value_ratio = value / self.reference
        return (
            log(value_ratio)
            if value_ratio >= TINY_VALUE_RATIO
            else log(TINY_VALUE_RATIO) - asinh(1.0 - value_ratio / TINY_VALUE_RATIO)
        )


def _sinh_bounded(unbounded_value: float) -> float:
    return sinh(max(-_MAX_EXPONENT, min(_MAX_EXPONENT, unbounded_value)))


# Assumed scatter before any value is repeated, as on a dedicated machine. Measured scatter soon
# outweighs the assumed scatter.
ASSUMED_SD = 0.05
ASSUMED_WEIGHT = 0.02  # degrees of freedom of the assumed scatter
EXACT_SD = 1e-4  # sd of a benchmark that always returned the same value when repeated
# Highest sd of a log score. A larger sd, such as one that a benchmark stated in another unit, would only
# exceed the range of floating-point numbers.
MAX_SD = 10.0


def pool_sd(log_scores_by_configuration: Iterable[Sequence[float]]) -> float:
    """Return the sd of a single log score, pooled over groups. Each group contains the log scores of
    one configuration.
    """
    degrees_of_freedom, squared_differences = 0, 0.0
    for log_scores in log_scores_by_configuration:
        if len(log_scores) > 1:
            mean_log_score = sum(log_scores) / len(log_scores)
            squared_differences += sum((item - mean_log_score) ** 2 for item in log_scores)
            degrees_of_freedom += len(log_scores) - 1
    if degrees_of_freedom >= 2 and squared_differences < degrees_of_freedom * EXACT_SD**2:
        return EXACT_SD
    return sqrt(
        (ASSUMED_WEIGHT * ASSUMED_SD**2 + squared_differences)
        / (ASSUMED_WEIGHT + degrees_of_freedom)
    )
