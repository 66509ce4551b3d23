"""The surrogate model of a study, which predicts the peak and feasibility of any configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.special import ndtr

from autotune.estimate import MEASUREMENT_LOG_SD, InstanceCapacity
from autotune.optimize.gp.composite import MIN_CAPACITY_TRIALS, CompositeModel, fit_composite
from autotune.optimize.gp.gaussian_process import (
    GaussianProcess,
    ProcessPriors,
    compute_axis_covariance,
    fit_process,
    inflate_variances,
)
from autotune.optimize.gp.grid import GridAxis, GridPoints, ParameterGrid, find_distinct_indices
from autotune.optimize.gp.scale import (
    compress_loss,
    compress_observations,
    compress_shared_sds,
    decompress_log_peaks,
)
from autotune.optimize.outliers import exceeds_prediction
from autotune.services.base import Effect
from autotune.space.dimension import PRESET_NAMES

Array = npt.NDArray[np.float64]
T = TypeVar("T")

# attribute of a trial: the moves that the diagnosis recommends, separated by blanks
CHANGES_KEY = "moves"
# Attribute of a trial: the capacities of the parts of the stack, as JSON.
CAPACITIES_KEY = "capacities"
BED_KEY = "bed"  # attribute of a trial: the test bed that measured it, if there are several
FEASIBLE_KEY = "feasible"  # name of the constraint, which is violated if its value is positive
# attribute of the study: for each trial, the shift of its log peak and the sd of the shift
DRIFT_KEY = "drift"
# Attribute of the study: for each bed, the sd of the error that all its shifts share.
BED_DRIFT_KEY = "drift of beds"
PRESET_PHASES = (*PRESET_NAMES, "known")  # phases of the study that measure presets
SEARCH_PHASE = "search"  # the phase that measures suggestions
NO_TRIAL = -1  # trial number for `collect_observations` if no trial is being suggested

# minimum number of observations for a search for contradicted observations
MIN_COMPARED_OBSERVATIONS = 8
# A disturbance lowers a measured peak by at most a third. A configuration below two thirds of its
# prediction is worse for a reason that the other trials do not show.
MAX_HIDDEN_GAIN = log(1.5)
MIN_RELEVANT_GAIN = 0.01  # smallest gain worth searching for, as a log ratio
IMPROVEMENT_DRAWS = 200
# Maximum error of the composite model, as a multiple of the error of the model without parts.
MAX_ERROR_RATIO = 1.5
# A prediction uses at most MAX_MODELLED observations, because the cost grows with the cube of their
# number. One in NEWEST_MODELLED of the used observations is among the newest.
MAX_MODELLED, NEWEST_MODELLED = 300, 6
# Weight of an upper bound in the mean of a configuration's log peaks, relative to a full measurement.
PRUNED_WEIGHT = 1e-6
FEASIBILITY_PRIORS = ProcessPriors(effect_size=0.5, noise_sd=0.3)
# Prior variance of a parameter's effect, by the parameter's class.
EFFECT_VARIANCES = {Effect.CAPACITY: 1.0, Effect.SMALL: 0.3, Effect.COSMETIC: 0.1}


@dataclass(frozen=True)
class PeakShifts:
    """The shifts of log peaks: ``by_trial`` maps a trial's number in the study to its shift and the
    shift's sd.

    ``by_bed`` contains the sd of the error that all shifts of a test bed share, if there are several
    beds.
    """

    by_trial: Mapping[int, tuple[float, float]]
    by_bed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialObservations:
    """The observations behind a model: ``log_peaks`` and their ``sds``, one per row of ``points``.

    ``pruned`` marks log peaks that are upper bounds. ``failed_points`` are unusable configurations, and
    ``pending_points`` are being measured by other processes. ``recommended_changes`` and ``capacities``
    have one entry per point, if known. ``trial_numbers`` are the numbers of the trials that measured
    ``points``, and ``failed_numbers`` the numbers of the trials of ``failed_points``. ``other_points``
    were tried but are not modelled. ``suggested`` marks the points that the search suggested.
    ``shared_sds``, ``[point, bed]``, is the sd of the error that all log peaks of a test bed share, if
    there are several beds (see `fit_process`).
    """

    points: GridPoints
    log_peaks: Array
    sds: Array
    pruned: npt.NDArray[np.bool_]
    failed_points: GridPoints
    pending_points: GridPoints
    recommended_changes: tuple[tuple[str, ...], ...] = ()
    capacities: tuple[Mapping[str, InstanceCapacity], ...] = ()
    trial_numbers: tuple[int, ...] = ()
    failed_numbers: tuple[int, ...] = ()
    other_points: tuple[GridPoints, ...] = ()
    shared_sds: Array | None = None
    suggested: tuple[bool, ...] = ()

    def __len__(self) -> int:
        return len(self.points) + len(self.failed_points)

    @property
    def started_count(self) -> int:
        """Return the number of trials that were measured, failed, or are being measured."""
        return len(self) + len(self.pending_points)

    @property
    def has_enough_capacities(self) -> bool:
        """True if enough configurations were measured to model the parts of the stack.

        With few trials, the model of a part favours large changes, and most of these are bad. A study
        that measures one configuration at a time learns from the first bad change. A study with many
        pending trials would spend all trials on large changes.
        """
        return len(find_distinct_indices(self.points)) >= MIN_CAPACITY_TRIALS + len(
            self.pending_points
        )

    @property
    def tried_points(self) -> GridPoints:
        return np.vstack([self.points, self.failed_points, self.pending_points, *self.other_points])

    def limit_points(self, max_points: int = MAX_MODELLED) -> TrialObservations:
        """Return the observations limited to the ``max_points`` points with the most information about
        better configurations.

        Half of the points have the highest log peaks, and a sixth are the newest. The rest are an even
        selection of all other points by log peak.
        """
        kept_rows = _select_even_rows(range(len(self.failed_points)), max_points // 3)
        bounded_observations = replace(
            self,
            failed_points=self.failed_points[kept_rows],
            failed_numbers=_select_rows(np.array(kept_rows, np.intp), self.failed_numbers),
            other_points=(self.failed_points,),
        )
        if len(self.points) <= max_points:
            return bounded_observations if len(kept_rows) < len(self.failed_points) else self
        descending_rows = np.argsort(-self.log_peaks, kind="stable").tolist()
        first_rows = {
            *descending_rows[: max_points // 2],
            *range(len(descending_rows) - max_points // NEWEST_MODELLED, len(descending_rows)),
        }
        other_rows = [row for row in descending_rows if row not in first_rows]
        point_rows = np.sort(
            [*first_rows, *_select_even_rows(other_rows, max_points - len(first_rows))]
        ).astype(np.intp)
        return replace(
            bounded_observations.take_rows(point_rows),
            other_points=(self.points, self.failed_points),
        )

    def merge_repeats(self) -> TrialObservations:
        """Return the observations with one row for each configuration: its first row, with the
        mean log peak of its repeats and their newest recommended changes.
        """
        first_rows = find_distinct_indices(self.points)
        merged_observations = self.take_rows(first_rows)
        return replace(
            merged_observations,
            log_peaks=self.average_repeats()[first_rows],
            recommended_changes=self._select_newest_changes(merged_observations),
        )

    def average_repeats(self) -> Array:
        """Return, for each row, the precision-weighted mean of its configuration's log peaks.

        An upper bound counts only if the configuration was not measured in full.
        """
        _, configurations = np.unique(self.points, axis=0, return_inverse=True)
        configurations = configurations.ravel()
        weights = 1.0 / (self.sds**2 + MEASUREMENT_LOG_SD**2)
        weights = np.where(self.pruned, PRUNED_WEIGHT * weights, weights)
        means = np.bincount(configurations, weights * self.log_peaks) / np.bincount(
            configurations, weights
        )
        return np.asarray(means[configurations])

    def _select_newest_changes(self, merged: TrialObservations) -> tuple[tuple[str, ...], ...]:
        """Return the newest changes that were recommended for each row of ``merged``. A short
        measurement may have no diagnosis.
        """
        newest_changes = {
            point.tobytes(): changes
            for point, changes in zip(self.points, self.recommended_changes, strict=False)
            if changes
        }
        return tuple(
            newest_changes.get(point.tobytes(), changes)
            for point, changes in zip(merged.points, merged.recommended_changes, strict=False)
        )

    def take_rows(self, rows: GridPoints) -> TrialObservations:
        """Return the observations with only these rows of points."""
        return replace(
            self,
            points=self.points[rows],
            log_peaks=self.log_peaks[rows],
            sds=self.sds[rows],
            pruned=self.pruned[rows],
            recommended_changes=_select_rows(rows, self.recommended_changes),
            capacities=_select_rows(rows, self.capacities),
            trial_numbers=_select_rows(rows, self.trial_numbers),
            suggested=_select_rows(rows, self.suggested),
            shared_sds=None if self.shared_sds is None else self.shared_sds[rows],
        )


def _select_rows(rows: GridPoints, row_values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(row_values[row] for row in rows) if row_values else ()


def _select_even_rows(rows: Sequence[int], max_rows: int) -> list[int]:
    row_indices = np.linspace(0, len(rows) - 1, min(max_rows, len(rows))).astype(int)
    return [rows[row_index] for row_index in row_indices]


def collect_observations(
    grid: ParameterGrid, trials: Iterable[FrozenTrial], trial_number: int, peak_shifts: PeakShifts
) -> TrialObservations:
    """Return the observations for a model that suggests trial ``trial_number``.

    Trials in which the benchmark itself failed are left out.
    """
    trials = list(trials)
    measured_trials = _select_measured_trials(trials)
    failed_trials = [
        t for t in trials if t.state is TrialState.COMPLETE and not is_feasible_trial(t)
    ]
    pending_trials = [
        t for t in trials if t.state is TrialState.RUNNING and t.number != trial_number
    ]
    trial_numbers = tuple(map(_get_trial_number, measured_trials))
    shifts = np.array(
        [
            peak_shifts.by_trial.get(study_trial_number, (0.0, 0.0))
            for study_trial_number in trial_numbers
        ]
    )
    shifts = shifts.reshape(-1, 2)
    peak_sds = np.array([float(t.user_attrs.get("sd") or 0.0) for t in measured_trials])

    def encode_points(encoded_trials: Sequence[FrozenTrial]) -> Any:
        return grid.reset_inactive(grid.encode_all([t.params for t in encoded_trials]))

    return TrialObservations(
        encode_points(measured_trials),
        compute_log_values([float(t.value or 0.0) for t in measured_trials]) - shifts[:, 0],
        np.hypot(peak_sds, shifts[:, 1]),
        np.array([t.user_attrs.get("verdict") == "screened" for t in measured_trials], bool),
        encode_points(failed_trials),
        encode_points(pending_trials),
        tuple(tuple(str(t.user_attrs.get(CHANGES_KEY, "")).split()) for t in measured_trials),
        tuple(
            _parse_capacities(t, shift)
            for t, shift in zip(measured_trials, shifts[:, 0], strict=True)
        ),
        trial_numbers,
        failed_numbers=tuple(map(_get_trial_number, failed_trials)),
        shared_sds=_build_shared_bed_sds(measured_trials, peak_shifts.by_bed),
        suggested=tuple(t.user_attrs.get("phase") == SEARCH_PHASE for t in measured_trials),
    ).limit_points()


def _get_trial_number(trial: FrozenTrial) -> int:
    """Return the number of a trial in the study, which differs from Optuna's number."""
    return int(trial.user_attrs.get("trial", trial.number))


def _build_shared_bed_sds(trials: Sequence[FrozenTrial], beds: Mapping[str, float]) -> Array:
    """Return the sd of the error that the trials of each bed share, ``[trial, bed]``."""
    trial_beds = [trial.user_attrs.get(BED_KEY) for trial in trials]
    shared_sds = np.zeros((len(trials), len(beds)))
    for column, (bed_name, bed_sd) in enumerate(sorted(beds.items())):
        shared_sds[[bed == bed_name for bed in trial_beds], column] = bed_sd
    return shared_sds


def _parse_capacities(trial: FrozenTrial, shift: float) -> dict[str, InstanceCapacity]:
    """Return the capacities of the parts in a trial, corrected to an average test bed.

    The capacity of each part is assumed to differ between test beds by the same factor as the peak.
    """
    capacity_records = json.loads(trial.user_attrs.get(CAPACITIES_KEY, "{}"))
    extra_shift = shift if BED_KEY in trial.user_attrs else 0.0
    return {
        part_name: InstanceCapacity(log - extra_shift, capacity_sd, tuple(tiers))
        for part_name, (log, capacity_sd, tiers) in capacity_records.items()
    }


def is_feasible_trial(trial: FrozenTrial) -> bool:
    """True if the configuration of a completed trial could be used."""
    return trial.constraints.get(FEASIBLE_KEY, 0.0) <= 0


def has_measured_preset(trials: Iterable[FrozenTrial]) -> bool:
    """True if any preset was measured successfully."""
    return any(t.user_attrs.get("phase") in PRESET_PHASES for t in _select_measured_trials(trials))


def read_shifts(study: Study) -> PeakShifts:
    """Return the recorded shifts of each trial's log peak, caused by drift and test beds."""
    attributes = study.user_attrs
    recorded_shifts = {
        int(trial_number): (mean_shift, shift_sd)
        for trial_number, (mean_shift, shift_sd) in attributes.get(DRIFT_KEY, {}).items()
    }
    return PeakShifts(recorded_shifts, attributes.get(BED_DRIFT_KEY, {}))


def _select_measured_trials(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    return [
        t
        for t in trials
        if t.state is TrialState.COMPLETE and is_feasible_trial(t) and t.value is not None
    ]


def compute_log_values(values: Sequence[float]) -> Any:
    """Return the logarithms of the values.

    If any value is not positive, return all values scaled linearly instead, so that the sd of their
    upper half is typical of log peaks.
    """
    if all(value > 0 for value in values):
        return np.array([log(value) for value in values])
    upper_half_values = np.sort(np.array(values))[len(values) // 2 :]
    return np.array(values) * 0.15 / max(float(upper_half_values.std()), 1e-12)


@dataclass(frozen=True)
class SurrogateModel:
    """The models of a study, which predict peaks and feasibility.

    ``log_peak_model`` predicts compressed log peaks relative to the best measured peak.
    ``feasibility_model`` predicts whether a configuration works, and is ``None`` until a configuration
    has failed. ``composite_model`` predicts log peaks from the capacities of the parts of the stack, if
    these are known and explain the peaks.
    """

    grid: ParameterGrid
    observations: TrialObservations
    log_peak_model: GaussianProcess
    feasibility_model: GaussianProcess | None
    composite_model: CompositeModel | None = None

    @classmethod
    def fit(cls, grid: ParameterGrid, observations: TrialObservations) -> SurrogateModel:
        leader = observations.points[int(observations.log_peaks.argmax())]
        axes_with_levels = zip(grid.axes, leader, strict=True)
        covariance_tables = tuple(
            EFFECT_VARIANCES[_get_effect_class(grid_axis)]
            * compute_axis_covariance(grid_axis, int(level))
            for grid_axis, level in axes_with_levels
        )
        log_peak = _fit_log_peak(covariance_tables, observations)
        composite = _build_composite(grid, covariance_tables, observations, log_peak)
        feasibility_model = None
        if len(observations.failed_points):
            points = np.vstack([observations.points, observations.failed_points])
            feasibility_values = np.array(
                [1.0] * len(observations.points) + [-1.0] * len(observations.failed_points)
            )
            centred_tables = tuple(compute_axis_covariance(axis) for axis in grid.axes)
            feasibility_model = fit_process(
                centred_tables,
                points,
                feasibility_values,
                np.zeros(len(points)),
                FEASIBILITY_PRIORS,
                level=0.5,
            )
        return cls(grid, observations, log_peak, feasibility_model, composite)

    @cached_property
    def _tried_keys(self) -> frozenset[bytes]:
        return self.grid.build_keys(self.observations.tried_points)

    def was_tried(self, point: GridPoints) -> bool:
        """True if a configuration was measured, failed, or is being measured. Parameters without effect
        must be at their baseline.
        """
        return point.tobytes() in self._tried_keys

    def with_pending_trials(self) -> SurrogateModel:
        """Return the model as if each pending measurement had given the predicted result."""
        pending_points, composite = self.observations.pending_points, self.composite_model
        return replace(
            self,
            log_peak_model=self.log_peak_model.with_pending_points(pending_points),
            composite_model=composite.with_pending_points(pending_points) if composite else None,
        )

    def predict(self, points: GridPoints) -> tuple[Array, Array]:
        """Return mean and sd of the compressed log peaks."""
        return (self.composite_model or self.log_peak_model).predict(points)

    def predict_feasibility(self, points: GridPoints) -> Array:
        """Return the probability that the configuration at each point works."""
        if self.feasibility_model is None:
            return np.ones(len(points))
        mean_feasibility, feasibility_sd = self.feasibility_model.predict(points)
        return np.asarray(ndtr(mean_feasibility / np.sqrt(feasibility_sd**2 + 0.05)))

    def estimate_improvement_probability(
        self, points: GridPoints, rng: np.random.Generator
    ) -> float:
        """Return the probability that any of ``points`` is better than the best measured point by at
        least ``MIN_RELEVANT_GAIN``.
        """
        best_point = self.observations.points[self.find_best_index()]
        model = self.composite_model or self.log_peak_model
        drawn_peaks = model.draw_samples(
            np.vstack([best_point[None, :], points]), IMPROVEMENT_DRAWS, rng
        )
        return float(
            (drawn_peaks[:, 1:].max(axis=1) > drawn_peaks[:, 0] + MIN_RELEVANT_GAIN).mean()
        )

    def predict_measured(self) -> tuple[Array, Array]:
        """Return the predicted mean and sd at the measured points. The mean exceeds the measurement by
        at most ``MAX_HIDDEN_GAIN``.
        """
        predicted_means, prediction_sds = self.predict(self.observations.points)
        log_peaks = self.observations.log_peaks
        return np.minimum(
            predicted_means, -compress_loss(log_peaks.max() - log_peaks - MAX_HIDDEN_GAIN)
        ), prediction_sds

    def estimate_measured(self) -> tuple[Array, Array]:
        """Return mean and sd of the log peaks at the measured points, relative to the best measured
        peak.

        The model alone makes a configuration too similar to its neighbours. The measurement alone
        overstates the leader, which was partly lucky. The mean of both selects better configurations
        than the model or the measurement alone. All repeats of a configuration count as one measurement.
        Measurements far below the prediction, and upper bounds, are ignored. Disturbances never raise a
        measurement, so the model is wrong at a measurement far above the prediction, for example because
        the peak is narrow. Such a measurement counts alone.
        """
        mean_log_peaks, log_peak_sds = self.predict_measured()
        predicted_peaks = decompress_log_peaks(mean_log_peaks)
        measured_peaks = self.observations.average_repeats() - self.observations.log_peaks.max()
        noise_sd = np.hypot(np.sqrt(self.log_peak_model.noise_variance), MEASUREMENT_LOG_SD)
        differences = measured_peaks - predicted_peaks
        measurement_sds = np.hypot(noise_sd, self.observations.sds)
        is_counted = ~(exceeds_prediction(-differences, noise_sd) | self.observations.pruned)
        is_narrow_peak = is_counted & exceeds_prediction(differences, measurement_sds)
        weights = np.where(is_narrow_peak, 1.0, np.where(is_counted, 0.5, 0.0))
        sds = np.where(is_counted, np.maximum(log_peak_sds, noise_sd / 2), log_peak_sds)
        return (
            predicted_peaks + weights * differences,
            np.where(is_narrow_peak, measurement_sds, sds),
        )

    def find_best_index(self) -> int:
        """Return the index of the measured point with the highest estimated peak."""
        return int(self.predict_measured()[0].argmax())


def _build_composite(
    grid: ParameterGrid,
    covariance_tables: tuple[Array, ...],
    observations: TrialObservations,
    log_peak: GaussianProcess,
) -> CompositeModel | None:
    """Return the composite model; ``None`` if too few capacities are known, or if ``log_peak`` predicts
    clearly better.

    The composite model's leave-one-out error may be larger by the factor ``MAX_ERROR_RATIO``. Composite
    models mislead if tiers influence each other.
    """
    if not any(observations.capacities) or not observations.has_enough_capacities:
        return None
    log_peak_sds = np.sqrt(np.maximum(log_peak.variances - log_peak.noise_variance, 0.0))
    composite = fit_composite(
        grid,
        covariance_tables,
        observations.points,
        observations.capacities,
        observations.log_peaks,
        log_peak_sds,
        observations.shared_sds,
    )
    log_peak_error = float(np.abs(log_peak.compute_leave_one_out_errors()[0]).mean())
    return composite if composite and composite.error <= MAX_ERROR_RATIO * log_peak_error else None


def _get_effect_class(axis: GridAxis) -> Effect:
    return axis.dimension.parameter.effect


def _fit_log_peak(
    covariance_tables: tuple[Array, ...], observations: TrialObservations
) -> GaussianProcess:
    """Return the process fitted to all observations, then fitted again without contradicted
    observations.

    A measurement far below its prediction from the other measurements was disturbed. A pruned
    measurement is an upper bound, and is ignored if the other measurements predict less.
    """
    values, log_peak_sds = compress_observations(observations.log_peaks, observations.sds)
    compressed_sds = compress_shared_sds(observations.log_peaks, observations.shared_sds)
    process = fit_process(
        covariance_tables,
        observations.points,
        values,
        log_peak_sds**2,
        ProcessPriors(),
        shared_sds=compressed_sds,
    )
    if len(values) < MIN_COMPARED_OBSERVATIONS:
        return process
    residual, sd = process.compute_leave_one_out_errors()
    is_disregarded = exceeds_prediction(-residual, sd) | (observations.pruned & (residual > 0.0))
    if not is_disregarded.any():
        return process
    variances = inflate_variances(log_peak_sds**2, is_disregarded, residual, sd)
    return fit_process(
        covariance_tables,
        observations.points,
        values,
        variances,
        ProcessPriors(),
        shared_sds=compressed_sds,
        start_process=process,
    )


def compute_log_expected_improvement(mean: Array, sd: Array, best_log_peak: float) -> Array:
    """Return the logarithm of the expected improvement over ``best_log_peak``, without underflow (Ament
    et al., 2023).
    """
    z_score = (mean - best_log_peak) / sd
    log_density = -0.5 * z_score * z_score - 0.5 * np.log(2 * np.pi)
    near_improvement = np.maximum(np.exp(log_density) + z_score * ndtr(z_score), 1e-300)
    # For z far below zero, φ(z) + z Φ(z) is computed with the asymptotic series of Mills' ratio.
    squared_score = np.maximum(z_score * z_score, 25.0)
    far_log_improvement = (
        log_density
        - np.log(squared_score)
        + np.log1p(-3.0 / squared_score + 15.0 / squared_score**2)
    )
    return np.asarray(
        np.log(sd) + np.where(z_score > -5.0, np.log(near_improvement), far_log_improvement)
    )
