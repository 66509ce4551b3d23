"""autotune's own sampler: expected improvement of a Gaussian process in which few parameters matter.

Candidates are mutations and crossovers of the leaders, random points, and the leaders after the moves
that a diagnosis recommends. As long as such moves bring large gains, they are made without a model
(`moves.suggest_long_step`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.base import SamplerTask, SpaceSampler
from autotune.optimize.gp.grid import GridPoints, ParameterGrid, find_distinct_indices
from autotune.optimize.gp.moves import suggest_long_step
from autotune.optimize.gp.proposal import BATCH_SIZE, MIN_CHANGES, propose_points
from autotune.optimize.gp.surrogate import (
    SurrogateModel,
    TrialObservations,
    collect_observations,
    has_measured_preset,
    read_shifts,
)
from autotune.optimize.gp.variation import (
    SearchRegion,
    clip_to_stride,
    count_changes,
    draw_latin_hypercube,
    scatter_leaders,
)
from autotune.services.base import Settings, Value
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


def _find_current_point(grid: ParameterGrid, trials: Sequence[FrozenTrial]) -> GridPoints | None:
    """Return the point of the last finished trial, which is probably still deployed."""
    deployed_settings = [t.params for t in trials if t.params and t.state.is_finished()]
    if not deployed_settings:
        return None
    return np.asarray(grid.reset_inactive(grid.encode_all(deployed_settings[-1:]))[0])


def has_no_comparison(observations: TrialObservations) -> bool:
    """True if at most one configuration was measured successfully, and none failed."""
    return len(find_distinct_indices(observations.points)) < MIN_TRIALS and not len(
        observations.failed_points
    )


def find_nearest_point(grid: ParameterGrid, point: GridPoints, points: GridPoints) -> GridPoints:
    """Return the row of ``points`` that differs from ``point`` in the fewest parameters and, among such
    rows, by the smallest changes.
    """
    active_point = grid.reset_inactive(point[None, :])
    change_counts = count_changes(grid, points, active_point)[:, 0]
    level_shares = np.abs(points - active_point) / grid.level_counts
    return np.asarray(points[int((change_counts + level_shares.mean(axis=1)).argmin())])
