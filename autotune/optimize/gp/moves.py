"""Moves that a diagnosis recommends: their length, and the outcome of earlier moves.

A diagnosis shows which of a hundred parameters to change, and in which direction, but not how far. A
measured peak shows neither the parameter nor the direction. A move takes long steps until a value in
its direction fails, and then goes half as far. A harmful value limits a parameter for the whole study,
and `bisect_harm` halves the distance to that value.

A long step brings no further gain once another part of the stack becomes the limit. The rest of the
step may cost memory or CPU time. Once long steps no longer bring gains, `reduce_surplus` reverts half
of the surplus in each parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, sqrt
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.grid import GridAxis, GridPoints, ParameterGrid, find_distinct_indices
from autotune.optimize.gp.surrogate import TrialObservations

Array = npt.NDArray[np.float64]

# Lengths of a move as fractions of the parameter's range. On a logarithmic range from 2 to 512, a move
# of the first length nearly doubles a value.
STEP_FRACTIONS = (0.1, 0.25)
LONG_STEP_FACTOR = 3.0  # a long step multiplies a value on a logarithmic range by this factor
MIN_STEP = 0.05  # fraction of a range; the effect of a shorter move is not measurable
MIN_GAIN = 0.03  # smallest gain in log peak; a move that gains less is a failure
MIN_LONG_STEP_GAIN = 0.1  # smallest gain in log peak after which another long step is made
# A value is too high if it is at least this many times the lowest value that can sustain the peak.
OVERSHOOT_FACTOR = LONG_STEP_FACTOR
# after this many failed long steps from a leader, the model chooses the next configuration
MAX_FAILED_STEPS = 2
MAX_ATTRIBUTED_CHANGES = 2  # a failure after at most this many changes counts against each change
MAX_DIFFERENCES = 6  # maximum number of changed parameters whose individual effects are inferred
_MOVE_PATTERN = re.compile(r"(?P<name>[^=+]+?)(?:(?P<direction>[+-])|=(?P<choice>.*))")


@dataclass(frozen=True)
class Move:
    """A change of one parameter: a ``direction`` (1 or -1) for numbers, a ``level`` for choices."""

    axis: int
    direction: int = 0
    level: int = -1


def parse_moves(grid: ParameterGrid, moves: Sequence[str]) -> list[Move]:
    """Parse moves that are written as `name+`, `name-` or `name=choice`.

    Moves of parameters that are not on the grid, or to unavailable choices, are left out.
    """
    index_by_name = {axis.dimension.name: i for i, axis in enumerate(grid.axes)}
    readable_moves = []
    for move in filter(None, map(_MOVE_PATTERN.fullmatch, moves)):
        axis_index = index_by_name.get(move["name"])
        if axis_index is None:
            continue
        axis = grid.axes[axis_index]
        if axis.is_ordered and move["direction"]:
            readable_moves.append(Move(axis_index, 1 if move["direction"] == "+" else -1))
        elif not axis.is_ordered and move["choice"]:
            value_texts = [str(value) for value in axis.values]
            readable_moves += [
                Move(axis_index, level=i) for i, v in enumerate(value_texts) if v == move["choice"]
            ]
    return readable_moves


@dataclass(frozen=True)
class FailedMove:
    """A configuration ``point`` that was no better than its origin ``start``, or could not be used.

    ``start_log_peak`` is the log peak of the origin. ``loss`` is that log peak minus the log peak of
    ``point``, and ``loss_sd`` is the sd of the loss.
    """

    start: GridPoints
    point: GridPoints
    start_log_peak: float
    loss: float
    loss_sd: float = 0.0

    @property
    def is_harmful(self) -> bool:
        """True if the move itself probably reduced the capacity, and did not merely reach another
        limit.
        """
        is_small_change = int((self.point != self.start).sum()) <= MAX_ATTRIBUTED_CHANGES
        return is_small_change and self.loss - self.loss_sd >= MIN_LONG_STEP_GAIN


@dataclass(frozen=True)
class Reversal:
    """A measured ``level`` from which a diagnosis recommends a move in ``direction``."""

    axis: int
    level: int
    direction: int


@dataclass(frozen=True)
class MoveHistory:
    """The results of earlier moves, for the next move from the configuration ``start``.

    ``log_peak`` is the log peak of ``start``. ``previous`` is the configuration that ``start`` was made
    from, if ``start`` is clearly better. ``gain`` is the log peak of ``start`` minus the log peak of
    ``previous``. ``previous_moves`` were recommended for ``previous``. ``unusable_count`` is the number
    of unusable configurations made from ``start``. ``reversals`` are the moves recommended for worse
    configurations.
    """

    start: GridPoints
    log_peak: float
    failures: tuple[FailedMove, ...]
    previous: GridPoints | None
    unusable_count: int = 0
    gain: float = 0.0
    previous_moves: tuple[str, ...] = ()
    reversals: tuple[Reversal, ...] = ()

    def list_failures(self, axis: int) -> Iterator[FailedMove]:
        """Yield the failed moves along this axis that are still valid evidence.

        If a move brought no gain, the stack had reached another limit. This limit may no longer apply if
        the origin of the move was clearly worse and differed in another parameter. A harmful move is
        always valid evidence.
        """
        for failure in self.failures:
            if failure.point[axis] != failure.start[axis]:
                differs_elsewhere = np.delete(failure.start != self.start, axis).any()
                is_close = self.log_peak < failure.start_log_peak + MIN_LONG_STEP_GAIN
                if is_close or not differs_elsewhere or failure.is_harmful:
                    yield failure

    def is_exhausted(self, move: Move) -> bool:
        """True if this choice failed before, as the only change or together with few other changes."""
        return any(
            failure.point[move.axis] == move.level
            and int((failure.point != failure.start).sum()) <= MAX_ATTRIBUTED_CHANGES
            for failure in self.list_failures(move.axis)
        )

    def is_refuted(self, move: Move, parameter_name: str) -> bool:
        """True if the move would revert an earlier change that brought a gain without being
        recommended.
        """
        if self.gain < MIN_LONG_STEP_GAIN:
            return False
        opposite_move = f"{parameter_name}{'-' if move.direction > 0 else '+'}"
        return self._count_levels_moved(move) < 0 and opposite_move not in self.previous_moves

    def limit_step_levels(self, move: Move, intended_levels: int) -> int:
        """Return the number of levels by which to change the parameter, given the intended number.

        A repeat of the move that led to the current configuration goes twice as far. If a value in the
        move's direction failed, the move goes half the distance to that value. If two such values
        failed without harm, the move is not made.
        """
        distance_moved = self._count_levels_moved(move)
        intended_levels = (
            min(intended_levels, -distance_moved // 2)
            if distance_moved < 0
            else max(intended_levels, 2 * distance_moved)
        )
        failures_ahead = self._list_failures_ahead(move)
        if sum(not is_harmful for _, is_harmful in failures_ahead) > 1:
            return 0
        return min([intended_levels, *(distance // 2 for distance, _ in failures_ahead)])

    def _list_failures_ahead(self, move: Move) -> list[tuple[int, bool]]:
        """Return the distance in levels to each failed value in the move's direction, and true if the
        value was harmful. A worse value from which a diagnosis recommends moving back counts as harmful.
        """
        reversed_levels = [
            (reversal.level, True)
            for reversal in self.reversals
            if (reversal.axis, reversal.direction) == (move.axis, -move.direction)
        ]
        return self._select_ahead(move, [*self._list_failed_levels(move), *reversed_levels])

    def _list_failed_levels(self, move: Move) -> list[tuple[int, bool]]:
        return [
            (int(failure.point[move.axis]), failure.is_harmful)
            for failure in self.list_failures(move.axis)
        ]

    def _select_ahead(
        self, move: Move, levels: Sequence[tuple[int, bool]]
    ) -> list[tuple[int, bool]]:
        current_level = int(self.start[move.axis])
        distances = [((level - current_level) * move.direction, harm) for level, harm in levels]
        return [(distance, is_harmful) for distance, is_harmful in distances if distance > 0]

    def has_failed(self, move: Move) -> bool:
        """True if the parameter was changed in this direction before, without a gain."""
        return bool(self._select_ahead(move, self._list_failed_levels(move)))

    def find_harmful_distance(self, move: Move) -> int | None:
        """Return the distance in levels to the nearest harmful value in the move's direction.

        Return ``None`` if no value was harmful, or if several values were harmful and the move has
        never brought a gain.
        """
        harmful_distances = {
            distance for distance, is_harmful in self._list_failures_ahead(move) if is_harmful
        }
        if len(harmful_distances) >= MAX_FAILED_STEPS and not self._has_helped(move):
            return None
        return min(harmful_distances, default=None)

    def _has_helped(self, move: Move) -> bool:
        return self._count_levels_moved(move) > 0

    def _count_levels_moved(self, move: Move) -> int:
        """Return by how many levels the last gain changed the parameter in the direction of this move;
        negative for the opposite direction.
        """
        if self.previous is None:
            return 0
        return (int(self.start[move.axis]) - int(self.previous[move.axis])) * move.direction


def read_history(grid: ParameterGrid, observations: TrialObservations, row: int) -> MoveHistory:
    """Return the history for moves from the configuration in row ``row``."""
    points, peaks = observations.points, observations.log_peaks
    failures, unusable_count = [], 0
    for suggested_row in np.flatnonzero(observations.suggested):
        origin = _find_origin_row(
            points[:suggested_row], peaks[:suggested_row], points[suggested_row]
        )
        if origin is not None and peaks[suggested_row] < peaks[origin] + MIN_GAIN:
            failures.append(_describe_loss(observations, origin, int(suggested_row)))
    for failed_row, point in enumerate(observations.failed_points):
        earlier_rows = _list_earlier_rows(observations, failed_row)
        origin = _find_origin_row(points[earlier_rows], peaks[earlier_rows], point)
        if origin is not None:
            origin = int(earlier_rows[origin])
            failures.append(FailedMove(points[origin], point, float(peaks[origin]), inf))
            unusable_count += origin == row
    was_suggested = observations.suggested[row] if observations.suggested else False
    origin = _find_origin_row(points[:row], peaks[:row], points[row]) if was_suggested else None
    gain = 0.0 if origin is None else float(peaks[row] - peaks[origin])
    history = MoveHistory(
        points[row],
        float(peaks[row]),
        tuple(failures),
        None,
        unusable_count,
        reversals=_list_reversals(grid, observations, float(peaks[row])),
    )
    if origin is None or gain < MIN_GAIN:
        return history
    recommended_moves = (
        observations.recommended_changes[origin] if observations.recommended_changes else ()
    )
    return replace(history, previous=points[origin], gain=gain, previous_moves=recommended_moves)


def _list_reversals(
    grid: ParameterGrid, observations: TrialObservations, log_peak: float
) -> tuple[Reversal, ...]:
    """Return the moves of numbers that were recommended for configurations worse than ``log_peak``."""
    worse_rows = np.flatnonzero(observations.log_peaks < log_peak - MIN_GAIN)
    return tuple(
        Reversal(move.axis, int(observations.points[row][move.axis]), move.direction)
        for row in (worse_rows if observations.recommended_changes else ())
        for move in parse_moves(grid, observations.recommended_changes[row])
        if move.direction
    )


def _describe_loss(observations: TrialObservations, origin: int, row: int) -> FailedMove:
    """Return the failed move from one measured row to another."""
    points, peaks, sds = observations.points, observations.log_peaks, observations.sds
    # The true loss of a pruned configuration is at least as large as its measured loss.
    point_sd = 0.0 if observations.pruned[row] else float(sds[row])
    return FailedMove(
        points[origin],
        points[row],
        float(peaks[origin]),
        float(peaks[origin] - peaks[row]),
        hypot(float(sds[origin]), point_sd),
    )


def _list_earlier_rows(observations: TrialObservations, failed_row: int) -> npt.NDArray[np.intp]:
    """Return the rows that were measured before a failed point."""
    if not observations.failed_numbers:
        return np.arange(len(observations.points))
    failed_number = observations.failed_numbers[failed_row]
    return np.flatnonzero(np.array(observations.trial_numbers) < failed_number)


def _find_origin_row(points: GridPoints, log_peaks: Array, point: GridPoints) -> int | None:
    """Return the row of the most similar point, or of the best among equally similar points; ``None``
    if all points differ too much.
    """
    if not len(points):
        return None
    change_counts = (points != point).sum(axis=1)
    min_changes = int(change_counts.min())
    if not 0 < min_changes <= MAX_DIFFERENCES:
        return None
    nearest_rows = np.flatnonzero(change_counts == min_changes)
    return int(nearest_rows[log_peaks[nearest_rows].argmax()])


def apply_moves(
    grid: ParameterGrid, history: MoveHistory, moves: Sequence[Move], length: float | None
) -> GridPoints:
    """Return the start configuration of ``history`` after these moves.

    ``length`` is a fraction of a range. Without ``length``, a move multiplies the value by
    ``LONG_STEP_FACTOR``, or crosses a quarter of a range that is not logarithmic. No move leaves the
    range. A move stops at the recommended bound. A move that starts at that bound may pass
    the bound, because the diagnosis recommends the move for this stack. A special value, such as 0
    for no limit, is not moved, because a limit instead would be the opposite of a higher limit.
    """
    point = history.start.copy()
    for move in moves:
        axis, level = grid.axes[move.axis], int(history.start[move.axis])
        if not axis.is_ordered:
            point[move.axis] = level if history.is_exhausted(move) else move.level
            continue
        if axis.is_special(level) or history.is_refuted(move, axis.dimension.name):
            continue
        levels_left = _count_levels_left(axis, level, move.direction)
        step = min(levels_left, history.limit_step_levels(move, _count_levels(axis, length)))
        if is_worthwhile_step(axis, level, move, step, levels_left):
            point[move.axis] = level + move.direction * step
    return point


def _count_levels_left(axis: GridAxis, level: int, direction: int) -> int:
    """Return the number of levels from ``level`` to the next bound in ``direction``.

    The next bound is the recommended bound or, beyond that bound, the end of the range.
    """
    low_level, high_level = axis.safe_levels
    if direction > 0:
        return (high_level if level < high_level else len(axis.values) - 1) - level
    return level - (low_level if level > low_level else 0)


def is_worthwhile_step(axis: GridAxis, level: int, move: Move, step: int, levels_left: int) -> bool:
    """True if a step is long enough to be informative, or to bring a measurable gain.

    A capacity grows no faster than the number that limits it, so a short step brings at most a small
    gain.
    """
    if step >= min(levels_left, MIN_STEP * (len(axis.values) - 1)):
        return True
    return step > 0 and _compute_log_ratio(axis, level, level + move.direction * step) >= MIN_GAIN


def _compute_log_ratio(axis: GridAxis, level: int, other_level: int) -> float:
    """Return the absolute log ratio of two levels' values; 0 on a range that is not logarithmic."""
    if not axis.dimension.is_logarithmic:
        return 0.0
    return abs(log(max(float(axis.values[other_level]), 1.0) / max(float(axis.values[level]), 1.0)))


def _count_levels(axis: GridAxis, length: float | None) -> int:
    last_level = len(axis.values) - 1
    if length is None:
        length = STEP_FRACTIONS[-1]
        low, high_value = (max(float(value), 1.0) for value in (axis.values[0], axis.values[-1]))
        if axis.dimension.is_logarithmic and high_value > low:
            length = log(LONG_STEP_FACTOR) / log(high_value / low)
    return max(1, round(length * last_level))


def list_guided_candidates(
    grid: ParameterGrid,
    history: MoveHistory,
    moves: Sequence[str],
    lengths: Sequence[float | None] = (*STEP_FRACTIONS, None),
) -> GridPoints:
    """Return the points that the recommended moves reach from the start of ``history``, for each
    length.

    For each length, one point combines all moves, and further points make a single move each.
    Duplicates are removed, because repairing and predicting a point takes time.
    """
    parsed_moves, start_point = parse_moves(grid, moves), history.start
    candidates = [np.empty((0, len(grid.axes)), np.intp)]
    for length in lengths:
        joint_point = apply_moves(grid, history, parsed_moves, length)
        changed_axes = [
            axis
            for axis in dict.fromkeys(m.axis for m in parsed_moves)
            if joint_point[axis] != start_point[axis]
        ]
        if changed_axes:
            single_changes = np.tile(start_point, (len(changed_axes), 1))
            single_changes[np.arange(len(changed_axes)), changed_axes] = joint_point[changed_axes]
            candidates += [joint_point[None, :], single_changes]
    points = np.vstack(candidates)
    return points[find_distinct_indices(points)]


def suggest_long_step(
    grid: ParameterGrid, observations: TrialObservations, project_points: Callable[..., GridPoints]
) -> GridPoints | None:
    """Return the leader after a long step along its recommended moves.

    Return ``None`` if no move is recommended, or if the model should suggest instead. Wrong preset
    values differ from good values by large factors. The diagnosis shows which parameters have wrong
    values. With few trials and a hundred parameters, a model cannot show the wrong values.
    """
    if not observations.recommended_changes:
        return None
    observations = observations.merge_repeats()
    leader = int(observations.log_peaks.argmax())
    history = read_history(grid, observations, leader)
    tried_keys = grid.build_keys(observations.tried_points)
    for points in _list_long_steps(grid, observations, leader, history):
        if len(points):
            projected_points = grid.reset_inactive(project_points(points, history.start))
            untried_points = [
                point for point in projected_points if point.tobytes() not in tried_keys
            ]
            if untried_points:
                return np.asarray(untried_points[0])
    return None


def _list_long_steps(
    grid: ParameterGrid, observations: TrialObservations, leader: int, history: MoveHistory
) -> Iterator[GridPoints]:
    """Yield long steps from the leader, the most promising group first."""
    moves = observations.recommended_changes[leader]
    yield bisect_harm(grid, history, moves)
    failed_steps = sum(observations.suggested[leader + 1 :]) + history.unusable_count
    is_long_step_allowed = failed_steps < MAX_FAILED_STEPS and is_climbing(observations, leader)
    if is_long_step_allowed and not failed_steps:
        yield list_guided_candidates(grid, history, moves, lengths=(None,))
    yield reduce_surplus(grid, observations, history)
    if is_long_step_allowed and failed_steps:
        yield list_guided_candidates(grid, history, moves, lengths=(None,))


def reduce_surplus(
    grid: ParameterGrid, observations: TrialObservations, history: MoveHistory
) -> GridPoints:
    """Return the start configuration with each excessive value reduced by half of its surplus, on a
    logarithmic scale.

    The surplus is the amount by which a value exceeds the lowest value that can sustain the start's
    peak.
    """
    point = history.start.copy()
    for index, axis in enumerate(grid.axes):
        lowest_sufficient_value = _find_sufficient_value(axis, index, observations, history)
        move, level = Move(index, -1), int(history.start[index])
        if lowest_sufficient_value is None or history.has_failed(move):
            continue
        value = float(axis.values[level])
        step = level - axis.find_level(sqrt(lowest_sufficient_value * value))
        is_too_high = value >= OVERSHOOT_FACTOR * lowest_sufficient_value
        if is_too_high and is_worthwhile_step(axis, level, move, step, level):
            point[index] = level - step
    return np.asarray(point[None, :] if (point != history.start).any() else point[None, :][:0])


def _find_sufficient_value(
    axis: GridAxis, index: int, observations: TrialObservations, history: MoveHistory
) -> float | None:
    """Return the lowest value of a parameter that can sustain the peak of the start.

    A capacity grows at most in proportion to the number that limits it. Earlier, the diagnosis may have
    recommended increases from lower values. The result is computed from the highest of these values.
    Return ``None`` if there is no such value.
    """
    if not axis.is_ordered or not axis.dimension.is_logarithmic:
        return None
    move = f"{axis.dimension.name}+"
    losses_with_levels = [
        (-history.log_peak + float(log_peak), int(point[index]))
        for point, log_peak, moves in zip(
            observations.points,
            observations.log_peaks,
            observations.recommended_changes,
            strict=True,
        )
        if moves[:1] == (move,)
        and point[index] < history.start[index]
        and log_peak < history.log_peak
    ]
    if not losses_with_levels:
        return None
    loss, level = max(losses_with_levels, key=itemgetter(1, 0))
    return max(float(axis.values[level]), 1.0) * exp(-loss)


def bisect_harm(grid: ParameterGrid, history: MoveHistory, moves: Sequence[str]) -> GridPoints:
    """Return points half-way from the start to a harmful value, one point for each recommended move.

    Moves that can no longer bring a gain of ``MIN_LONG_STEP_GAIN`` are left out.
    """
    points = [np.empty((0, len(grid.axes)), np.intp)]
    for move in parse_moves(grid, moves):
        axis, level = grid.axes[move.axis], int(history.start[move.axis])
        distance = history.find_harmful_distance(move) if axis.is_ordered else None
        if distance is None:
            continue
        if _compute_log_ratio(axis, level, level + move.direction * distance) >= MIN_LONG_STEP_GAIN:
            points.append(apply_moves(grid, history, [move], None)[None, :])
    stacked_points = np.vstack(points)
    return np.asarray(stacked_points[(stacked_points != history.start).any(axis=1)])


def is_climbing(observations: TrialObservations, leader: int) -> bool:
    """True if the leader is a preset, or brought enough gain for another long step."""
    best_earlier_peak = observations.log_peaks[:leader].max(initial=-inf)
    suggested_count = sum(observations.suggested[: leader + 1])
    return not suggested_count or bool(
        observations.log_peaks[leader] >= best_earlier_peak + MIN_LONG_STEP_GAIN
    )
