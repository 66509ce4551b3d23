"""Moves that a diagnosis recommends: how far they go, and what became of those that were made.

A diagnosis names which of a hundred parameters to move, and the direction, which says more than the
number that was measured. How far, it does not say: a move goes far while nothing speaks against it, and
half as far as the nearest place in its direction that was tried and was no better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.grid import Axis, Grid, Points

Array = npt.NDArray[np.float64]

# Lengths of a move, as parts of the parameter's range: on a logarithmic range from 2 to 512 children
# the first nearly doubles their number.
STEPS = (0.1, 0.25)
FACTOR = 3.0  # by which a step of the ladder moves what has a logarithmic range
LEAST = 0.02  # of a range: shorter moves teach nothing
BETTER = 0.03  # log peak that a move has to gain, or else it has failed
ALIKE = 6  # a configuration that differs in more parameters than this shows nothing of each
_MOVE = re.compile(r"(?P<name>[^=+]+?)(?:(?P<direction>[+-])|=(?P<choice>.*))")


@dataclass(frozen=True)
class Move:
    """A change of one axis: a ``direction`` (1 or -1) for numbers, a ``level`` for choices."""

    axis: int
    direction: int = 0
    level: int = -1


def read_moves(grid: Grid, moves: Sequence[str]) -> list[Move]:
    """The moves written as `name+`, `name-` or `name=choice`. Parameters that are not on the grid, and
    choices that are not on offer, are left out."""
    index = {axis.dimension.name: i for i, axis in enumerate(grid.axes)}
    known = []
    for move in filter(None, map(_MOVE.fullmatch, moves)):
        place = index.get(move["name"])
        if place is None:
            continue
        axis = grid.axes[place]
        if axis.ordered and move["direction"]:
            known.append(Move(place, 1 if move["direction"] == "+" else -1))
        elif not axis.ordered and move["choice"] in axis.values:
            known.append(Move(place, level=axis.values.index(move["choice"])))
    return known


@dataclass(frozen=True)
class Failure:
    """A point that was ``tried`` and was no better than ``start``, or could not be used."""

    start: Points
    tried: Points


def failures(points: Points, log_peaks: Array, unusable: Points) -> tuple[Failure, ...]:
    """The changes that did not help: of each point from the earlier one that is most like it."""
    failed = []
    for row in range(1, len(points)):
        origin = _origin(points[:row], log_peaks[:row], points[row])
        if origin is not None and log_peaks[row] < log_peaks[origin] + BETTER:
            failed.append(Failure(points[origin], points[row]))
    for point in unusable:
        origin = _origin(points, log_peaks, point)
        if origin is not None:
            failed.append(Failure(points[origin], point))
    return tuple(failed)


def _origin(points: Points, log_peaks: Array, point: Points) -> int | None:
    """Which point this one was probably made from: the best of those that are most like it."""
    changes = (points != point).sum(axis=1)
    least = int(changes.min()) if len(points) else 0
    if not 0 < least <= ALIKE:
        return None
    alike = np.flatnonzero(changes == least)
    return int(alike[log_peaks[alike].argmax()])


def moved(
    grid: Grid,
    start: Points,
    moves: Sequence[Move],
    length: float | None,
    failed: Sequence[Failure],
) -> Points:
    """``start`` with these moves made. ``length`` is a part of a range; without it, it is a factor of
    ``FACTOR``, or a quarter of a range that is not logarithmic. No move leaves the range, nor the part
    of it that no guide warns of; one that failed goes half as far, and a choice that failed is not
    made again."""
    point = start.copy()
    for move in moves:
        axis = grid.axes[move.axis]
        if not axis.ordered:
            if not _was_chosen(move, failed):
                point[move.axis] = move.level
            continue
        step = _levels(axis, length)
        low, high = axis.safe
        edge = max(high, start[move.axis]) if move.direction > 0 else min(low, start[move.axis])
        room = abs(int(edge) - int(start[move.axis]))
        nearest = _nearest_failure(move, start, failed)
        step = min(step, room, step if nearest is None else nearest // 2)
        if step >= max(1, LEAST * (len(axis.values) - 1)) or (step and nearest is None):
            point[move.axis] += move.direction * step
    return point


def _levels(axis: Axis, length: float | None) -> int:
    """The levels that a move of this length crosses."""
    levels = len(axis.values) - 1
    if length is None:
        length = STEPS[-1]
        low, high = (max(float(value), 1.0) for value in (axis.values[0], axis.values[-1]))
        if axis.dimension.log and high > low:
            length = log(FACTOR) / log(high / low)
    return max(1, round(length * levels))


def _nearest_failure(move: Move, start: Points, failed: Sequence[Failure]) -> int | None:
    """How many levels away the nearest failure of this move is."""
    here = int(start[move.axis])
    away = [
        (int(each.tried[move.axis]) - here) * move.direction
        for each in failed
        if (int(each.tried[move.axis]) - int(each.start[move.axis])) * move.direction > 0
    ]
    return min((distance for distance in away if distance > 0), default=None)


def _was_chosen(move: Move, failed: Sequence[Failure]) -> bool:
    return any(each.tried[move.axis] == move.level != each.start[move.axis] for each in failed)


def guided_candidates(
    grid: Grid,
    incumbents: Points,
    moves: Sequence[Sequence[str]],
    failed: Sequence[Failure] = (),
    lengths: Sequence[float | None] = (*STEPS, None),
) -> Points:
    """Each of ``incumbents`` with its recommended moves, all together and each alone, by each length."""
    candidates = [np.empty((0, len(grid.axes)), np.intp)]
    for incumbent, its_moves in zip(incumbents, moves, strict=True):
        for length in lengths:
            candidates += _together_and_alone(grid, incumbent, its_moves, length, failed)
    return np.vstack(candidates)


def _together_and_alone(
    grid: Grid, start: Points, moves: Sequence[str], length: float | None, failed: Sequence[Failure]
) -> Iterator[Points]:
    together = moved(grid, start, read_moves(grid, moves), length, failed)
    changed = np.flatnonzero(together != start)
    if len(changed):
        alone = np.tile(start, (len(changed), 1))
        alone[np.arange(len(changed)), changed] = together[changed]
        yield together[None, :]
        yield alone
