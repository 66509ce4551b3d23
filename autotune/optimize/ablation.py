"""Ablation of a winner: the smallest set of its changes that keeps nearly all of its gain.

The ablation reverts changes of the winner in three steps. First, each change that may have little
effect is reverted alone, to find the changes that clearly matter. Next, half of the remaining changes
are reverted at a time, which estimates their effects with the fewest measurements. Finally, all
unnecessary changes are reverted together. The ablation ends when the winner without these changes
almost certainly loses no more than ``1 - KEPT_GAIN_SHARE`` of its gain.

The log peak after reverting a set of changes is modelled as the winner's log peak minus the sum of
their effects. The additive model is valid for small losses. Each measurement therefore improves the
estimates of all changes in its set, as in a weighing design (Hotelling, 1944).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, sqrt
from statistics import fmean

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from autotune.errors import AutotuneError
from autotune.estimate import SDS_WITHIN_90, Estimate
from autotune.optimize.outliers import exceeds_prediction, find_outlier_threshold

Array = npt.NDArray[np.float64]
RevertedChanges = frozenset[str]
MeasureReverted = Callable[[RevertedChanges], float | None]
"""``measure(reverted)`` returns the log peak of the winner without the changes in ``reverted``.

The result is ``FAILED`` if that configuration fails, and ``None`` if the measurement showed nothing, for
example because the load generator failed.
"""
FAILED = -inf

KEPT_GAIN_SHARE = 0.95
# Bounds of the probability that reverting a set of changes costs no more than the allowed loss. Above
# DROP_PROBABILITY, the set is dropped. Below KEEP_PROBABILITY, the set is kept.
DROP_PROBABILITY, KEEP_PROBABILITY = 0.85, 0.1
# once no measurements are left, a set of changes is dropped if its drop probability is above this bound
FINAL_DROP_PROBABILITY = 0.5
# If the probability that a change is unnecessary is below this bound, the change certainly matters.
ESSENTIAL_PROBABILITY = 0.02
# Minimum and maximum number of measurements per set of changes.
MIN_SET_MEASUREMENTS, MAX_SET_MEASUREMENTS = 4, 16
# Minimum number of measurements of the winner before other configurations are compared with the winner.
WINNER_MEASUREMENTS = 8
POSTERIOR_DRAWS = 200
# After screening, this share of the measurements estimates effects. The rest verifies the final set.
ESTIMATION_SHARE = 0.75
# Estimation stops early if this share of the draws agrees about every change.
AGREEMENT_SHARE = 0.9
OUTLIER_ROUNDS = 4
# prior sd of the winner's log peak; it is wide, so the prior hardly matters
WINNER_LOG_PEAK_SD = 2.0
# The model was fitted to a search with few trials near the winner, so its sds are too small.
MODEL_SD_FACTOR = 1.5


@dataclass(frozen=True)
class PredictedEffect:
    """The predicted log loss from reverting one change, and the sd of that loss."""

    loss: float
    sd: float


@dataclass(frozen=True)
class EffectPosterior:
    """Normal posterior of the log loss from reverting each change in ``names``: mean and covariance."""

    names: tuple[str, ...]
    mean: Array
    covariance: Array

    def estimate_loss(self, reverted_changes: RevertedChanges) -> tuple[float, float]:
        """Return the log loss from reverting all of ``reverted_changes``, and the sd of that loss."""
        reverted_mask = np.array([name in reverted_changes for name in self.names], float)
        variance = float(reverted_mask @ self.covariance @ reverted_mask)
        return float(reverted_mask @ self.mean), max(variance, 1e-12) ** 0.5

    def draw_losses(self, draw_count: int, rng: np.random.Generator) -> Array:
        """Return random draws of the loss from each change: ``[draw, change]``."""
        return rng.multivariate_normal(self.mean, self.covariance, draw_count, method="eigh")


@dataclass
class EffectRegression:
    """Bayesian linear regression of the effects on the measured log peaks. ``noise`` is the sd of one
    log peak.
    """

    predicted: Mapping[str, PredictedEffect]
    noise: float
    reverted_sets: list[RevertedChanges] = field(default_factory=list)
    log_peaks: list[float] = field(default_factory=list)

    def add_measurement(self, reverted_changes: RevertedChanges, log_peak: float) -> None:
        self.reverted_sets.append(reverted_changes)
        self.log_peaks.append(log_peak)

    def fit_effects(self) -> EffectPosterior:
        """Return the posterior of the effects. Measurements far below their prediction are ignored."""
        change_names = tuple(self.predicted)
        design_matrix = np.array(
            [[1.0, *(-float(n in s) for n in change_names)] for s in self.reverted_sets]
        )
        log_peaks = np.array(self.log_peaks)
        prior_mean = np.array([log_peaks.max(), *(self.predicted[n].loss for n in change_names)])
        prior_sd = np.array(
            [WINNER_LOG_PEAK_SD, *(MODEL_SD_FACTOR * self.predicted[n].sd for n in change_names)]
        )
        undisturbed_mask = np.ones(len(log_peaks), bool)
        for _ in range(OUTLIER_ROUNDS):
            coefficients, covariance = _solve_regression(
                design_matrix[undisturbed_mask],
                log_peaks[undisturbed_mask],
                prior_mean,
                prior_sd,
                self.noise,
            )
            prediction_sds = np.sqrt(
                np.einsum("ij,jk,ik->i", design_matrix, covariance, design_matrix) + self.noise**2
            )
            new_mask = ~exceeds_prediction(design_matrix @ coefficients - log_peaks, prediction_sds)
            if (new_mask == undisturbed_mask).all():
                break
            undisturbed_mask = new_mask
        return EffectPosterior(change_names, coefficients[1:], covariance[1:, 1:])


def _solve_regression(
    design_matrix: Array, observations: Array, prior_mean: Array, prior_sd: Array, noise: float
) -> tuple[Array, Array]:
    """Return the posterior mean and covariance of the regression coefficients."""
    precision_matrix = np.diag(np.maximum(prior_sd, 1e-6) ** -2.0)
    covariance = np.asarray(
        np.linalg.inv(precision_matrix + design_matrix.T @ design_matrix / noise**2),
        dtype=np.float64,
    )
    return covariance @ (
        precision_matrix @ prior_mean + design_matrix.T @ observations / noise**2
    ), covariance


def select_affordable_changes(
    losses: Sequence[float] | Array, max_loss: float
) -> npt.NDArray[np.bool_]:
    """Return a mask of the changes to drop: the smallest losses first, up to a sum of ``max_loss``."""
    ascending_indices = np.argsort(losses)
    cumulative_losses = np.cumsum(np.asarray(losses)[ascending_indices])
    chosen_mask = np.zeros(len(ascending_indices), bool)
    chosen_mask[ascending_indices] = cumulative_losses <= max_loss
    return chosen_mask


@dataclass(frozen=True)
class AblationResult:
    """The ``kept`` changes and their ``share`` of the log gain.

    With a probability of 90 %, the share is between ``low`` and ``high``. ``losses`` maps each kept
    change to the measured log loss if only that change is reverted.
    """

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    share: float
    low: float
    high: float
    measurements: int
    losses: Mapping[str, float] = field(default_factory=dict)
    sds: Mapping[str, float] = field(default_factory=dict)


class MeasurementsSpent(Exception):
    """Raised when all measurements of an ablation are spent."""


class Ablation:
    """An ablation in progress. ``gain`` is the log gain of the winner, and ``noise`` is the sd of a log
    peak.
    """

    def __init__(
        self,
        predicted_effects: Mapping[str, PredictedEffect],
        gain: float,
        noise: float,
        measure_log_peak: MeasureReverted,
        max_measurements: int,
    ) -> None:
        self._predicted, self._gain, self._noise = predicted_effects, gain, noise
        self._measure, self._max_measurements = measure_log_peak, max_measurements
        self._regression = EffectRegression(predicted_effects, noise)
        self._log_peaks: dict[RevertedChanges, list[float]] = {}
        # Sets whose last measurement failed, and sets whose last measurement showed nothing.
        self._failed_sets: set[RevertedChanges] = set()
        self._unmeasured_sets: set[RevertedChanges] = set()
        self._reverted_names: RevertedChanges = frozenset()
        self._measurement_count = 0
        self._rng = np.random.default_rng(len(predicted_effects))
        self._max_loss = (1.0 - KEPT_GAIN_SHARE) * gain

    def run(self) -> AblationResult:
        """Measure until the smallest set of changes is found or the measurements are spent.

        Raises AutotuneError if the winner itself cannot be measured.
        """
        with suppress(MeasurementsSpent):
            for _ in range(WINNER_MEASUREMENTS):
                self._measure_set(frozenset())
        if not self._log_peaks:
            raise AutotuneError(
                f"the winner met the objective in none of {WINNER_MEASUREMENTS} measurements",
                hint="`autotune report STUDY` shows the failures; fix their cause, then repeat",
            )
        try:
            removable_names = self._screen_changes()
            self._estimate_effects(removable_names)
            self._verify_largest_set(removable_names)
        except MeasurementsSpent:
            # No measurements are left to verify a set of changes, so a set that probably costs little is
            # dropped without verification.
            likely_sets = [
                s
                for s in self._regression.reverted_sets
                if self._compute_drop_probability(s) > FINAL_DROP_PROBABILITY
            ]
            self._reverted_names = max((self._reverted_names, *likely_sets), key=len)
        return self._build_result()

    def _screen_changes(self) -> list[str]:
        """Return the changes that may be unnecessary. Each doubtful change is reverted alone and
        measured.

        A change that looks essential is measured again, because one measurement may have been
        disturbed.
        """
        ranked_names = sorted(
            self._predicted, key=lambda change_name: self._predicted[change_name].loss
        )
        removable_names = []
        for change_name in ranked_names:
            single_change = frozenset({change_name})
            for _ in range(2):
                if (
                    self._compute_drop_probability(single_change) >= ESSENTIAL_PROBABILITY
                    and single_change not in self._log_peaks
                ):
                    self._measure_set(single_change)
                elif (
                    single_change in self._log_peaks
                    and self._compute_drop_probability(single_change) < ESSENTIAL_PROBABILITY
                ):
                    self._measure_set(single_change)
                    break
            if (
                single_change not in self._failed_sets
                and self._compute_drop_probability(single_change) >= ESSENTIAL_PROBABILITY
            ):
                removable_names.append(change_name)
        return removable_names

    def _estimate_effects(self, removable_names: Sequence[str]) -> None:
        """Revert half of the removable changes at a time, until it is clear which changes can be
        reverted together.
        """
        max_measurement_count = self._measurement_count + ESTIMATION_SHARE * (
            self._max_measurements - self._measurement_count
        )
        half_size = (len(removable_names) + 1) // 2
        while (
            len(removable_names) > 1
            and self._measurement_count + 2 <= max_measurement_count
            and not self._draws_agree()
        ):
            random_half = frozenset(
                self._rng.permutation(list(removable_names))[:half_size].tolist()
            )
            # Measure both halves of the changes: an error in the winner's peak affects both equally,
            # and cancels out.
            self._measure_set(random_half)
            self._measure_set(frozenset(removable_names) - random_half)

    def _draws_agree(self) -> bool:
        """True if a share ``AGREEMENT_SHARE`` of the draws agrees about every change."""
        draws = self._regression.fit_effects().draw_losses(POSTERIOR_DRAWS, self._rng)
        dropped_shares = np.mean(
            [select_affordable_changes(draw, self._max_loss) for draw in draws], axis=0
        )
        return bool((np.maximum(dropped_shares, 1.0 - dropped_shares) >= AGREEMENT_SHARE).all())

    def _verify_largest_set(self, removable_names: Sequence[str]) -> None:
        """Find and revert the largest set of changes whose measured loss is within the allowed loss.
        Changes with small losses are reverted first.
        """
        affordable_mask = select_affordable_changes(
            [self._compute_expected_loss(change_name) for change_name in removable_names],
            self._max_loss,
        )
        chosen_names = frozenset(
            n
            for n, is_affordable in zip(removable_names, affordable_mask, strict=True)
            if is_affordable
        )
        refused_names: set[str] = set()
        while chosen_names and not self._is_verified(chosen_names):
            costliest_name = max(chosen_names, key=self._compute_expected_loss)
            refused_names.add(costliest_name)
            chosen_names = chosen_names - {costliest_name}
        self._reverted_names = chosen_names
        for change_name in sorted(
            set(removable_names) - chosen_names - refused_names, key=self._compute_expected_loss
        ):
            wider_set = self._reverted_names | {change_name}
            if self._compute_drop_probability(wider_set) > KEEP_PROBABILITY and self._is_verified(
                wider_set
            ):
                self._reverted_names = wider_set
        self._recheck_essential_changes(set(self._predicted) - set(removable_names))

    def _recheck_essential_changes(self, essential_names: Iterable[str]) -> None:
        """Drop changes that matter alone, but not after other changes are reverted. For example, a
        parameter may depend on a parent that was reverted.

        The regression ignores interactions between changes, so only measurements of exactly the same
        set of changes are used.
        """
        for change_name in sorted(essential_names, key=self._compute_expected_loss):
            wider_set = self._reverted_names | {change_name}
            while wider_set not in self._failed_sets:
                measurement_count = len(self._log_peaks.get(wider_set, ()))
                loss, loss_sd = (
                    self._compute_measured_loss(wider_set) if measurement_count else (0.0, 1.0)
                )
                probability = float(ndtr((self._max_loss - loss) / loss_sd))
                is_clear = probability < ESSENTIAL_PROBABILITY or (
                    measurement_count > 1 and probability > DROP_PROBABILITY
                )
                if measurement_count and (is_clear or measurement_count >= MAX_SET_MEASUREMENTS):
                    break
                self._measure_set(wider_set, updates_regression=False)
            if (
                wider_set not in self._failed_sets
                and self._compute_measured_loss(wider_set)[0] <= self._max_loss
            ):
                self._reverted_names = wider_set

    def _is_verified(self, reverted_changes: RevertedChanges) -> bool:
        """True if the measured loss of the winner without these changes is within the allowed loss."""
        while reverted_changes not in self._failed_sets:
            measurement_count = len(self._log_peaks.get(reverted_changes, ()))
            if measurement_count >= MIN_SET_MEASUREMENTS:
                probability = self._compute_drop_probability(reverted_changes)
                if (
                    probability > DROP_PROBABILITY
                    or probability < KEEP_PROBABILITY
                    or measurement_count >= MAX_SET_MEASUREMENTS
                ):
                    return probability > FINAL_DROP_PROBABILITY
            is_less_measured = measurement_count <= len(self._log_peaks[frozenset()])
            self._measure_set(reverted_changes if is_less_measured else frozenset())
        return False

    def _compute_measured_loss(self, reverted_changes: RevertedChanges) -> tuple[float, float]:
        """Return the measured log loss of the winner without exactly these changes, and the sd of that
        loss.
        """
        reverted_peaks, winner_peaks = (
            self._log_peaks[reverted_changes],
            self._log_peaks[frozenset()],
        )
        loss = _compute_undisturbed_mean(winner_peaks, self._noise) - _compute_undisturbed_mean(
            reverted_peaks, self._noise
        )
        return loss, self._noise * sqrt(1 / len(reverted_peaks) + 1 / len(winner_peaks))

    def _compute_expected_loss(self, change_name: str) -> float:
        return self._regression.fit_effects().estimate_loss(frozenset({change_name}))[0]

    def _compute_drop_probability(self, reverted_changes: RevertedChanges) -> float:
        """Return the probability that reverting these changes costs no more than the allowed loss."""
        loss, loss_sd = self._regression.fit_effects().estimate_loss(reverted_changes)
        return float(ndtr((self._max_loss - loss) / loss_sd))

    def _measure_set(
        self, reverted_changes: RevertedChanges, *, updates_regression: bool = True
    ) -> None:
        """Measure the winner without these changes. Only the second measurement in a row that shows
        nothing counts as a failure.
        """
        if self._measurement_count >= self._max_measurements:
            raise MeasurementsSpent
        self._measurement_count += 1
        log_peak = self._measure(reverted_changes)
        if log_peak is None and reverted_changes not in self._unmeasured_sets:
            self._unmeasured_sets.add(reverted_changes)
        elif log_peak is None or log_peak == FAILED:
            self._failed_sets.add(reverted_changes)
        else:
            self._failed_sets.discard(reverted_changes)
            self._unmeasured_sets.discard(reverted_changes)
            self._log_peaks.setdefault(reverted_changes, []).append(log_peak)
            if updates_regression:
                self._regression.add_measurement(reverted_changes, log_peak)

    def _build_result(self) -> AblationResult:
        reverted_names = self._reverted_names
        effects = self._regression.fit_effects()
        loss, loss_sd = effects.estimate_loss(reverted_names) if reverted_names else (0.0, 0.0)
        if reverted_names in self._log_peaks and reverted_names:
            loss, loss_sd = self._compute_measured_loss(reverted_names)
        ranked_names = sorted(self._predicted, key=self._compute_expected_loss, reverse=True)
        kept_names = tuple(
            change_name for change_name in ranked_names if change_name not in reverted_names
        )
        measured_names = {
            change_name
            for reverted_set in self._regression.reverted_sets
            for change_name in reverted_set
        }
        return AblationResult(
            kept_names,
            tuple(sorted(reverted_names)),
            1 - loss / self._gain,
            1 - (loss + SDS_WITHIN_90 * loss_sd) / self._gain,
            1 - (loss - SDS_WITHIN_90 * loss_sd) / self._gain,
            self._measurement_count,
            {
                change_name: self._compute_expected_loss(change_name)
                for change_name in kept_names
                if change_name in measured_names
            },
            {
                change_name: effects.estimate_loss(frozenset({change_name}))[1]
                for change_name in kept_names
                if change_name in measured_names
            },
        )


def _compute_undisturbed_mean(log_peaks: Sequence[float], log_peak_sd: float) -> float:
    """Return the logarithm of the mean peak, without disturbed peaks (far below the median)."""
    peaks = [Estimate(log_peak, log_peak_sd) for log_peak in log_peaks]
    threshold = find_outlier_threshold(peaks)
    return fmean(peak.log_mean for peak in peaks if peak.value >= threshold)
