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

from autotune.optimize.gp.grid import Axis, Grid, Points
from autotune.optimize.gp.surrogate import Observations

Array = npt.NDArray[np.float64]

# Lengths of a move, as parts of the parameter's range: on a logarithmic range from 2 to 512 children
# the first nearly doubles their number.
STEPS = (0.1, 0.25)
FACTOR = 3.0  # by which a long step moves what has a logarithmic range
LEAST = 0.05  # of a range: shorter moves teach nothing
BETTER = 0.03  # log peak that a move has to gain, or else it has failed
LEAP = 0.1  # log peak: a gain like this is worth another long step
MOST_FAILED = 2  # long steps from one leader that may fail, before the model is asked
FEW = 2  # changes at once, of which each is taken to have failed
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
    readable = []
    for move in filter(None, map(_MOVE.fullmatch, moves)):
        place = index.get(move["name"])
        if place is None:
            continue
        axis = grid.axes[place]
        if axis.ordered and move["direction"]:
            readable.append(Move(place, 1 if move["direction"] == "+" else -1))
        elif not axis.ordered and move["choice"]:
            written = [str(value) for value in axis.values]
            readable += [Move(place, level=i) for i, v in enumerate(written) if v == move["choice"]]
    return readable


@dataclass(frozen=True)
class Failure:
    """A point that was ``tried`` and was no better than ``start``, or could not be used. ``peak`` is the
    log peak of the start."""

    start: Points
    tried: Points
    peak: float


@dataclass(frozen=True)
class History:
    """What the configurations so far say of moves from one of them, ``start`` with its log ``peak``.

    ``before`` is the one that it was made from, if it is clearly better than that; ``unusable`` is how
    many that were made from it could not be used."""

    start: Points
    peak: float
    failed: tuple[Failure, ...]
    before: Points | None
    unusable: int = 0

    def relevant(self, axis: int) -> Iterator[Failure]:
        """The failures of changes of this axis that still say something: not those from a start that
        was clearly worse and differed in something else, for what limited it may be gone."""
        for each in self.failed:
            if each.tried[axis] != each.start[axis]:
                differs = np.delete(each.start != self.start, axis).any()
                if self.peak < each.peak + LEAP or not differs:
                    yield each

    def refused(self, move: Move) -> bool:
        """Whether a choice was no better by itself; what else was changed may have been the reason."""
        return any(
            each.tried[move.axis] == move.level and int((each.tried != each.start).sum()) <= FEW
            for each in self.relevant(move.axis)
        )

    def levels(self, move: Move, step: int) -> int:
        """How many levels a move of ``step`` is to go: twice as far as the same move that led here, half
        as far as a failure ahead, and nowhere if there are two."""
        here = int(self.start[move.axis])
        if self.before is not None:
            came = (here - int(self.before[move.axis])) * move.direction
            step = max(step, 2 * came)
        ahead = [
            distance for each in self.relevant(move.axis)
            if (distance := (int(each.tried[move.axis]) - here) * move.direction) > 0
        ]  # fmt: skip
        return 0 if len(ahead) > 1 else min([step, *(distance // 2 for distance in ahead)])


def history(observations: Observations, row: int) -> History:
    """What is known of moves from the configuration of this row."""
    points, peaks = observations.points, observations.log_peaks
    failed, unusable = [], 0
    for place in np.flatnonzero(observations.suggested):
        origin = _origin(points[:place], peaks[:place], points[place])
        if origin is not None and peaks[place] < peaks[origin] + BETTER:
            failed.append(Failure(points[origin], points[place], float(peaks[origin])))
    for point in observations.failed:
        origin = _origin(points, peaks, point)
        if origin is not None:
            failed.append(Failure(points[origin], point, float(peaks[origin])))
            unusable += origin == row
    own = observations.suggested[row] if observations.suggested else False
    origin = _origin(points[:row], peaks[:row], points[row]) if own else None
    better = origin is not None and peaks[row] >= peaks[origin] + BETTER
    before = points[origin] if better else None
    return History(points[row], float(peaks[row]), tuple(failed), before, unusable)


def _origin(points: Points, log_peaks: Array, point: Points) -> int | None:
    """Which point this one was probably made from: the best of those that are most like it."""
    if not len(points):
        return None
    changes = (points != point).sum(axis=1)
    least = int(changes.min())
    if not 0 < least <= ALIKE:
        return None
    alike = np.flatnonzero(changes == least)
    return int(alike[log_peaks[alike].argmax()])


def moved(grid: Grid, past: History, moves: Sequence[Move], length: float | None) -> Points:
    """The start of ``past`` with these moves made. ``length`` is a part of a range; without it, it is a
    factor of ``FACTOR``, or a quarter of a range that is not logarithmic. No move leaves the range, nor
    the part of it that no guide warns of."""
    point = past.start.copy()
    for move in moves:
        axis, here = grid.axes[move.axis], int(past.start[move.axis])
        if not axis.ordered:
            point[move.axis] = here if past.refused(move) else move.level
            continue
        low, high = axis.safe
        room = max(high - here, 0) if move.direction > 0 else max(here - low, 0)
        step = min(room, past.levels(move, _levels(axis, length)))
        if step >= min(room, LEAST * (len(axis.values) - 1)):
            point[move.axis] = here + move.direction * step
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


def guided_candidates(
    grid: Grid,
    past: History,
    moves: Sequence[str],
    lengths: Sequence[float | None] = (*STEPS, None),
) -> Points:
    """The start of ``past`` with the recommended moves, all together and each alone, by each length."""
    readable, start = read_moves(grid, moves), past.start
    candidates = [np.empty((0, len(grid.axes)), np.intp)]
    for length in lengths:
        together = moved(grid, past, readable, length)
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


def long_step(
    grid: Grid, observations: Observations, project: Callable[..., Points]
) -> Points | None:
    """The leader with the moves that its diagnosis recommends, made far;
    ``None`` if there are none, or if it is the model's turn.

    Where presets are wrong, they are wrong by factors. A model of a few trials and a hundred parameters
    says nothing about those, and the diagnosis names them.
    """
    if not observations.moves:
        return None
    leader = int(observations.log_peaks.argmax())
    earlier = observations.log_peaks[:leader]
    past = history(observations, leader)
    suggested = sum(observations.suggested[: leader + 1])
    since = sum(observations.suggested[leader + 1 :]) + past.unusable
    small = suggested and past.peak < earlier.max(initial=-inf) + LEAP
    if small or since >= MOST_FAILED:
        return None
    points = guided_candidates(grid, past, observations.moves[leader], lengths=(None,))
    if not len(points):
        return None
    points = grid.canonical(project(points, past.start))
    tried = {point.tobytes() for point in grid.canonical(observations.tried)}
    return next((point for point in points if point.tobytes() not in tried), None)
