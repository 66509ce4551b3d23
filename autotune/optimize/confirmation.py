"""The gain of a winner over the baseline, from alternating readings taken after the winner was chosen.

Measurements come in the order A B B A A B B A …, so that steady drift cancels out. Each pair of
consecutive measurements gives one log ratio. The variance of the ratios has a scaled inverse-chi-square
prior with the weight of ``PRIOR_WEIGHT`` pairs. The prior follows from the uncertainty of the peak
searches. A few pairs that agree by chance therefore do not seem certain. The interval uses Student's t
distribution. Fewer than ``MIN_PAIRS`` pairs prove nothing, because so few pairs do not show how much
pairs differ. A measurement far below the median of its configuration counts as disturbed, and the pair
is left out.

Pairs that prove a gain are lucky more often than unlucky, so the reported ratio of a proven gain is
corrected. Suppose that the corrected ratio is the true ratio. Half of the studies that prove a gain
would then measure a higher ratio than this study. The interval is not corrected, and contains the
corrected ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import NormalDist, fmean, median

from autotune.estimate import MIN_LOG_SD, Estimate, compute_half_width
from autotune.optimize.outliers import compute_max_repeat_difference, find_outlier_threshold

PRIOR_WEIGHT = 3.0
INTERVAL_COVERAGE = 0.90  # of every interval that autotune shows
# Checking after every pair and stopping at the first success would claim improvements too often and
# overstate their size. Checks before the last check therefore need stronger evidence.
EARLY_COVERAGE = 0.995
MIN_PAIRS = 3
# A gain is claimed if the interval with this coverage is above 1. Without a true gain, the probability
# of a claim is one in forty under the assumed noise. Interim checks raise this probability slightly.
CLAIM_COVERAGE = 0.95
BISECTION_STEPS = 40
# Test beds disagree if equal beds would differ this much with a lower probability.
DISAGREEMENT_PROBABILITY = 0.05


@dataclass(frozen=True)
class SideMeasurement:
    """One peak in requests/s, of the winner (``is_winner``) or the baseline."""

    is_winner: bool
    peak: Estimate


@dataclass(frozen=True)
class Gain:
    """The capacity of the winner relative to the baseline, estimated from a number of ``pairs``. A
    ``ratio`` of 1.41 is 41 % more.
    """

    ratio: float
    low: float
    high: float
    pairs: int


def is_winner_turn(index: int) -> bool:
    """True if measurement ``index`` (from 0) measures the winner in the order A B B A A B B A …"""
    return index % 4 in (1, 2)


def compute_gain(
    measurements: Sequence[SideMeasurement], coverage: float = INTERVAL_COVERAGE
) -> Gain | None:
    """Return the gain from ``measurements`` in chronological order; ``None`` before the first pair."""
    ratios = _list_undisturbed_ratios(measurements)
    return _PairMean.from_ratios(ratios, len(ratios)).build_gain(coverage) if ratios else None


def compute_mean_with_interval(measurements: Sequence[Estimate]) -> tuple[float, float, float]:
    """Return the mean of repeated measurements of one quantity, and the ends of the mean's 90 %
    interval.

    The interval is computed as for the pairs of a proof.
    """
    mean_gain = _PairMean.from_ratios(measurements, len(measurements)).build_gain(INTERVAL_COVERAGE)
    return mean_gain.ratio, mean_gain.low, mean_gain.high


@dataclass(frozen=True)
class _PairMean:
    """The ``mean`` log ratio of some pairs, with its standard ``error`` and degrees of ``freedom``."""

    mean: float
    error: float
    freedom: float
    pairs: int

    @classmethod
    def from_ratios(
        cls, ratios: Sequence[Estimate], pairs: int, prior_weight: float = PRIOR_WEIGHT
    ) -> _PairMean:
        ratio_count = len(ratios)
        mean_log_ratio = sum(ratio.log_mean for ratio in ratios) / ratio_count
        sum_of_squares = sum((ratio.log_mean - mean_log_ratio) ** 2 for ratio in ratios)
        degrees_of_freedom = prior_weight + ratio_count - 1
        prior_sum_of_squares = prior_weight * sum(ratio.sd**2 for ratio in ratios) / ratio_count
        return cls(
            mean_log_ratio,
            sqrt((prior_sum_of_squares + sum_of_squares) / degrees_of_freedom / ratio_count),
            degrees_of_freedom,
            pairs,
        )

    def _compute_half_width(self, coverage: float) -> float:
        """Return half the width of the interval with this coverage, as a log ratio."""
        from scipy.special import stdtrit  # not scipy.stats, whose import takes a second

        return float(stdtrit(self.freedom, 0.5 + coverage / 2)) * self.error

    def build_gain(self, coverage: float) -> Gain:
        half_width = self._compute_half_width(coverage)
        return Gain(
            exp(self.mean), exp(self.mean - half_width), exp(self.mean + half_width), self.pairs
        )

    def build_proven_gain(self) -> Gain:
        """Return the gain with a median-unbiased ratio. The correction assumes that the mean exceeds
        the limit for claiming a gain.
        """
        gain, claim_limit = (
            self.build_gain(INTERVAL_COVERAGE),
            self._compute_half_width(CLAIM_COVERAGE),
        )
        if self.mean <= claim_limit:
            return gain
        low_log_ratio, high_log_ratio = log(gain.low), self.mean
        for _ in range(BISECTION_STEPS):
            middle_log_ratio = (low_log_ratio + high_log_ratio) / 2
            mean_distribution = NormalDist(middle_log_ratio, self.error)
            # If the true mean were above the limit, would this observed mean be unlikely?
            if (1.0 - mean_distribution.cdf(self.mean)) < 0.5 * (
                1.0 - mean_distribution.cdf(claim_limit)
            ):
                low_log_ratio = middle_log_ratio
            else:
                high_log_ratio = middle_log_ratio
        return replace(gain, ratio=exp(high_log_ratio))


def _proves_gain(gain: Gain | None) -> bool:
    return gain is not None and gain.pairs >= MIN_PAIRS and gain.low > 1.0


def _decides_early(gain: Gain | None) -> bool:
    if gain is None or gain.pairs < MIN_PAIRS:
        return False
    return gain.low > 1.0 or gain.high < 1.0


@dataclass(frozen=True)
class Proof:
    """The alternating measurements on each test bed, or on the only stack (key ``None``), in complete
    pairs.

    Both measurements of a pair are made on the same bed, so that the bed's offset cancels out.
    ``beds_disagree`` is true if the gains on the beds differ by more than the scatter of their pairs
    explains (Cochran's Q). If the beds disagree, each bed counts as one observation. The interval is
    then wide, because there are few beds.
    """

    measured: Mapping[str | None, Sequence[SideMeasurement]]

    @property
    def measurement_count(self) -> int:
        """Return the number of measurements on all beds."""
        return sum(map(len, self.measured.values()))

    @property
    def gain_by_bed(self) -> dict[str | None, Gain]:
        """Return the gain on each bed with at least one pair."""
        gains = {bed: compute_gain(measured) for bed, measured in self.measured.items()}
        return {bed: gain for bed, gain in gains.items() if gain is not None}

    @property
    def beds_disagree(self) -> bool:
        from scipy.special import chdtrc

        mean_ratios = self._compute_mean_ratios()
        if len(mean_ratios) < 2:
            return False
        ratio_weights = [max(mean_ratio.sd, MIN_LOG_SD) ** -2 for mean_ratio in mean_ratios]
        weighted_mean = sum(
            weight * m.log_mean for weight, m in zip(ratio_weights, mean_ratios, strict=True)
        ) / sum(ratio_weights)
        cochran_q = sum(
            weight * (m.log_mean - weighted_mean) ** 2
            for weight, m in zip(ratio_weights, mean_ratios, strict=True)
        )
        return float(chdtrc(len(mean_ratios) - 1, cochran_q)) < DISAGREEMENT_PROBABILITY

    def compute_gain(self, coverage: float = INTERVAL_COVERAGE) -> Gain | None:
        """Return the gain estimated from all beds together; ``None`` before the first pair."""
        pair_mean = self._summarize_pairs()
        return pair_mean.build_gain(coverage) if pair_mean else None

    def compute_proven_gain(self) -> Gain | None:
        """Return the corrected gain, for a report of a proven gain; ``None`` before the first pair."""
        pair_mean = self._summarize_pairs()
        return pair_mean.build_proven_gain() if pair_mean else None

    def _summarize_pairs(self) -> _PairMean | None:
        ratios = [ratio for bed_ratios in self._list_pair_ratios() for ratio in bed_ratios]
        if not ratios:
            return None
        if self.beds_disagree:  # the sds of the pairs do not show how much beds differ
            return _PairMean.from_ratios(self._compute_mean_ratios(), len(ratios), prior_weight=0.0)
        return _PairMean.from_ratios(ratios, len(ratios))

    @property
    def is_proven(self) -> bool:
        """True if the winner is better over all beds together, and clearly worse on no bed."""
        is_worse_on_bed = any(
            gain.high < 1.0 and gain.pairs > 1 for gain in self.gain_by_bed.values()
        )
        return _proves_gain(self.compute_gain(CLAIM_COVERAGE)) and not is_worse_on_bed

    @property
    def is_decided(self) -> bool:
        """True if the evidence is strong enough to stop the proof before the reserved time is used up.

        At least two beds (or the only bed) must have measured a pair.
        """
        has_enough_beds = len(self.gain_by_bed) >= min(2, len(self.measured))
        return has_enough_beds and _decides_early(self.compute_gain(EARLY_COVERAGE))

    def _list_pair_ratios(self) -> list[list[Estimate]]:
        return [
            ratios
            for bed_measurements in self.measured.values()
            if (ratios := _list_undisturbed_ratios(bed_measurements))
        ]

    def _compute_mean_ratios(self) -> list[Estimate]:
        """Return the mean log ratio of each bed, with an sd from the scatter of all beds' pairs."""
        ratios_by_bed = self._list_pair_ratios()
        sum_of_squares = sum(
            (ratio.log_mean - fmean(other_ratio.log_mean for other_ratio in bed_ratios)) ** 2
            for bed_ratios in ratios_by_bed
            for ratio in bed_ratios
        )
        ratio_count = sum(map(len, ratios_by_bed))
        prior_sum_of_squares = (
            PRIOR_WEIGHT
            * sum(ratio.sd**2 for bed_ratios in ratios_by_bed for ratio in bed_ratios)
            / max(ratio_count, 1)
        )
        variance = (prior_sum_of_squares + sum_of_squares) / (
            PRIOR_WEIGHT + ratio_count - len(ratios_by_bed)
        )
        return [
            Estimate(
                fmean(ratio.log_mean for ratio in bed_ratios), sqrt(variance / len(bed_ratios))
            )
            for bed_ratios in ratios_by_bed
        ]


def _list_undisturbed_ratios(measurements: Sequence[SideMeasurement]) -> list[Estimate]:
    """Return the ratio of winner to baseline for each pair without a disturbed measurement.

    Drift lowers both measurements of a pair. A pair is left out only if its ratio differs, too.
    """
    pairs = _list_pairs(measurements)
    if not pairs:
        return []
    winner_threshold, baseline_threshold = (
        find_outlier_threshold([m.peak for m in measurements if m.is_winner is side])
        for side in (True, False)
    )
    ratios = [winner_peak.ratio_to(baseline_peak) for winner_peak, baseline_peak in pairs]
    median_log_ratio = median(ratio.log_mean for ratio in ratios)
    max_difference = compute_max_repeat_difference(fmean(ratio.sd for ratio in ratios))
    return [
        ratio
        for ratio, (winner_peak, baseline_peak) in zip(ratios, pairs, strict=True)
        if (winner_peak.value >= winner_threshold and baseline_peak.value >= baseline_threshold)
        or abs(ratio.log_mean - median_log_ratio) <= max_difference
    ]


def _list_pairs(measurements: Sequence[SideMeasurement]) -> list[tuple[Estimate, Estimate]]:
    """Return the peaks of winner and baseline in each complete pair. Two measurements of one side do
    not form a pair.
    """
    peaks_by_side = [
        {m.is_winner: m.peak for m in pair}
        for pair in zip(measurements[::2], measurements[1::2], strict=False)
    ]
    return [(peaks[True], peaks[False]) for peaks in peaks_by_side if len(peaks) == 2]


def estimate_repeat_sd(log_differences: Sequence[float]) -> float:
    """Return the sd of one log peak.

    ``log_differences`` contains the log difference of each repeat from the previous measurement of the
    same configuration. Differences that involve a disturbed measurement are left out.
    """
    # The median of absolute differences is compute_half_width(0.5) times their sd.
    max_difference = compute_max_repeat_difference(
        median(abs(difference) for difference in log_differences) / compute_half_width(0.5)
    )
    return sqrt(
        fmean(difference**2 for difference in log_differences if abs(difference) <= max_difference)
        / 2
    )
