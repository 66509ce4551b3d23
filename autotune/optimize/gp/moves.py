"""Moves that a diagnosis recommends: how far they go, and what became of those that were made.

A diagnosis names which of a hundred parameters to move, and the direction, which says more than the
number that was measured. How far, it does not say: a move goes far while nothing speaks against it, and
half as far as the nearest place in its direction that was tried and was no better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.grid import GridAxis, GridPoints, ParameterGrid
from autotune.optimize.gp.surrogate import TrialObservations

Array = npt.NDArray[np.float64]

# Lengths of a move, as parts of the parameter's range: on a logarithmic range from 2 to 512 children
# the first nearly doubles their number.
STEP_FRACTIONS = (0.1, 0.25)
LONG_STEP_FACTOR = 3.0  # by which a long step moves what has a logarithmic range
MIN_STEP = 0.05  # of a range: shorter moves teach nothing
MIN_GAIN = 0.03  # log peak that a move has to gain, or else it has failed
MIN_LONG_STEP_GAIN = 0.1  # log peak: a gain like this is worth another long step
MAX_FAILED_STEPS = 2  # long steps from one leader that may fail, before the model is asked
MAX_ATTRIBUTED_CHANGES = 2  # changes at once, of which each is taken to have failed
MAX_DIFFERENCES = (
    6  # a configuration that differs in more parameters than this shows nothing of each
)
_MOVE_PATTERN = re.compile(r"(?P<name>[^=+]+?)(?:(?P<direction>[+-])|=(?P<choice>.*))")


@dataclass(frozen=True)
class Move:
    """A change of one axis: a ``direction`` (1 or -1) for numbers, a ``level`` for choices."""

    axis: int
    direction: int = 0
    level: int = -1


def read_moves(grid: ParameterGrid, moves: Sequence[str]) -> list[Move]:
    """The moves written as `name+`, `name-` or `name=choice`. Parameters that are not on the grid, and
    choices that are not on offer, are left out."""
    index = {axis.dimension.name: i for i, axis in enumerate(grid.axes)}
    readable = []
    for move in filter(None, map(_MOVE_PATTERN.fullmatch, moves)):
        location = index.get(move["name"])
        if location is None:
            continue
        axis = grid.axes[location]
        if axis.is_ordered and move["direction"]:
            readable.append(Move(location, 1 if move["direction"] == "+" else -1))
        elif not axis.is_ordered and move["choice"]:
            written = [str(value) for value in axis.values]
            readable += [
                Move(location, level=i) for i, v in enumerate(written) if v == move["choice"]
            ]
    return readable


@dataclass(frozen=True)
class FailedMove:
    """A point that was ``point`` and was no better than ``start``, or could not be used. ``log_peak``
    is the log peak of the start."""

    start: GridPoints
    point: GridPoints
    log_peak: float


@dataclass(frozen=True)
class MoveHistory:
    """What the configurations so far say of moves from one of them, ``start`` with its log ``log_peak``.

    ``previous`` is the one that it was made from, if it is clearly better than that;
    ``unusable_count`` is how many that were made from it could not be used."""

    start: GridPoints
    log_peak: float
    failures: tuple[FailedMove, ...]
    previous: GridPoints | None
    unusable_count: int = 0

    def list_failures(self, axis: int) -> Iterator[FailedMove]:
        """The failures of changes of this axis that still say something: not those from a start that
        was clearly worse and differed in something else, for what limited it may be gone."""
        for each in self.failures:
            if each.point[axis] != each.start[axis]:
                differs = np.delete(each.start != self.start, axis).any()
                if self.log_peak < each.log_peak + MIN_LONG_STEP_GAIN or not differs:
                    yield each

    def is_exhausted(self, move: Move) -> bool:
        """Whether a choice was no better by itself; what else was changed may have been the reason."""
        return any(
            each.point[move.axis] == move.level
            and int((each.point != each.start).sum()) <= MAX_ATTRIBUTED_CHANGES
            for each in self.list_failures(move.axis)
        )

    def limit_levels(self, move: Move, step: int) -> int:
        """How many levels a move of ``step`` is to go: twice as far as the same move that led here, half
        as far as a failure ahead, and nowhere if there are two."""
        here = int(self.start[move.axis])
        if self.previous is not None:
            came = (here - int(self.previous[move.axis])) * move.direction
            step = max(step, 2 * came)
        ahead = [
            distance for each in self.list_failures(move.axis)
            if (distance := (int(each.point[move.axis]) - here) * move.direction) > 0
        ]  # fmt: skip
        return 0 if len(ahead) > 1 else min([step, *(distance // 2 for distance in ahead)])


def read_history(observations: TrialObservations, row: int) -> MoveHistory:
    """What is known of moves from the configuration of this row."""
    points, peaks = observations.points, observations.log_peaks
    failed, unusable = [], 0
    for location in np.flatnonzero(observations.suggested):
        origin = _find_origin(points[:location], peaks[:location], points[location])
        if origin is not None and peaks[location] < peaks[origin] + MIN_GAIN:
            failed.append(FailedMove(points[origin], points[location], float(peaks[origin])))
    for point in observations.failed_points:
        origin = _find_origin(points, peaks, point)
        if origin is not None:
            failed.append(FailedMove(points[origin], point, float(peaks[origin])))
            unusable += origin == row
    own = observations.suggested[row] if observations.suggested else False
    origin = _find_origin(points[:row], peaks[:row], points[row]) if own else None
    better = origin is not None and peaks[row] >= peaks[origin] + MIN_GAIN
    before = points[origin] if better else None
    return MoveHistory(points[row], float(peaks[row]), tuple(failed), before, unusable)


def _find_origin(points: GridPoints, log_peaks: Array, point: GridPoints) -> int | None:
    """Which point this one was probably made from: the best of those that are most like it."""
    if not len(points):
        return None
    changes = (points != point).sum(axis=1)
    minimum = int(changes.min())
    if not 0 < minimum <= MAX_DIFFERENCES:
        return None
    alike = np.flatnonzero(changes == minimum)
    return int(alike[log_peaks[alike].argmax()])


def apply_moves(
    grid: ParameterGrid, past: MoveHistory, moves: Sequence[Move], length: float | None
) -> GridPoints:
    """The start of ``past`` with these moves made. ``length`` is a part of a range; without it, it is a
    factor of ``LONG_STEP_FACTOR``, or a quarter of a range that is not logarithmic. No move leaves the
    range, nor the part of it that no guide warns of."""
    point = past.start.copy()
    for move in moves:
        axis, here = grid.axes[move.axis], int(past.start[move.axis])
        if not axis.is_ordered:
            point[move.axis] = here if past.is_exhausted(move) else move.level
            continue
        low, high = axis.safe_levels
        room = max(high - here, 0) if move.direction > 0 else max(here - low, 0)
        step = min(room, past.limit_levels(move, _count_levels(axis, length)))
        if step >= min(room, MIN_STEP * (len(axis.values) - 1)):
            point[move.axis] = here + move.direction * step
    return point


def _count_levels(axis: GridAxis, length: float | None) -> int:
    """The levels that a move of this length crosses."""
    levels = len(axis.values) - 1
    if length is None:
        length = STEP_FRACTIONS[-1]
        low, high = (max(float(value), 1.0) for value in (axis.values[0], axis.values[-1]))
        if axis.dimension.is_logarithmic and high > low:
            length = log(LONG_STEP_FACTOR) / log(high / low)
    return max(1, round(length * levels))


def list_guided_candidates(
    grid: ParameterGrid,
    past: MoveHistory,
    moves: Sequence[str],
    lengths: Sequence[float | None] = (*STEP_FRACTIONS, None),
) -> GridPoints:
    """The start of ``past`` with the recommended moves, all together and each alone, by each length."""
    readable, start = read_moves(grid, moves), past.start
    candidates = [np.empty((0, len(grid.axes)), np.intp)]
    for length in lengths:
        together = apply_moves(grid, past, readable, length)
        changed = [
            axis
            for axis in dict.fromkeys(m.axis for m in readable)
            if together[axis] != start[axis]
        ]
        if changed:
            alone = np.tile(start, (len(changed), 1))
            alone[np.arange(len(changed)), changed] = together[changed]
            candidates += [together[None, :], alone]
    return np.vstack(candidates)


def suggest_long_step(
    grid: ParameterGrid, observations: TrialObservations, project: Callable[..., GridPoints]
) -> GridPoints | None:
    """The leader with the moves that its diagnosis recommends, made far;
    ``None`` if there are none, or if it is the model's turn.

    Where presets are wrong, they are wrong by factors. A model of a few trials and a hundred parameters
    says nothing about those, and the diagnosis names them.
    """
    if not observations.recommended_changes:
        return None
    leader = int(observations.log_peaks.argmax())
    earlier = observations.log_peaks[:leader]
    past = read_history(observations, leader)
    suggested = sum(observations.suggested[: leader + 1])
    since = sum(observations.suggested[leader + 1 :]) + past.unusable_count
    small = suggested and past.log_peak < earlier.max(initial=-inf) + MIN_LONG_STEP_GAIN
    if small or since >= MAX_FAILED_STEPS:
        return None
    points = list_guided_candidates(
        grid, past, observations.recommended_changes[leader], lengths=(None,)
    )
    if not len(points):
        return None
    points = grid.reset_inactive(project(points, past.start))
    tried = {point.tobytes() for point in grid.reset_inactive(observations.tried_points)}
    return next((point for point in points if point.tobytes() not in tried), None)
