"""autotune's own sampler: expected improvement of a Gaussian process in which few parameters matter.

Candidates are mutations and crossovers of the leaders, random points, and the leaders after the moves
that a diagnosis recommends. As long as such moves bring large gains, they are made without a model
(`moves.suggest_long_step`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import log, prod
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.base import SamplerTask, SpaceSampler
from autotune.optimize.gp.grid import GridPoints, ParameterGrid, find_distinct_indices
from autotune.optimize.gp.moves import (
    MAX_FAILED_STEPS,
    list_guided_candidates,
    read_history,
    suggest_long_step,
)
from autotune.optimize.gp.surrogate import (
    MIN_RELEVANT_GAIN,
    SurrogateModel,
    TrialObservations,
    collect_observations,
    compute_log_expected_improvement,
    has_measured_preset,
    read_shifts,
)
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Settings, Value
from autotune.space.dimension import PRESET_NAMES
from autotune.space.repair import InfeasibleRule
from autotune.space.space import SearchSpace

# A model needs several different trials. Without a measured preset, the search starts with a Latin
# hypercube of this many configurations.
COLD_START_TRIALS = 8
MIN_TRIALS = 2
# Maximum number of points to draw for one suggestion, because the rules may allow few points.
MAX_OPENING_DRAWS = 200
# With fewer trials, the model understates its uncertainty, so the model must not stop the search.
MIN_STOP_TRIALS = 20
# If the probability of a gain from the core parameters is lower, all other parameters are searched, too.
EXHAUSTED_PROBABILITY = 0.1
# One in ALL_PARAMETERS_INTERVAL suggestions may change any parameter to any value.
ALL_PARAMETERS_INTERVAL = 3
MAX_CACHED_REPAIRS = 2000
# In a space with at most this many configurations, no configuration is suggested twice.
MAX_LISTED_POINTS = 200


class GpSampler(SpaceSampler):
    """autotune's own sampler, which is stateless except for a cache: suggestions depend only on the
    stored trials and the seed.

    After a reseed, suggestions differ from the suggestions of other processes.
    ``improvement_probability`` is the probability, at the last suggestion, that any configuration is
    better than the best known configuration by at least ``MIN_RELEVANT_GAIN``. With too few trials, the
    probability is ``None``.
    """

    improvement_probability: float | None = None

    def __init__(self, task: SamplerTask) -> None:
        super().__init__(task)
        self._repairs_task = task
        self._repairs: dict[tuple[Value | frozenset[str], ...], GridPoints | None] = {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        grid = self._task.grid
        trials = study.get_trials(deepcopy=False)
        observations = collect_observations(grid, trials, trial.number, read_shifts(study))
        untried_points = self._list_untried_points(observations)
        if untried_points is not None and not len(untried_points):
            self.improvement_probability = 0.0  # every configuration was tried
            return dict(grid.decode(grid.baseline))
        point = self._suggest_point(study, trials, trial.number, observations)
        if untried_points is not None:
            point = find_nearest_point(grid, point, untried_points)
        return dict(grid.decode(point))

    def _suggest_point(
        self,
        study: Study,
        trials: Sequence[FrozenTrial],
        trial_number: int,
        observations: TrialObservations,
    ) -> GridPoints:
        grid = self._task.grid
        self.improvement_probability = None
        started_count = observations.started_count
        rng = np.random.default_rng((self._task.seed, trial_number, *self._seed_offset))
        core_region = SearchRegion.from_core(grid, self._task.space)
        if self._task.has_several_beds and has_no_comparison(observations):
            return self._suggest_near_preset(observations, rng, core_region)
        long_step_point = suggest_long_step(grid, observations, self._repair_points)
        if long_step_point is not None:
            return long_step_point
        is_cold_start = started_count < (
            MIN_TRIALS if has_measured_preset(trials) else COLD_START_TRIALS
        )
        if is_cold_start or len(observations.points) < MIN_TRIALS:
            return self._draw_opening_point(observations)
        # Optuna's number cannot be used, because shared studies use several numbers per suggestion.
        if started_count % ALL_PARAMETERS_INTERVAL == ALL_PARAMETERS_INTERVAL - 1:
            core_region = SearchRegion.from_grid(grid)  # parameters of any class may matter
        surrogate = SurrogateModel.fit(grid, observations)
        current_point = _find_current_point(grid, trials)
        point, self.improvement_probability = self._propose_point(
            surrogate, rng, current_point, core_region, started_count
        )
        return self._draw_opening_point(observations) if surrogate.was_tried(point) else point

    def _draw_opening_point(self, observations: TrialObservations) -> GridPoints:
        """Return a new point of a Latin hypercube that satisfies the rules.

        If a point is unsuitable, a point of another hypercube replaces it, at most
        ``MAX_OPENING_DRAWS`` times.
        """
        grid, tried_keys = self._task.grid, self._task.grid.build_keys(observations.tried_points)
        for hypercube_index in range(MAX_OPENING_DRAWS):
            member_index = observations.started_count + hypercube_index * COLD_START_TRIALS
            point = draw_latin_hypercube(grid, COLD_START_TRIALS, member_index, self._task.seed)
            repaired_points = self._repair_points(point[None, :])
            if not grid.build_keys(repaired_points) <= tried_keys:
                return np.asarray(repaired_points[0])
        return point

    def _list_untried_points(self, observations: TrialObservations) -> GridPoints | None:
        """Return all configurations that were not tried yet; ``None`` if the space has too many
        configurations to list them.
        """
        grid = self._task.grid
        if prod(grid.level_counts.tolist()) > MAX_LISTED_POINTS:
            return None
        levels = np.meshgrid(*map(np.arange, grid.level_counts), indexing="ij")
        all_points = np.stack(levels, axis=-1).reshape(-1, len(grid.axes))
        points = grid.reset_inactive(self._repair_points(all_points))
        tried_keys = grid.build_keys(observations.tried_points)
        is_new = [point.tobytes() not in tried_keys for point in points]
        return np.asarray(points[np.array(is_new, bool)])

    def _propose_point(
        self,
        surrogate: SurrogateModel,
        rng: np.random.Generator,
        current_point: GridPoints | None,
        core_region: SearchRegion,
        started_count: int,
    ) -> tuple[GridPoints, float | None]:
        """Return the most promising point, and the probability that any point is clearly better than
        the best known point.

        If no gain is likely inside ``core_region``, or all its points were tried, the point is from the
        whole grid.
        """
        point, runners_up = propose_points(
            surrogate, self._repair_points, rng, current_point, core_region
        )
        if surrogate.was_tried(point) and not core_region.is_whole(surrogate.grid):
            point, runners_up = propose_points(surrogate, self._repair_points, rng, current_point)
        if started_count < MIN_STOP_TRIALS:
            return point, None
        probability = surrogate.estimate_improvement_probability(runners_up, rng)
        if probability < EXHAUSTED_PROBABILITY and not core_region.is_whole(surrogate.grid):
            point, runners_up = propose_points(surrogate, self._repair_points, rng, current_point)
            probability = surrogate.estimate_improvement_probability(runners_up, rng)
        return point, probability

    def _suggest_near_preset(
        self, observations: TrialObservations, rng: np.random.Generator, core_region: SearchRegion
    ) -> GridPoints:
        """Return a preset with a few changes, for a test bed that is free while other beds measure the
        presets.

        Most stacks sustain far higher rates with a preset than with their baseline, but the best preset
        is not known yet.
        """
        grid, space = self._task.grid, self._task.space
        presets = [
            space.preset_settings(preset_name, space.deployments[0]) for preset_name in PRESET_NAMES
        ]
        # A preset without any advised or published value equals the baseline.
        changed_presets = [preset for preset in presets if preset != space.baseline] or presets[:1]
        leaders = np.unique(grid.reset_inactive(grid.encode_all(changed_presets)), axis=0)
        points = clip_to_stride(
            grid, scatter_leaders(grid, leaders, BATCH_SIZE, MIN_CHANGES, rng, core_region), leaders
        )
        points = grid.reset_inactive(self._repair_points(points))
        tried_points = np.vstack([leaders, grid.reset_inactive(observations.tried_points)])
        is_new = count_changes(grid, points, tried_points).min(axis=1) > 0
        if not is_new.any():
            return self._draw_opening_point(observations)
        return np.asarray(points[int(is_new.argmax())])

    def _repair_points(self, points: GridPoints, origin: GridPoints | None = None) -> GridPoints:
        """Return the points after repair, as they would be measured. Points that cannot satisfy the
        rules are left out.

        Differences from ``origin`` are kept if changes of other parameters can satisfy the rules.
        """
        grid, repaired_points = self._task.grid, []
        for point in points:
            kept_names = set() if origin is None else _select_kept_parameters(grid, point, origin)
            repaired_point = self._repair_point(point, frozenset(kept_names))
            if repaired_point is not None:
                repaired_points.append(repaired_point)
        return np.array(repaired_points, np.intp).reshape(len(repaired_points), len(grid.axes))

    def _repair_point(self, point: GridPoints, kept_names: frozenset[str]) -> GridPoints | None:
        """Return a point as it would be measured; ``None`` if the point cannot satisfy the rules.

        Results are cached, because suggestions from the same leader repeat most of its moves.
        """
        grid, space = self._task.grid, self._task.space
        if self._repairs_task is not self._task or len(self._repairs) >= MAX_CACHED_REPAIRS:
            self._repairs_task, self._repairs = self._task, {}
        settings = grid.decode(point)
        cache_key = (*settings.values(), kept_names)
        if cache_key not in self._repairs:
            try:
                self._repairs[cache_key] = grid.encode(
                    _select_candidate(space, settings, set(kept_names))
                )
            except InfeasibleRule:
                self._repairs[cache_key] = None
        return self._repairs[cache_key]


def _select_kept_parameters(grid: ParameterGrid, point: GridPoints, origin: GridPoints) -> set[str]:
    """Return the parameters whose values a repair should keep after a move.

    If the move lowers no parameter, the changed parameters are kept, so that a repair raises the
    parameters that limit them. If the move lowers any parameter, all parameters except the lowered
    parameters are kept.
    """
    is_lowered = np.array([axis.is_ordered for axis in grid.axes]) & (point < origin)
    kept_mask = ~is_lowered if is_lowered.any() else point != origin
    return {
        axis.dimension.name for axis, is_kept in zip(grid.axes, kept_mask, strict=True) if is_kept
    }


def _select_candidate(space: SearchSpace, settings: Settings, kept_names: set[str]) -> Settings:
    """Return settings that satisfy the rules, if possible without changes to the parameters in
    ``kept_names``.
    """
    if kept_names:
        with suppress(InfeasibleRule):
            return space.build_candidate(settings, kept_names).settings
    return space.build_candidate(settings).settings


@dataclass(frozen=True)
class SearchRegion:
    """The axes of a grid that may be changed, and the lowest and highest level for each axis."""

    axes: npt.NDArray[np.intp]
    low: GridPoints
    high: GridPoints

    @classmethod
    def from_grid(cls, grid: ParameterGrid) -> SearchRegion:
        return cls(
            np.arange(len(grid.axes)), np.zeros_like(grid.level_counts), grid.level_counts - 1
        )

    @classmethod
    def from_core(cls, grid: ParameterGrid, space: SearchSpace) -> SearchRegion:
        """Return the region of the parameters known to matter, except levels that guides warn
        against.
        """
        if not space.searches_core_first:
            return cls.from_grid(grid)
        core_names = {dimension.name for dimension in space.core_dimensions}
        axes = [d for d, axis in enumerate(grid.axes) if axis.dimension.name in core_names]
        low_levels, high_levels = zip(*(axis.safe_levels for axis in grid.axes), strict=True)
        return cls(np.array(axes, np.intp), np.array(low_levels), np.array(high_levels))

    def is_whole(self, grid: ParameterGrid) -> bool:
        """True if the region contains all levels of every axis."""
        levels = self.high - self.low + 1
        return len(self.axes) == len(levels) and bool((levels == grid.level_counts).all())

    def draw_points(self, point_count: int, rng: np.random.Generator) -> GridPoints:
        """Return points whose levels are drawn uniformly from the region."""
        level_counts = self.high - self.low + 1
        return self.low + (rng.random((point_count, len(level_counts))) * level_counts).astype(
            np.intp
        )


Array = npt.NDArray[np.float64]
PointProjection = Callable[..., GridPoints]

MAX_LEADERS = 4
PLAUSIBLE_SDS = 2.0  # maximum distance in sds between a plausible leader and the best
# penalty for each restart, subtracted from the score (the logarithm of the improvement)
RESTART_PENALTY = 0.02
TRIED_SCORE = -1e9  # score of a configuration that was measured already, or is being measured
MUTATION_COUNT, RANDOM_COUNT = 600, 300
# Maximum and minimum number of parameters of a leader to change at once. Many changes at once are rarely
# good, and do not show which change matters. Each further change reduces the score by DISTANCE_PENALTY.
MAX_CHANGES, MIN_CHANGES, DISTANCE_PENALTY = 4, 2, 10.0
# A suggestion changes a number by at most this share of its range. Predictions are most uncertain at the
# ends of ranges. Without this limit, most suggestions would be at these ends, where few configurations
# are good.
MAX_STRIDE = 0.25
# The number of changes is halved after this many consecutive failures, and doubled after this many
# consecutive successes (TuRBO).
FAILURES_TO_SHRINK, SUCCESSES_TO_GROW = 10, 1
# Bonus for the score of a recommended move, because the model lacks the information from a diagnosis.
RECOMMENDATION_BONUS = log(3.0)
# The improvement is multiplied by the probability that the configuration works, to the power
# FEASIBILITY_POWER. Configurations with a probability below LIKELY_FEASIBLE get a penalty.
FEASIBILITY_POWER, LIKELY_FEASIBLE = 4.0, 0.5
DIRECTION_SIGNS, GUIDED_STEP = {"": 0, "+": 1, "-": -1}, 1 / 3
EVOLUTION_ROUNDS, PARENT_COUNT, OFFSPRING_COUNT, BATCH_SIZE = 5, 8, 160, 20


@dataclass(frozen=True)
class _Acquisition:
    """The score of a point: the logarithm of its expected improvement, less penalties.

    ``max_changes`` is the maximum number of parameters that may differ from the nearest of
    ``incumbents``.
    """

    surrogate: SurrogateModel
    best_log_peak: float
    incumbents: GridPoints
    max_changes: int

    def compute_penalized_score(self, points: GridPoints) -> Array:
        """Return the score minus a penalty for points with too many changes from every incumbent."""
        change_counts = count_changes(self.surrogate.grid, points, self.incumbents).min(axis=1)
        distance_penalty = DISTANCE_PENALTY * np.maximum(change_counts - self.max_changes, 0)
        return np.asarray(self.compute_score(points) - distance_penalty)

    def compute_score(self, points: GridPoints) -> Array:
        mean_log_peaks, log_peak_sds = self.surrogate.predict(points)
        scores = compute_log_expected_improvement(mean_log_peaks, log_peak_sds, self.best_log_peak)
        feasibility = self.surrogate.predict_feasibility(points)
        scores += FEASIBILITY_POWER * np.log(np.maximum(feasibility, 1e-12)) - 5.0 * (
            feasibility < LIKELY_FEASIBLE
        )
        is_tried = np.array([self.surrogate.was_tried(point) for point in points])
        return np.where(is_tried, TRIED_SCORE, scores)


def _find_current_point(grid: ParameterGrid, trials: Sequence[FrozenTrial]) -> GridPoints | None:
    """Return the point of the last finished trial, which is probably still deployed."""
    deployed_settings = [t.params for t in trials if t.params and t.state.is_finished()]
    if not deployed_settings:
        return None
    return np.asarray(grid.reset_inactive(grid.encode_all(deployed_settings[-1:]))[0])


def propose_points(
    surrogate: SurrogateModel,
    project_points: PointProjection,
    rng: np.random.Generator,
    current_point: GridPoints | None = None,
    region: SearchRegion | None = None,
) -> tuple[GridPoints, GridPoints]:
    """Return the configuration that likely works and has the highest expected improvement, and the
    other candidates.

    Among nearly equal candidates, the one with the fewest restarts from ``current_point`` is chosen. The
    suggestion changes a few parameters of a leader inside ``region``, takes a whole tier from another
    configuration, or follows a recommended move. ``project_points`` changes points so that they satisfy
    the rules of the space.
    """
    grid, observations = surrogate.grid, surrogate.observations
    surrogate = surrogate.with_pending_trials()
    mean_log_peaks, log_peak_sds = surrogate.predict_measured()
    # A configuration that was measured several times counts as one leader.
    distinct_rows = find_distinct_indices(observations.points)
    leading_rows = select_plausible_rows(mean_log_peaks[distinct_rows], log_peak_sds[distinct_rows])
    leaders = observations.points[distinct_rows[leading_rows]]
    acquisition = _Acquisition(
        surrogate,
        float(mean_log_peaks.max()),
        leaders,
        choose_change_count(observations.log_peaks[distinct_rows]),
    )
    candidate_pool = _evolve_pool(acquisition, leaders, rng, region)
    candidates, scores = _find_untried_batch(acquisition, candidate_pool, project_points)
    advised_points, bonuses = _list_advised_points(
        grid, observations.merge_repeats(), leading_rows, project_points
    )
    if len(advised_points):
        candidates = np.vstack([candidates, advised_points])
        scores = np.concatenate([scores, acquisition.compute_score(advised_points) + bonuses])
    if current_point is not None:
        scores = scores - RESTART_PENALTY * count_restarts(grid, current_point, candidates)
    return np.asarray(candidates[int(scores.argmax())]), candidates


def _list_advised_points(
    grid: ParameterGrid,
    observations: TrialObservations,
    leading_rows: npt.NDArray[np.intp],
    project_points: PointProjection,
) -> tuple[GridPoints, Array]:
    """Return the points of moves from the leaders in ``leading_rows``, with the bonuses for their
    scores.
    """
    points, bonuses = [np.empty((0, len(grid.axes)), np.intp)], [np.empty(0)]
    for row in leading_rows:
        for moved_points, bonus in list_recommended_points(
            grid, observations, int(row), is_first_leader=row == leading_rows[0]
        ):
            projected_points = project_points(moved_points, observations.points[row])
            points.append(grid.reset_inactive(projected_points))
            bonuses.append(np.full(len(projected_points), bonus))
    return np.vstack(points), np.concatenate(bonuses)


def list_recommended_points(
    grid: ParameterGrid, observations: TrialObservations, row: int, *, is_first_leader: bool
) -> Iterator[tuple[GridPoints, float]]:
    """Yield the points that moves from a configuration reach, with the bonus for their score.

    A removed bottleneck may become the limit again once the next bottleneck is removed. For the first
    leader, moves that were recommended for other configurations are therefore candidates, too. After
    failed steps from a leader, the moves recommended for that leader get no bonus.
    """
    if not observations.recommended_changes:
        return
    history, own_moves = read_history(observations, row), observations.recommended_changes[row]
    failed_step_count = sum(observations.suggested[row + 1 :]) + history.unusable_count
    earlier_moves = dict.fromkeys(
        move for trial_moves in observations.recommended_changes for move in trial_moves
    )
    other_moves = (
        [move for move in earlier_moves if move not in own_moves] if is_first_leader else []
    )
    bonus = RECOMMENDATION_BONUS if failed_step_count < MAX_FAILED_STEPS else 0.0
    for moves, point_bonus in ((own_moves, bonus), (other_moves, RECOMMENDATION_BONUS / 2)):
        points = list_guided_candidates(grid, history, moves)
        if len(points):
            yield points, point_bonus


def has_no_comparison(observations: TrialObservations) -> bool:
    """True if at most one configuration was measured successfully, and none failed."""
    return len(find_distinct_indices(observations.points)) < MIN_TRIALS and not len(
        observations.failed_points
    )


def select_plausible_rows(mean: Array, sd: Array) -> npt.NDArray[np.intp]:
    """Return the indices of configurations that may be the best, by descending mean."""
    descending_rows = np.argsort(-mean)[:MAX_LEADERS]
    mean_shortfall = mean[descending_rows[0]] - mean[descending_rows]
    return np.asarray(
        descending_rows[
            mean_shortfall <= PLAUSIBLE_SDS * np.hypot(sd[descending_rows], sd[descending_rows[0]])
        ]
    )


def choose_change_count(log_peaks: Array) -> int:
    """Return the number of parameters to change at once, based on the results of recent trials."""
    change_count, failure_count, success_count = MAX_CHANGES, 0, 0
    best_peaks = np.maximum.accumulate(log_peaks) if len(log_peaks) else log_peaks
    for best_earlier_peak, peak in zip(best_peaks[:-1], log_peaks[1:], strict=True):
        failure_count, success_count = (
            (0, success_count + 1)
            if peak > best_earlier_peak + MIN_RELEVANT_GAIN
            else (failure_count + 1, 0)
        )
        if failure_count == FAILURES_TO_SHRINK:
            change_count, failure_count = max(MIN_CHANGES, change_count // 2), 0
        elif success_count == SUCCESSES_TO_GROW:
            change_count, success_count = min(MAX_CHANGES, 2 * change_count), 0
    return change_count


def count_changes(
    grid: ParameterGrid, points: GridPoints, leaders: GridPoints
) -> npt.NDArray[np.intp]:
    """Return the number of parameters in which each point differs from each leader: ``[point, leader]``.

    A parameter does not count if the parameter that it depends on differs as well.
    """
    is_changed = points[:, None, :] != leaders[None, :, :]
    for child, parent, _ in grid.conditions:
        is_changed[:, :, child] &= ~is_changed[:, :, parent]
    return np.asarray(is_changed.sum(axis=2))


def find_nearest_point(grid: ParameterGrid, point: GridPoints, points: GridPoints) -> GridPoints:
    """Return the row of ``points`` that differs from ``point`` in the fewest parameters and, among such
    rows, by the smallest changes.
    """
    active_point = grid.reset_inactive(point[None, :])
    change_counts = count_changes(grid, points, active_point)[:, 0]
    level_shares = np.abs(points - active_point) / grid.level_counts
    return np.asarray(points[int((change_counts + level_shares.mean(axis=1)).argmin())])


def _evolve_pool(
    acquisition: _Acquisition,
    leaders: GridPoints,
    rng: np.random.Generator,
    region: SearchRegion | None,
) -> GridPoints:
    """Return candidates, the best candidate first: points near the leaders, their best offspring, and
    leaders with one tier from another configuration.

    The first generation comes last, in case the rules allow none of its offspring.
    """
    grid, observations = acquisition.surrogate.grid, acquisition.surrogate.observations
    point_groups = [
        mutate_points(grid, leaders, MUTATION_COUNT, rng, region=region),
        scatter_leaders(grid, leaders, RANDOM_COUNT, acquisition.max_changes, rng, region),
    ]
    candidate_pool = grid.reset_inactive(clip_to_stride(grid, np.vstack(point_groups), leaders))
    scores = acquisition.compute_penalized_score(candidate_pool)
    first_generation = candidate_pool[np.argsort(-scores)]
    for _ in range(EVOLUTION_ROUNDS):
        parent_rows = np.argsort(-scores)[:PARENT_COUNT]
        children = mutate_points(
            grid,
            candidate_pool[parent_rows],
            OFFSPRING_COUNT,
            rng,
            mean_change_count=1.2,
            region=region,
        )
        offspring = grid.reset_inactive(clip_to_stride(grid, children, leaders))
        candidate_pool = np.vstack([candidate_pool[parent_rows], offspring])
        scores = np.concatenate(
            [scores[parent_rows], acquisition.compute_penalized_score(offspring)]
        )
    swapped_points = grid.reset_inactive(swap_tiers(grid, leaders, observations.points))
    candidate_pool, scores = (
        np.vstack([candidate_pool, swapped_points]),
        np.concatenate([scores, acquisition.compute_score(swapped_points)]),
    )
    return np.vstack([candidate_pool[np.argsort(-scores)], first_generation])


def clip_to_stride(grid: ParameterGrid, points: GridPoints, leaders: GridPoints) -> GridPoints:
    """Return ``points`` with each number at most ``MAX_STRIDE`` from its value in the nearest leader.

    If a choice changes, the parameters that depend on it get their values from the nearest leader.
    """
    leader = leaders[count_changes(grid, points, leaders).argmin(axis=1)]
    stride = np.maximum(1, np.rint(MAX_STRIDE * (grid.level_counts - 1))).astype(np.intp)
    is_ordered = np.array([axis.is_ordered for axis in grid.axes])
    clipped_points = np.where(is_ordered, np.clip(points, leader - stride, leader + stride), points)
    for child, parent, _ in grid.conditions:
        is_parent_changed = clipped_points[:, parent] != leader[:, parent]
        clipped_points[is_parent_changed, child] = leader[is_parent_changed, child]
    return clipped_points


def swap_tiers(grid: ParameterGrid, leaders: GridPoints, donor_points: GridPoints) -> GridPoints:
    """Return each leader with the settings of one tier taken from another configuration.

    Settings that are good for a tier in one configuration are often good in others.
    """
    tiers = np.array([ParameterName.parse(axis.dimension.name).tier for axis in grid.axes])
    point_groups = [leaders[:0]]
    for tier in np.unique(tiers):
        is_in_tier = tiers == tier
        for donor_levels in np.unique(donor_points[:, is_in_tier], axis=0):
            swapped_points = leaders.copy()
            swapped_points[:, is_in_tier] = donor_levels
            point_groups.append(swapped_points[(swapped_points != leaders).any(axis=1)])
    return np.vstack(point_groups)


def scatter_leaders(
    grid: ParameterGrid,
    leaders: GridPoints,
    copy_count: int,
    change_count: int,
    rng: np.random.Generator,
    region: SearchRegion | None = None,
) -> GridPoints:
    """Return ``copy_count`` copies of leaders, each with ``change_count`` parameters at random levels
    inside ``region``.
    """
    points = leaders[rng.integers(len(leaders), size=copy_count)]
    region = region or SearchRegion.from_grid(grid)
    draws = _draw_uniform(points, region, rng)
    thresholds = np.sort(draws, axis=1)[:, [min(change_count, len(region.axes)) - 1]]
    return np.where(draws <= thresholds, region.draw_points(copy_count, rng), points)


def _draw_uniform(points: GridPoints, region: SearchRegion, rng: np.random.Generator) -> Array:
    """Return a random number from 0 to 1 for each parameter inside the region, and 2 for all other
    parameters.
    """
    draws = np.full(points.shape, 2.0)
    draws[:, region.axes] = rng.random((len(points), len(region.axes)))
    return draws


def _find_untried_batch(
    acquisition: _Acquisition, candidates: GridPoints, project_points: PointProjection
) -> tuple[GridPoints, Array]:
    """Return the first batch of projected ``candidates`` that contains an untried point, or else the
    incumbents; also return the scores of its points.

    The projection may map several points to a point that was already tried, and leaves out points that
    cannot satisfy the rules.
    """
    for start_index in range(0, len(candidates), BATCH_SIZE):
        batch = acquisition.surrogate.grid.reset_inactive(
            project_points(candidates[start_index : start_index + BATCH_SIZE])
        )
        if not len(batch):
            continue
        scores = acquisition.compute_score(batch)
        if scores.max() > TRIED_SCORE:
            return batch, scores
    return acquisition.incumbents, acquisition.compute_score(acquisition.incumbents)


def mutate_points(
    grid: ParameterGrid,
    parents: GridPoints,
    copy_count: int,
    rng: np.random.Generator,
    mean_change_count: float = 2.0,
    region: SearchRegion | None = None,
) -> GridPoints:
    """Return ``copy_count`` copies of parents, each with about ``mean_change_count`` mostly small
    changes inside ``region``.
    """
    points = parents[rng.integers(len(parents), size=copy_count)]
    region = region or SearchRegion.from_grid(grid)
    draws = _draw_uniform(points, region, rng)
    expected_changes = rng.choice([0.0, 0.5, 1.0, 1.5], size=(copy_count, 1)) * mean_change_count
    is_mutated = draws < expected_changes / len(region.axes)
    is_mutated[np.arange(copy_count), rng.choice(region.axes, size=copy_count)] = True
    level_counts = grid.level_counts
    step_scales = rng.choice([0.03, 0.1, 0.25, 0.5], size=points.shape)
    step = np.rint(rng.normal(size=points.shape) * step_scales * level_counts).astype(np.intp)
    step = np.where(step == 0, rng.choice([-1, 1], size=points.shape), step)
    # If guides recommend a direction, about two out of three steps take that direction.
    guided_signs = np.array(
        [DIRECTION_SIGNS[axis.dimension.parameter.direction] for axis in grid.axes]
    )
    is_guided = (guided_signs != 0) & (rng.random(points.shape) < GUIDED_STEP)
    step = np.where(is_guided, guided_signs * np.abs(step), step)
    # A value that is already outside the region may not move further outwards.
    moved_points = np.clip(
        points + step, np.minimum(region.low, points), np.maximum(region.high, points)
    )
    is_ordered = np.array([axis.is_ordered for axis in grid.axes])
    moved_points = np.where(
        is_ordered, moved_points, (rng.random(points.shape) * level_counts).astype(np.intp)
    )
    return np.where(is_mutated, moved_points, points)


def draw_latin_hypercube(
    grid: ParameterGrid, configuration_count: int, member_index: int, seed: int
) -> GridPoints:
    """Return member ``member_index`` of a Latin hypercube of ``configuration_count`` configurations."""
    rng = np.random.default_rng((seed, member_index // configuration_count))
    cell_numbers = np.array(
        [
            rng.permutation(configuration_count)[member_index % configuration_count]
            for _ in grid.axes
        ]
    )
    cell_offset = rng.random((configuration_count, len(grid.axes)))[
        member_index % configuration_count
    ]
    return np.asarray(
        (cell_numbers + cell_offset) / configuration_count * grid.level_counts
    ).astype(np.intp)


def count_restarts(grid: ParameterGrid, current_point: GridPoints, points: GridPoints) -> Array:
    """Return the number of services that must be restarted to change from ``current_point`` to each of
    ``points``.

    A change without a restart takes less time, so configurations that need no restart are preferred.
    """
    service_by_axis = [
        ParameterName.parse(axis.dimension.name).service_prefix for axis in grid.axes
    ]
    needs_restart = np.array(
        [axis.dimension.parameter.action is Action.RESTART for axis in grid.axes]
    )
    is_restart_change = (points != current_point) & needs_restart
    services = sorted(set(service_by_axis))
    is_of_service = np.array(
        [[owner == service for service in services] for owner in service_by_axis]
    )
    return np.asarray(
        (is_restart_change.astype(float) @ is_of_service > 0).sum(axis=1).astype(float)
    )
