"""Propose points to measure: the highest expected improvement among variations of the leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.grid import GridPoints, ParameterGrid, find_distinct_indices
from autotune.optimize.gp.moves import MAX_FAILED_STEPS, list_guided_candidates, read_history
from autotune.optimize.gp.surrogate import (
    MIN_RELEVANT_GAIN,
    Array,
    SurrogateModel,
    TrialObservations,
    compute_log_expected_improvement,
)
from autotune.optimize.gp.variation import (
    SearchRegion,
    clip_to_stride,
    count_changes,
    mutate_points,
    scatter_leaders,
    swap_tiers,
)
from autotune.parameter_name import ParameterName
from autotune.services.base import Action

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
# The number of changes is halved after this many consecutive failures, and doubled after this many
# consecutive successes (TuRBO).
FAILURES_TO_SHRINK, SUCCESSES_TO_GROW = 10, 1
# Bonus for the score of a recommended move, because the model lacks the information from a diagnosis.
RECOMMENDATION_BONUS = log(3.0)
# The improvement is multiplied by the probability that the configuration works, to the power
# FEASIBILITY_POWER. Configurations with a probability below LIKELY_FEASIBLE get a penalty.
FEASIBILITY_POWER, LIKELY_FEASIBLE = 4.0, 0.5
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
    history = read_history(grid, observations, row)
    own_moves = observations.recommended_changes[row]
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
