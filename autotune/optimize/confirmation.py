"""The gain of a winner over the baseline, from alternating readings taken after it was chosen.

Measurements come in the order A B B A A B B A …, so that steady drift cancels.
Each neighbouring pair gives one log-ratio. The spread of these is estimated with the peak searches' own
uncertainty as a prior (scaled inverse-chi-square, ``PRIOR_WEIGHT`` pairs' worth), so that pairs which
happen to agree do not look certain; the interval is Student's. Fewer than ``LEAST_PAIRS`` prove
nothing: they do not show how much such pairs differ.
A measurement far below the median of its side was disturbed: its pair is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import fmean, median

from autotune.estimate import LEAST_SD, Estimate, deviations

PRIOR_WEIGHT = 3.0
COVERAGE = 0.90
# Looking after every pair and stopping at the first success would claim an improvement too often, and
# too large a one: before the last look the evidence must be stronger.
EARLY_COVERAGE = 0.995
LEAST_PAIRS = 3
# An improvement is claimed when even this interval lies above 1. If the noise is as assumed, the claim
# is wrong in one study of forty, and in somewhat more with looks before the last one.
CLAIM_COVERAGE = 0.95
DISTURBED = 4.0  # sds below the median of its side, or from one repeat to the next
CLEARLY = 0.15  # and at least this difference of logarithms
DISAGREE = 0.05  # test beds disagree if equal ones would differ as much with a chance below this


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
    ratios = _ratios(measured)
    return _interval(ratios, len(ratios), coverage) if ratios else None


def _interval(ratios: Sequence[Estimate], pairs: int, coverage: float) -> Gain:
    from scipy.special import stdtrit  # not scipy.stats: it takes a second to import

    count = len(ratios)
    mean = sum(ratio.log_mean for ratio in ratios) / count
    scatter = sum((ratio.log_mean - mean) ** 2 for ratio in ratios)
    freedom = PRIOR_WEIGHT + count - 1
    variance = (PRIOR_WEIGHT * sum(ratio.sd**2 for ratio in ratios) / count + scatter) / freedom
    half = float(stdtrit(freedom, 0.5 + coverage / 2)) * sqrt(variance / count)
    return Gain(exp(mean), exp(mean - half), exp(mean + half), pairs)


def proven(measured: Sequence[Measured]) -> bool:
    """Whether the winner is better than what it is compared with."""
    return _proves(gain(measured, CLAIM_COVERAGE))


def _proves(claim: Gain | None) -> bool:
    return claim is not None and claim.pairs >= LEAST_PAIRS and claim.low > 1.0


def decided(measured: Sequence[Measured]) -> bool:
    """Whether the evidence is strong enough to stop before the reserve is spent."""
    return not len(measured) % 2 and _decides(gain(measured, EARLY_COVERAGE))


def _decides(early: Gain | None) -> bool:
    if early is None or early.pairs < LEAST_PAIRS:
        return False
    return early.low > 1.0 or early.high < 1.0


@dataclass(frozen=True)
class BedProof:
    """The alternating measurements of several test beds, whole pairs each.

    Pairs are within a bed, so that its offset cancels. Where the gains of beds differ by more than
    their pairs scatter (Cochran's Q), they ``disagree``: then each bed counts as one observation,
    and the interval is wide, for there are few of them.
    """

    measured: Mapping[str, Sequence[Measured]]

    @property
    def gains(self) -> dict[str, Gain]:
        """The gain on each bed that has a pair."""
        gains = {bed: gain(measured) for bed, measured in self.measured.items()}
        return {bed: gain for bed, gain in gains.items() if gain is not None}

    @property
    def disagree(self) -> bool:
        from scipy.special import chdtrc

        means = self._means()
        if len(means) < 2:
            return False
        weights = [max(mean.sd, LEAST_SD) ** -2 for mean in means]
        middle = sum(w * m.log_mean for w, m in zip(weights, means, strict=True)) / sum(weights)
        q = sum(w * (m.log_mean - middle) ** 2 for w, m in zip(weights, means, strict=True))
        return float(chdtrc(len(means) - 1, q)) < DISAGREE

    def gain(self, coverage: float = COVERAGE) -> Gain | None:
        """The gain over all beds together; ``None`` before the first pair."""
        ratios = [ratio for each in self._ratios() for ratio in each]
        if not ratios:
            return None
        return _interval(self._means() if self.disagree else ratios, len(ratios), coverage)

    @property
    def proven(self) -> bool:
        """Whether the winner is better over all beds together, and clearly worse on none."""
        worse = any(gain.high < 1.0 and gain.pairs > 1 for gain in self.gains.values())
        return _proves(self.gain(CLAIM_COVERAGE)) and not worse

    @property
    def decided(self) -> bool:
        """As the function `decided`, once two beds (or the only one) have a pair each."""
        enough = len(self.gains) >= min(2, len(self.measured))
        return enough and _decides(self.gain(EARLY_COVERAGE))

    def _ratios(self) -> list[list[Estimate]]:
        return [ratios for measured in self.measured.values() if (ratios := _ratios(measured))]

    def _means(self) -> list[Estimate]:
        """The mean log-ratio of each bed, its sd by the scatter of all beds' pairs."""
        ratios = self._ratios()
        spread = sum(
            (r.log_mean - fmean(q.log_mean for q in each)) ** 2 for each in ratios for r in each
        )
        count = sum(map(len, ratios))
        prior = PRIOR_WEIGHT * sum(r.sd**2 for each in ratios for r in each) / max(count, 1)
        variance = (prior + spread) / (PRIOR_WEIGHT + count - len(ratios))
        return [
            Estimate(fmean(r.log_mean for r in each), sqrt(variance / len(each))) for each in ratios
        ]


def _ratios(measured: Sequence[Measured]) -> list[Estimate]:
    """Winner over baseline, of each pair in which nothing was disturbed."""
    lowest = {side: least([m.peak for m in measured if m.winner is side]) for side in (True, False)}
    ratios = []
    for first, second in zip(measured[::2], measured[1::2], strict=False):
        winner, baseline = (first, second) if first.winner else (second, first)
        if winner.peak.value >= lowest[True] and baseline.peak.value >= lowest[False]:
            ratios.append(winner.peak.ratio(baseline.peak))
    return ratios


def spread(steps: Sequence[float]) -> float:
    """Sd of one measurement's logarithm, by ``steps``: the difference of each repeat of a configuration
    from the measurement before. Steps to or from a disturbed measurement are left out, as in pairs."""
    # Half of the steps are within ``deviations(0.5)`` sds, so the quotient is the sd of a step.
    most = _disturbance(median(abs(step) for step in steps) / deviations(0.5))
    return sqrt(fmean(step**2 for step in steps if abs(step) <= most) / 2)


def least(peaks: Sequence[Estimate]) -> float:
    """A measurement of one configuration below this was disturbed; 0 for too few to tell."""
    if len(peaks) < LEAST_PAIRS:
        return 0.0
    ranked = sorted(peak.value for peak in peaks)
    sd = sum(peak.sd for peak in peaks) / len(peaks)
    return ranked[len(ranked) // 2] * exp(-_disturbance(sd))


def _disturbance(sd: float) -> float:
    """The difference of logarithms beyond which a measurement was disturbed, at noise of this sd."""
    return max(DISTURBED * sd, CLEARLY)
