"""Parameters that matter, parameters that interact, and parameters that may need a wider range.

The effects come from the model's posterior mean. This mean is the sum of one function per parameter and
one function per pair of parameters. Each function is zero at the leading configuration. The spread of a
function over the measured configurations is its contribution to the differences between their peaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import exp, inf

import numpy as np
import numpy.typing as npt

from autotune.estimate import SDS_WITHIN_90
from autotune.optimize.gp.gaussian_process import solve_linear_system
from autotune.optimize.gp.grid import GridAxis, GridPoints
from autotune.optimize.gp.scale import decompress_log_peaks
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.model_view import (
    InteractingPair,
    ModelSlice,
    ModelView,
    ParameterEffect,
    RangeEdge,
)

Array = npt.NDArray[np.float64]

MAX_PAIRS = 5  # maximum number of reported interactions
# a value within this fraction of the range from an end counts as being at that end
EDGE_SHARE = 0.03
WIDENING_FACTOR = 2.0  # factor for widening a range that is too narrow
MAX_SLICES = 8  # maximum number of parameters with a slice, the most important first
SLICE_POINTS = 41
MIN_EDGE_SLOPE = 0.2  # fraction of the range over which the predicted peak must still rise


def compute_effects(surrogate: SurrogateModel) -> dict[str, float]:
    """Return the standard deviation of each parameter's effect over the measured configurations, as a
    log ratio.
    """
    observation_weights = surrogate.log_peak_model.observation_weights
    deviations = {
        parameter_name: float((covariance.T @ observation_weights).std())
        for parameter_name, covariance in _iterate_parameter_covariances(surrogate)
    }
    return dict(sorted(deviations.items(), key=lambda item: -item[1]))


def compute_effect_sds(surrogate: SurrogateModel) -> dict[str, float]:
    """Return the posterior sd of each effect that `compute_effects` returns."""
    process, points = surrogate.log_peak_model, _list_distinct_configurations(surrogate)
    effect_sds = {}
    for d, (parameter_name, covariance) in enumerate(_iterate_parameter_covariances(surrogate)):
        effect_values = covariance.T @ process.observation_weights
        effect_values = effect_values - effect_values.mean()
        direction = (
            effect_values / max(float(np.linalg.norm(effect_values)), 1e-12) / np.sqrt(len(points))
        )
        axis_levels = points[:, d]
        own_covariance = (
            process.amplitudes[d]
            * process.covariance_tables[d][axis_levels[:, None], axis_levels[None, :]]
        )
        cross_covariance = covariance @ direction
        variance = direction @ own_covariance @ direction - cross_covariance @ solve_linear_system(
            process.cholesky_factor, cross_covariance
        )
        effect_sds[parameter_name] = float(np.sqrt(max(float(variance), 0.0)))
    return effect_sds


def find_interacting_pairs(
    surrogate: SurrogateModel, max_pairs: int = MAX_PAIRS
) -> tuple[InteractingPair, ...]:
    """Return the strongest interactions with an effect of at least one percent."""
    process = surrogate.log_peak_model
    interacting_pairs = [
        InteractingPair(
            first_parameter,
            second,
            process.interaction_weight
            * float(((first_covariance * second_covariance).T @ process.observation_weights).std()),
        )
        for (first_parameter, first_covariance), (second, second_covariance) in combinations(
            _iterate_parameter_covariances(surrogate), 2
        )
    ]
    ranked_pairs = sorted(interacting_pairs, key=lambda pair: -pair.effect)[:max_pairs]
    return tuple(pair for pair in ranked_pairs if pair.effect >= 0.01)


def find_range_edges(surrogate: SurrogateModel, best_point: GridPoints) -> tuple[RangeEdge, ...]:
    """Return the parameters whose best value is at an end of the range, if the predicted peak still
    rises towards that end.

    Parameters are left out if the 90 % interval of their effect contains zero, or if no value is beyond
    that end.
    """
    range_edges, effect_sds = [], compute_effect_sds(surrogate)
    clear_effects = {
        parameter_name
        for parameter_name, effect in compute_effects(surrogate).items()
        if effect > SDS_WITHIN_90 * effect_sds[parameter_name]
    }
    for d, axis in enumerate(surrogate.grid.axes):
        is_unmoved = best_point[d] == surrogate.grid.baseline[d]
        if not axis.is_ordered or is_unmoved or axis.dimension.name not in clear_effects:
            continue
        unit_position = float(axis.unit_positions[best_point[d]])
        for range_end, is_at_end in (
            ("low", unit_position <= EDGE_SHARE),
            ("high", unit_position >= 1 - EDGE_SHARE),
        ):
            if not is_at_end:
                continue
            inner_point, level_count = best_point.copy(), len(axis.values)
            step = max(1, round(MIN_EDGE_SLOPE * level_count))
            inner_point[d] = np.clip(
                best_point[d] + (step if range_end == "low" else -step), 0, level_count - 1
            )
            mean_log_peaks, _ = surrogate.predict(np.array([best_point, inner_point]))
            edge = _suggest_wider_range(axis, best_point[d], range_end)
            can_be_wider = edge.try_range != axis.dimension.bounds
            if can_be_wider and mean_log_peaks[0] > mean_log_peaks[1]:
                range_edges.append(edge)
    return tuple(range_edges)


def _suggest_wider_range(axis: GridAxis, level: int, range_end: str) -> RangeEdge:
    dimension = axis.dimension
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    if range_end == "high":
        bounds = (low, high * WIDENING_FACTOR if dimension.is_logarithmic else high + (high - low))
    else:
        bounds = (low / WIDENING_FACTOR if dimension.is_logarithmic else low - (high - low), high)
    # Counts and sizes cannot be negative, and a count of workers cannot be below one.
    lowest_bound = (
        -inf if low < 0 and low not in dimension.parameter.special_values else min(low, 0.0)
    )
    if dimension.is_integer and low > 0:
        lowest_bound = min(low, 1.0)
    clipped_bounds = [dimension.to_number(max(lowest_bound, bound)) for bound in bounds]
    return RangeEdge(
        dimension.name, axis.values[level], range_end, (clipped_bounds[0], clipped_bounds[1])
    )


def _list_distinct_configurations(surrogate: SurrogateModel) -> GridPoints:
    """Return the measured configurations without duplicates. Test beds repeat the baseline, and the
    finals repeat the leaders.
    """
    return np.unique(surrogate.observations.points, axis=0)


def _iterate_parameter_covariances(surrogate: SurrogateModel) -> Iterator[tuple[str, Array]]:
    """Yield each parameter's name and the covariance of its effect.

    Rows are the observations that the model was fitted to, and columns are the distinct measured
    configurations.
    """
    process, points = surrogate.log_peak_model, _list_distinct_configurations(surrogate)
    for d, axis in enumerate(surrogate.grid.axes):
        observed_levels, configuration_levels = process.points[:, d], points[:, d]
        axis_covariances = (
            process.amplitudes[d]
            * process.covariance_tables[d][observed_levels[:, None], configuration_levels[None, :]]
        )
        yield axis.dimension.name, axis_covariances


def build_model_view(surrogate: SurrogateModel) -> ModelView:
    """Return the model's estimates of the parameters' effects, for records and reports."""
    best_point = surrogate.observations.points[surrogate.find_best_index()]
    effects, effect_sds = compute_effects(surrogate), compute_effect_sds(surrogate)
    return ModelView(
        importance=tuple(
            ParameterEffect(parameter_name, round(effect, 4), round(effect_sds[parameter_name], 4))
            for parameter_name, effect in effects.items()
        ),
        pairs=tuple(find_interacting_pairs(surrogate)),
        edges=tuple(find_range_edges(surrogate, best_point)),
        slices={
            parameter_name: _build_slice(surrogate, parameter_name)
            for parameter_name in list(effects)[:MAX_SLICES]
        },
    )


def _build_slice(surrogate: SurrogateModel, parameter_name: str) -> ModelSlice:
    axes = surrogate.grid.axes
    axis_index = next(d for d, axis in enumerate(axes) if axis.dimension.name == parameter_name)
    level_count = len(axes[axis_index].values)
    levels = np.unique(
        np.linspace(0, level_count - 1, min(level_count, SLICE_POINTS)).round().astype(int)
    )
    points = np.repeat(
        surrogate.observations.points[surrogate.find_best_index()][None, :], len(levels), axis=0
    )
    points[:, axis_index] = levels
    mean_log_peaks, log_peak_sds = surrogate.predict(points)
    best_peak = exp(surrogate.observations.log_peaks.max())

    def convert_to_peaks(log_peaks: Array) -> tuple[float, ...]:
        # Values of a benchmark command may have any magnitude.
        return tuple(
            float(f"{best_peak * np.exp(log_peak):.6g}")
            for log_peak in decompress_log_peaks(log_peaks)
        )

    return ModelSlice(
        x=tuple(axes[axis_index].values[level] for level in levels),
        mean=convert_to_peaks(mean_log_peaks),
        low=convert_to_peaks(mean_log_peaks - SDS_WITHIN_90 * log_peak_sds),
        high=convert_to_peaks(mean_log_peaks + SDS_WITHIN_90 * log_peak_sds),
    )
