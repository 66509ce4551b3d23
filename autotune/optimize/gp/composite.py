"""A grey-box model: the capacity of each part of a stack (a service instance), and the soft minimum of
these capacities.

A stack sustains no more than its bottleneck. If the capacities of all parts are measured, a trial
shows a parameter's effect on a part even if another part is the bottleneck. The method is Bayesian
optimisation of composite functions (Astudillo & Frazier, 2019). The capacity of each part is modelled
by an additive Gaussian process over the parameters of its tiers. Parameters of other tiers that a
request occupies at the same time get a smaller prior variance. The peak is measured far more precisely
than the capacity of any part, and therefore refines the capacity of the bottleneck. A small process
over all parameters models what the parts do not explain, so that a wrong capacity does little harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from autotune.estimate import MEASUREMENT_LOG_SD, InstanceCapacity
from autotune.optimize.gp.gaussian_process import (
    GaussianProcess,
    ProcessPriors,
    fit_process,
    inflate_variances,
)
from autotune.optimize.gp.grid import GridPoints, ParameterGrid
from autotune.optimize.gp.scale import compress_loss, compress_shared_sds
from autotune.optimize.outliers import exceeds_prediction
from autotune.parameter_name import ParameterName

Array = npt.NDArray[np.float64]

# a part is modelled only if at least this many trials measured its capacity
MIN_CAPACITY_TRIALS = 4
MIN_MODELLED_INSTANCES = 2
# Possible sharpnesses of the soft minimum, which is soft because the queues of several parts add up.
SHARPNESS_CHOICES = (2.0, 4.0, 8.0)
PREDICTION_DRAWS = 48
# Prior variance of a parameter's effect on a related tier, relative to the effect on its own tier. For
# example, a cache with fewer misses reduces the load on the database.
RELATED_VARIANCE = 0.25
RESIDUAL_PRIORS = ProcessPriors(effect_size=0.06, noise_sd=0.05)
# A part is rarely the bottleneck, so its parameters show no effect in most trials. A typical effect
# learned from such trials would shrink until no untried setting seemed worth a trial.
CAPACITY_PRIORS = ProcessPriors(effect_size=0.2, noise_sd=0.1, scale_width=1.0)
MIN_COMPARED_TRIALS = 6  # minimum number of trials for a search for outliers
# A peak is evidence about a part if the part's share of the soft minimum is above LIMITING_MARGIN. The
# log peak must also be within NEAR_BEST_MARGIN of the best log peak. A peak more than DISTURBED_SDS sds
# below the soft minimum counts as disturbed.
LIMITING_MARGIN, NEAR_BEST_MARGIN, DISTURBED_SDS = 0.3, 0.7, 3.0


# for each trial, capacities by the part's name
InstanceCapacities = Sequence[Mapping[str, InstanceCapacity]]


@dataclass(frozen=True)
class CapacityModel:
    """A model of the log capacity of one part of a stack, over the parameters (``axes``) of its
    tiers.
    """

    axes: GridPoints
    process: GaussianProcess

    def predict(self, points: GridPoints) -> tuple[Array, Array]:
        return self.process.predict(points[:, self.axes])

    def predict_left_out(self, points: GridPoints, measured_rows: GridPoints) -> Array:
        """Return the predicted mean at ``points``. The points in ``measured_rows`` were measured, and
        each of these points is predicted from the other trials only.
        """
        mean_log_capacities, _ = self.predict(points)
        mean_log_capacities[measured_rows] = (
            self.process.values
            + self.process.level
            - self.process.compute_leave_one_out_errors()[0]
        )
        return mean_log_capacities


@dataclass(frozen=True)
class _CapacityEvidence:
    """A part's log capacities ``logs`` in the trials ``rows``, with their ``variances``.

    ``axes`` are the parameters of the part, and ``weights`` scale the prior variance of each axis.
    """

    axes: GridPoints
    weights: Array
    rows: GridPoints
    logs: Array
    variances: Array

    def with_inferred_capacities(self, logs: Array, variances: Array) -> _CapacityEvidence:
        """Return this evidence combined with log capacities that peaks imply; infinite variances add
        nothing.
        """
        precisions, weighted_logs = 1.0 / variances, logs / variances
        np.add.at(precisions, self.rows, 1.0 / self.variances)
        np.add.at(weighted_logs, self.rows, self.logs / self.variances)
        finite_rows = np.flatnonzero(precisions)
        logs, variances = (
            weighted_logs[finite_rows] / precisions[finite_rows],
            1.0 / precisions[finite_rows],
        )
        return replace(self, rows=finite_rows, logs=logs, variances=variances)


@dataclass(frozen=True)
class CompositeModel:
    """A model of log peaks: the soft minimum of the parts' log capacities, plus ``offset``.

    ``best_log_peak`` is the highest measured log peak. ``error`` is the mean error of the compressed
    log peaks if each is predicted from the other trials.
    """

    capacity_models: tuple[CapacityModel, ...]
    sharpness: float
    offset: float
    best_log_peak: float
    residual: GaussianProcess
    error: float

    def predict(self, points: GridPoints) -> tuple[Array, Array]:
        """Return mean and sd of the compressed log peaks at ``points``. All points share the same
        draws.
        """
        predictions = [capacity_model.predict(points) for capacity_model in self.capacity_models]
        draws = [
            mean + sd * z[:, None]
            for (mean, sd), z in zip(predictions, self._normal_draws, strict=True)
        ]
        total_draws = self._compress_minimum(np.stack(draws))
        mean, sd = self.residual.predict(points)
        return total_draws.mean(axis=0) + mean, np.sqrt(total_draws.var(axis=0) + sd**2)

    def draw_samples(
        self, points: GridPoints, sample_count: int, rng: np.random.Generator
    ) -> Array:
        """Return ``sample_count`` samples of the compressed log peaks at ``points``, one sample per
        row.
        """
        capacity_samples = [
            p.process.draw_samples(points[:, p.axes], sample_count, rng)
            for p in self.capacity_models
        ]
        return self._compress_minimum(np.stack(capacity_samples)) + self.residual.draw_samples(
            points, sample_count, rng
        )

    def with_pending_points(self, points: GridPoints) -> CompositeModel:
        return replace(self, residual=self.residual.with_pending_points(points))

    @property
    def _normal_draws(self) -> Array:
        """Return evenly spaced quantiles of the standard normal distribution, in a random order for
        each part.
        """
        rng, levels = (
            np.random.default_rng(1),
            ndtri((np.arange(PREDICTION_DRAWS) + 0.5) / PREDICTION_DRAWS),
        )
        return np.stack([rng.permutation(levels) for _ in self.capacity_models])

    def _compress_minimum(self, log_capacities: Array) -> Array:
        return compress_log_peaks(
            compute_soft_minimum(log_capacities, self.sharpness) + self.offset, self.best_log_peak
        )


def compute_soft_minimum(log_capacities: Array, sharpness: float) -> Array:
    """Return the soft minimum along the first axis: slightly less than the smallest value."""
    minimum = log_capacities.min(axis=0)
    return np.asarray(
        minimum - np.log(np.exp(sharpness * (minimum - log_capacities)).sum(axis=0)) / sharpness
    )


def compress_log_peaks(log_peaks: Array, best_log_peak: float) -> Array:
    """Return log peaks relative to ``best_log_peak``, with large losses compressed."""
    loss = best_log_peak - log_peaks
    return np.where(loss > 0, -compress_loss(np.maximum(loss, 0.0)), -loss)


def fit_composite(
    grid: ParameterGrid,
    covariance_tables: tuple[Array, ...],
    points: GridPoints,
    capacities: InstanceCapacities,
    log_peaks: Array,
    sds: Array,
    shared_sds: Array | None = None,
) -> CompositeModel | None:
    """Return the composite model; ``None`` if too few parts were measured.

    ``sds`` are the sds of the compressed log peaks. ``shared_sds`` (see `fit_process`) apply to both
    log peaks and capacities.
    """
    evidence = _collect_capacity_evidence(grid, capacities)
    fitted_models = [_fit_capacity(covariance_tables, points, shared_sds, e) for e in evidence]
    if len(fitted_models) < MIN_MODELLED_INSTANCES:
        return None
    left_out_peaks = np.array(
        [m.predict_left_out(points, e.rows) for m, e in zip(fitted_models, evidence, strict=True)]
    )
    best_log_peak = float(log_peaks.max())
    sharpness, chosen_indices = _select_parts(left_out_peaks, log_peaks, best_log_peak)
    peak_inferences = _infer_capacities(
        [fitted_models[index] for index in chosen_indices], sharpness, points, log_peaks, sds
    )
    capacity_models = [
        _refine_capacity(
            covariance_tables, points, shared_sds, evidence[i], fitted_models[i], inferred
        )
        for i, inferred in zip(chosen_indices, zip(*peak_inferences, strict=True), strict=True)
    ]
    predicted_capacities = np.array([part.predict(points)[0] for part in capacity_models])
    soft_minima = compute_soft_minimum(predicted_capacities, sharpness)
    left_out_minima = compute_soft_minimum(left_out_peaks[chosen_indices], sharpness)
    offset = _estimate_offset(soft_minima, log_peaks)
    remainder = _compute_unexplained_log_peaks(log_peaks, soft_minima, best_log_peak)
    compressed_sds = compress_shared_sds(log_peaks, shared_sds)
    residual_process = _fit_residual(covariance_tables, points, remainder, sds**2, compressed_sds)
    left_out_remainder = _compute_unexplained_log_peaks(log_peaks, left_out_minima, best_log_peak)
    error = _compute_leave_one_out_error(residual_process, left_out_remainder)
    return CompositeModel(
        tuple(capacity_models), sharpness, offset, best_log_peak, residual_process, error
    )


def _fit_residual(
    covariance_tables: tuple[Array, ...],
    points: GridPoints,
    unexplained_log_peaks: Array,
    variances: Array,
    shared_sds: Array | None,
) -> GaussianProcess:
    return fit_process(
        covariance_tables,
        points,
        unexplained_log_peaks,
        variances,
        RESIDUAL_PRIORS,
        level=0.0,
        shared_sds=shared_sds,
    )


def _compute_unexplained_log_peaks(
    log_peaks: Array, soft_minima: Array, best_log_peak: float
) -> Array:
    """Return the part of the compressed log peaks that the soft minima do not explain."""
    explained_log_peaks = soft_minima + _estimate_offset(soft_minima, log_peaks)
    return compress_log_peaks(log_peaks, best_log_peak) - compress_log_peaks(
        explained_log_peaks, best_log_peak
    )


def _select_parts(
    left_out_peaks: Array, log_peaks: Array, best_log_peak: float
) -> tuple[float, list[int]]:
    """Return the sharpness of the soft minimum, and the indices of the parts that predict the peaks
    best.

    A part whose measured capacity is too low makes the predictions worse, and is left out.
    """
    selected_rows = list(range(len(left_out_peaks)))
    smallest_error, sharpness = _select_sharpness(left_out_peaks, log_peaks, best_log_peak)
    while len(selected_rows) > MIN_MODELLED_INSTANCES:
        smaller_sets = [
            [row for row in selected_rows if row != omitted_row] for omitted_row in selected_rows
        ]
        scored_sets = [
            (
                *_select_sharpness(left_out_peaks[remaining_rows], log_peaks, best_log_peak),
                remaining_rows,
            )
            for remaining_rows in smaller_sets
        ]
        if min(scored_sets)[0] > 0.95 * smallest_error:
            break
        smallest_error, sharpness, selected_rows = min(scored_sets)
    return sharpness, selected_rows


def _refine_capacity(
    covariance_tables: tuple[Array, ...],
    points: GridPoints,
    shared_sds: Array | None,
    evidence: _CapacityEvidence,
    fitted_model: CapacityModel,
    inferred_capacities: tuple[Array, Array],
) -> CapacityModel:
    """Return the model of a part, refined by log capacities that peaks imply.

    ``inferred_capacities`` contains these log capacities and their variances. A part that was never the
    bottleneck keeps its ``fitted_model``.
    """
    if np.isinf(inferred_capacities[1]).all():
        return fitted_model
    return _fit_capacity(
        covariance_tables,
        points,
        shared_sds,
        evidence.with_inferred_capacities(*inferred_capacities),
        fitted_model.process,
    )


def _compute_leave_one_out_error(residual: GaussianProcess, remainders: Array) -> float:
    """Return the mean error of predicted peaks, where each peak is predicted from all other trials.

    ``remainders`` contains each peak minus the parts' prediction without that trial's capacities. The
    residual process predicts each entry of ``remainders`` from the other entries.
    """
    errors, _ = replace(residual, values=remainders).compute_leave_one_out_errors()
    return float(np.abs(errors).mean())


def _infer_capacities(
    capacity_models: Sequence[CapacityModel],
    sharpness: float,
    points: GridPoints,
    log_peaks: Array,
    sds: Array,
) -> tuple[Array, Array]:
    """Return the log capacities that the peaks imply, and their variances: arrays ``[part, trial]``.

    The soft minimum is linearised at the predicted capacities, as in an extended Kalman filter
    (Anderson & Moore, 1979, §8.2). The derivative of the soft minimum with respect to a part is that
    part's share in the minimum. The uncertainty of the other parts increases the variance, which is
    infinite for parts that did not limit the peak.
    """
    mean_log_capacities, own_sds = (
        np.array(predictions)
        for predictions in zip(*(p.predict(points) for p in capacity_models), strict=True)
    )
    soft_minima = compute_soft_minimum(mean_log_capacities, sharpness)
    minimum_shares = np.exp(sharpness * (mean_log_capacities.min(axis=0) - mean_log_capacities))
    minimum_shares /= minimum_shares.sum(axis=0)
    log_excess = log_peaks - _estimate_offset(soft_minima, log_peaks) - soft_minima
    part_variances, peak_variances = (minimum_shares * own_sds) ** 2, sds**2 + MEASUREMENT_LOG_SD**2
    is_usable = (log_peaks > log_peaks.max() - NEAR_BEST_MARGIN) & (
        log_excess > -DISTURBED_SDS * np.sqrt(peak_variances + part_variances.sum(axis=0))
    )
    slopes = np.maximum(minimum_shares, LIMITING_MARGIN)
    capacity_variances = (peak_variances + part_variances.sum(axis=0) - part_variances) / slopes**2
    return mean_log_capacities + log_excess / slopes, np.where(
        is_usable & (minimum_shares > LIMITING_MARGIN), capacity_variances, np.inf
    )


def _select_sharpness(
    left_out_peaks: Array, log_peaks: Array, best_log_peak: float
) -> tuple[float, float]:
    """Return the smallest mean error of the predicted peaks, and the sharpness with this error."""
    errors = []
    for sharpness in SHARPNESS_CHOICES:
        soft_minima = compute_soft_minimum(left_out_peaks, sharpness)
        guessed_peaks = compress_log_peaks(
            soft_minima + _estimate_offset(soft_minima, log_peaks), best_log_peak
        )
        errors.append(
            (
                float(np.abs(compress_log_peaks(log_peaks, best_log_peak) - guessed_peaks).mean()),
                sharpness,
            )
        )
    return min(errors)


def _estimate_offset(soft_minima: Array, log_peaks: Array) -> float:
    """Return the median difference between log peaks and soft minima, over the better half of the
    trials.
    """
    is_upper_half = log_peaks >= np.median(log_peaks)
    return float(np.median((log_peaks - soft_minima)[is_upper_half]))


def _collect_capacity_evidence(
    grid: ParameterGrid, capacities: InstanceCapacities
) -> list[_CapacityEvidence]:
    """Return the evidence for each part whose capacity ``MIN_CAPACITY_TRIALS`` trials or more have
    measured.
    """
    tiers = [ParameterName.parse(axis.dimension.name).tier for axis in grid.axes]
    tier_groups = {
        frozenset(capacity.tiers)
        for trial_capacities in capacities
        for capacity in trial_capacities.values()
    }
    evidence = []
    for part_name in sorted(
        {part_name for trial_capacities in capacities for part_name in trial_capacities}
    ):
        rows = np.array(
            [
                row
                for row, trial_capacities in enumerate(capacities)
                if part_name in trial_capacities
            ],
            np.intp,
        )
        own_capacities = [capacities[row][part_name] for row in rows]
        direct_tiers = {tier for capacity in own_capacities for tier in capacity.tiers}
        related_tiers = {
            tier for tier_group in tier_groups if tier_group & direct_tiers for tier in tier_group
        } | direct_tiers
        axes = np.array([d for d, tier in enumerate(tiers) if tier in related_tiers], np.intp)
        weights = np.array([1.0 if tiers[d] in direct_tiers else RELATED_VARIANCE for d in axes])
        if len(rows) >= MIN_CAPACITY_TRIALS and len(axes):
            log_capacities, capacity_sds = (
                np.array([getattr(c, field) for c in own_capacities]) for field in ("log", "sd")
            )
            evidence.append(_CapacityEvidence(axes, weights, rows, log_capacities, capacity_sds**2))
    return evidence


def _fit_capacity(
    covariance_tables: tuple[Array, ...],
    points: GridPoints,
    shared_sds: Array | None,
    evidence: _CapacityEvidence,
    start_process: GaussianProcess | None = None,
) -> CapacityModel:
    """Return the model fitted to the evidence, then fitted again with little weight on capacities
    that the other capacities contradict.

    The fit starts from ``start_process``, a process fitted to almost the same evidence.
    """
    weighted_axes = zip(evidence.axes, evidence.weights, strict=True)
    scaled_tables = tuple(
        covariance_tables[d] if w == 1.0 else w * covariance_tables[d] for d, w in weighted_axes
    )
    own_points = points[np.ix_(evidence.rows, evidence.axes)]
    shared_sds = None if shared_sds is None else shared_sds[evidence.rows]

    def fit(variances: Array, start_process: GaussianProcess | None) -> GaussianProcess:
        return fit_process(
            scaled_tables,
            own_points,
            evidence.logs,
            variances,
            CAPACITY_PRIORS,
            shared_sds=shared_sds,
            start_process=start_process,
        )

    process = fit(evidence.variances, start_process)
    if len(evidence.rows) >= MIN_COMPARED_TRIALS:
        error, sd = process.compute_leave_one_out_errors()
        is_outlier = exceeds_prediction(np.abs(error), sd)
        if is_outlier.any():
            process = fit(inflate_variances(evidence.variances, is_outlier, error, sd), process)
    return CapacityModel(evidence.axes, process)
