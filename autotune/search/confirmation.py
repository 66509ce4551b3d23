"""The gain of a winner over the baseline, from alternating readings taken after it was chosen.

Measurements come in the order A B B A A B B A …, so that steady drift cancels.
Each neighbouring pair gives one log-ratio. Their spread is estimated with what the peak searches say of
their own uncertainty as prior knowledge (scaled inverse-chi-square, ``PRIOR_WEIGHT`` pairs' worth),
so that two pairs which happen to agree do not pretend to certainty; the interval is Student's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from scipy.special import stdtrit  # not scipy.stats: it takes a second to import

PRIOR_WEIGHT = 4.0
COVERAGE = 0.90
# Looking after every pair and stopping at the first success would claim too often: before the last
# look the evidence must be stronger.
EARLY_COVERAGE = 0.98
LEAST_PAIRS = 3


@dataclass(frozen=True)
class Measured:
    """One peak: ``peak`` in requests/s and the sd of its logarithm; ``winner`` or baseline."""

    winner: bool
    peak: float
    sd: float


@dataclass(frozen=True)
class Gain:
    """Winner over baseline: 1.41 is 41 % more. ``pairs`` of readings stand behind it."""

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def improved(self) -> bool:
        return self.low > 1.0


def side(index: int) -> bool:
    """Whether the ``index``-th measurement (from 0) is the winner's: A B B A A B B A …"""
    return index % 4 in (1, 2)


def gain(measured: Sequence[Measured], coverage: float = COVERAGE) -> Gain | None:
    """The gain after these measurements, in the order taken; ``None`` before the first pair."""
    ratios, variances = [], []
    for first, second in zip(measured[::2], measured[1::2], strict=False):
        winner, baseline = (first, second) if first.winner else (second, first)
        ratios.append(log(winner.peak / baseline.peak))
        variances.append(winner.sd**2 + baseline.sd**2)
    if not ratios:
        return None
    pairs = len(ratios)
    mean = sum(ratios) / pairs
    scatter = sum((ratio - mean) ** 2 for ratio in ratios)
    freedom = PRIOR_WEIGHT + pairs - 1
    variance = (PRIOR_WEIGHT * sum(variances) / pairs + scatter) / freedom
    half = float(stdtrit(freedom, 0.5 + coverage / 2)) * sqrt(variance / pairs)
    return Gain(exp(mean), exp(mean - half), exp(mean + half), pairs)


def decided(measured: Sequence[Measured]) -> bool:
    """Whether the evidence is strong enough to stop before the reserve is spent."""
    if len(measured) % 2 or len(measured) < 2 * LEAST_PAIRS:
        return False
    early = gain(measured, EARLY_COVERAGE)
    return early is not None and (early.low > 1.0 or early.high < 1.0)
