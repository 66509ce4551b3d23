"""The gain of a winner over the baseline, from alternating readings taken after it was chosen.

Measurements come in the order A B B A A B B A …, so that steady drift cancels.
Each neighbouring pair gives one log-ratio. Their spread is estimated with what the peak searches say of
their own uncertainty as prior knowledge (scaled inverse-chi-square, ``PRIOR_WEIGHT`` pairs' worth),
so that pairs which happen to agree do not pretend to certainty; the interval is Student's. Fewer than
``LEAST_PAIRS`` prove nothing: nobody knows how much such pairs differ.
A measurement far below all others of its side was disturbed, and takes its pair with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt

from scipy.special import stdtrit  # not scipy.stats: it takes a second to import

from autotune.estimate import Estimate

PRIOR_WEIGHT = 2.0
COVERAGE = 0.90
# Looking after every pair and stopping at the first success would claim too often: before the last
# look the evidence must be stronger.
EARLY_COVERAGE = 0.98
LEAST_PAIRS = 3
# An improvement is claimed when even this interval lies above 1: where the noise is what it is taken
# for, wrongly in one study of forty, and in somewhat more with looks before the last one.
CLAIM_COVERAGE = 0.95
DISTURBED = 4.0  # sds below the median of its side
CLEARLY = 0.15  # and at least so much of its logarithm


@dataclass(frozen=True)
class Measured:
    """One peak in requests/s, of the ``winner`` or the baseline."""

    winner: bool
    peak: Estimate


@dataclass(frozen=True)
class Gain:
    """Winner over baseline: 1.41 is 41 % more. ``pairs`` of readings stand behind it."""

    ratio: float
    low: float
    high: float
    pairs: int


def side(index: int) -> bool:
    """Whether the ``index``-th measurement (from 0) is the winner's: A B B A A B B A …"""
    return index % 4 in (1, 2)


def gain(measured: Sequence[Measured], coverage: float = COVERAGE) -> Gain | None:
    """The gain after these measurements, in the order taken; ``None`` before the first pair."""
    pairs = _pairs(measured)
    if not pairs:
        return None
    ratios = [winner.ratio(baseline) for winner, baseline in pairs]
    count = len(ratios)
    mean = sum(ratio.log_mean for ratio in ratios) / count
    scatter = sum((ratio.log_mean - mean) ** 2 for ratio in ratios)
    freedom = PRIOR_WEIGHT + count - 1
    variance = (PRIOR_WEIGHT * sum(ratio.sd**2 for ratio in ratios) / count + scatter) / freedom
    half = float(stdtrit(freedom, 0.5 + coverage / 2)) * sqrt(variance / count)
    return Gain(exp(mean), exp(mean - half), exp(mean + half), count)


def proven(measured: Sequence[Measured]) -> bool:
    """Whether the winner is better than what it is compared with."""
    claim = gain(measured, CLAIM_COVERAGE)
    return claim is not None and claim.pairs >= LEAST_PAIRS and claim.low > 1.0


def decided(measured: Sequence[Measured]) -> bool:
    """Whether the evidence is strong enough to stop before the reserve is spent."""
    early = gain(measured, EARLY_COVERAGE)
    if len(measured) % 2 or early is None or early.pairs < LEAST_PAIRS:
        return False
    return early.low > 1.0 or early.high < 1.0


def _pairs(measured: Sequence[Measured]) -> list[tuple[Estimate, Estimate]]:
    """Winner and baseline of each pair in which nothing was disturbed."""
    least = {side: _least([m for m in measured if m.winner is side]) for side in (True, False)}
    pairs = []
    for first, second in zip(measured[::2], measured[1::2], strict=False):
        winner, baseline = (first, second) if first.winner else (second, first)
        if winner.peak.value >= least[True] and baseline.peak.value >= least[False]:
            pairs.append((winner.peak, baseline.peak))
    return pairs


def _least(side: Sequence[Measured]) -> float:
    """Peaks below this were disturbed, by what else was measured on this side."""
    if len(side) < LEAST_PAIRS:
        return 0.0
    ranked = sorted(measured.peak.value for measured in side)
    sd = sum(measured.peak.sd for measured in side) / len(side)
    return ranked[len(ranked) // 2] * exp(-max(DISTURBED * sd, CLEARLY))
