"""The project's own sampler: expected improvement over a Gaussian process of few relevant parameters.

Candidates are mutations of the leaders, crossovers with them, points at random, and the leaders with
the moves that a diagnosis recommends for them: of a hundred parameters it names those to move, and
the direction, which says more than the number that was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.base import SpaceSampler
from autotune.optimize.gp.grid import Grid, Points
from autotune.optimize.gp.surrogate import (
    Surrogate,
    log_improvement,
    observe,
    preset_measured,
    shifts,
)
from autotune.services.base import Action
from autotune.space.space import Infeasible

# A model needs something to compare: before so many trials a Latin hypercube is measured, unless a
# preset was measured already.
COLD = 8
LEAST = 2
# Nor does it know what it does not know: before so many trials it never ends the search.
SURE = 20
# Suggestions follow recommended moves, while there are any, except on every third.
EXPLORE_EVERY = 3


class GpSampler(SpaceSampler):
    """Stateless: every suggestion follows from the trials in the storage and the seed.

    ``improvement_probability`` belongs to the last suggestion: that any configuration is better by
    ``MATTERS`` than the best one known; ``None`` while it is too early to say.
    """

    improvement_probability: float | None = None

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        grid = self._task.grid
        trials = study.get_trials(deepcopy=False)
        observations = observe(grid, trials, trial.number, shifts(study))
        begun = len(observations) + len(observations.pending)
        cold = begun < (LEAST if preset_measured(trials) else COLD)
        if cold or len(observations.points) < LEAST:
            opening = latin_hypercube(grid, COLD, begun, self._task.seed)
            return dict(grid.decode(self._repaired(opening[None, :])[0]))
        rng = np.random.default_rng((self._task.seed, trial.number))
        surrogate = Surrogate.of(grid, observations)
        guided = begun % EXPLORE_EVERY != 0
        # What was deployed last, as far as the sampler knows.
        deployed = [t.params for t in trials if t.params and t.state.is_finished()]
        current = grid.canonical(grid.encode_all(deployed[-1:]))[0] if deployed else None
        point, runners_up = propose(surrogate, self._repaired, rng, current, guided=guided)
        # Guided candidates are too few to say what else there may be.
        conclusive = begun >= SURE and not guided
        self.improvement_probability = (
            surrogate.improvement_probability(runners_up, rng) if conclusive else None
        )
        return dict(grid.decode(point))

    def _repaired(self, points: Points) -> Points:
        """The configurations that would be measured: each with every rule kept, where that can be."""
        grid, space = self._task.grid, self._task.space
        repaired = []
        for point in points:
            try:
                settings = space.candidate(grid.decode(point)).settings
            except Infeasible:
                continue
            repaired.append(grid.encode(settings))
        return np.array(repaired) if repaired else points


Array = npt.NDArray[np.float64]
Projection = Callable[[Points], Points]

LEADERS = 4
RESTART = 0.02  # what a restart may cost, of the logarithm of the improvement
TRIED = -1e9  # score of what has been measured, or is being
MUTATIONS, CROSSOVERS, RANDOM = 500, 200, 200
# A suggestion far from all leaders in many parameters at once is hardly ever good: each parameter
# beyond ``reach`` costs so much of the logarithm of its improvement.
DISTANCE_PENALTY, LEAST_REACH, NEARBY = 1.0, 3, 0.05
# The improvement counts times the probability that the configuration works, to this power.
CAREFUL, LIKELY = 4.0, 0.5
ROUNDS, PARENTS, OFFSPRING, BATCH = 5, 8, 160, 20
# A recommended move, as part of a parameter's range: on a logarithmic one from 2 to 512 children
# nearly twice as many.
STEP = 0.1
_MOVE = re.compile(r"(?P<name>[^=+]+?)(?:(?P<direction>[+-])|=(?P<choice>.*))")


@dataclass(frozen=True)
class _Acquisition:
    """The score of a point: the logarithm of its expected improvement, less what speaks against it."""

    surrogate: Surrogate
    best: float
    incumbents: Points
    tried: frozenset[bytes]

    def score(self, points: Points) -> Array:
        grid = self.surrogate.grid
        mean, sd = self.surrogate.predict(points)
        scores = log_improvement(mean, sd, self.best)
        feasibility = self.surrogate.feasibility(points)
        scores += CAREFUL * np.log(np.maximum(feasibility, 1e-12)) - 5.0 * (feasibility < LIKELY)
        reach = max(LEAST_REACH, len(grid.axes) // 4)
        # How many parameters differ clearly from those of the nearest incumbent.
        near = np.array([NEARBY * len(axis.values) if axis.ordered else 0.0 for axis in grid.axes])
        apart = np.abs(points[:, None, :] - self.incumbents[None, :, :]) > near
        distance = apart.sum(axis=2).min(axis=1).astype(float)
        scores -= DISTANCE_PENALTY * np.maximum(distance - reach, 0)
        tried = np.array([point.tobytes() in self.tried for point in points])
        return np.where(tried, TRIED, scores)


def propose(
    surrogate: Surrogate,
    project: Projection,
    rng: np.random.Generator,
    current: Points | None = None,
    *,
    guided: bool = False,
) -> tuple[Points, Points]:
    """The configuration with the highest expected improvement among those likely to work, and the
    runners-up. Among near equals it is the one that ``current`` can become with the fewest restarts.
    If ``guided``, it follows a move recommended for a leader, if such a candidate is new and likely
    to work. ``project`` makes points keep the rules of the space."""
    grid, observations = surrogate.grid, surrogate.observations
    surrogate = surrogate.with_pending()
    mean, _ = surrogate.measured()
    leading = np.argsort(-mean)[:LEADERS]
    leaders = observations.points[leading]
    incumbents = grid.canonical(leaders)
    tried = frozenset(point.tobytes() for point in grid.canonical(observations.tried))
    acquisition = _Acquisition(surrogate, float(mean.max()), incumbents, tried)
    if guided and observations.moves:
        moves = [observations.moves[index] for index in leading]
        candidates = guided_candidates(grid, incumbents, moves)
        if len(candidates):
            candidates = grid.canonical(project(candidates))
        candidates = candidates[surrogate.feasibility(candidates) >= LIKELY]
        scores = acquisition.score(candidates)
        if len(candidates) and scores.max() > TRIED:
            return np.asarray(candidates[int(scores.argmax())]), candidates
    pool = _evolved(acquisition, leaders, rng)
    candidates, scores = _first_new(acquisition, pool, project)
    if current is not None:
        scores = scores - RESTART * restarts(grid, current, candidates)
    return np.asarray(candidates[int(scores.argmax())]), candidates


def _evolved(acquisition: _Acquisition, leaders: Points, rng: np.random.Generator) -> Points:
    """Points near the leaders, between them and at random, bred for some rounds; best first."""
    grid, observations = acquisition.surrogate.grid, acquisition.surrogate.observations
    groups = [
        mutations(grid, leaders, MUTATIONS, rng),
        crossovers(leaders, observations.points, CROSSOVERS, rng),
        random_candidates(grid, RANDOM, rng),
    ]
    pool = grid.canonical(np.vstack(groups))
    scores = acquisition.score(pool)
    for _ in range(ROUNDS):
        order = np.argsort(-scores)[:PARENTS]
        offspring = grid.canonical(mutations(grid, pool[order], OFFSPRING, rng, changes=1.2))
        pool = np.vstack([pool[order], offspring])
        scores = np.concatenate([scores[order], acquisition.score(offspring)])
    return np.asarray(pool[np.argsort(-scores)])


def _first_new(
    acquisition: _Acquisition, pool: Points, project: Projection
) -> tuple[Points, Array]:
    """The first batch of ``pool``, projected, with a point that was not tried; else the last one.

    The rules may turn several points into one, which may have been tried.
    """
    for first in range(0, len(pool), BATCH):
        batch = acquisition.surrogate.grid.canonical(project(pool[first : first + BATCH]))
        scores = acquisition.score(batch)
        if scores.max() > TRIED:
            break
    return batch, scores


def mutations(
    grid: Grid, parents: Points, count: int, rng: np.random.Generator, changes: float = 3.0
) -> Points:
    """Parents with about ``changes`` parameters changed, mostly a little."""
    points = parents[rng.integers(len(parents), size=count)]
    size = points.shape[1]
    draws = rng.random(points.shape)
    expected = rng.choice([1.0, changes, changes, 2 * changes], size=(count, 1))
    changed = draws < expected / size
    changed[np.arange(count), rng.integers(size, size=count)] = True
    sizes = grid.sizes
    scale = rng.choice([0.03, 0.1, 0.25, 0.5], size=points.shape)
    step = np.rint(rng.normal(size=points.shape) * scale * sizes).astype(np.intp)
    step = np.where(step == 0, rng.choice([-1, 1], size=points.shape), step)
    moved = np.clip(points + step, 0, sizes - 1)
    ordered = np.array([axis.ordered for axis in grid.axes])
    moved = np.where(ordered, moved, (rng.random(points.shape) * sizes).astype(np.intp))
    return np.where(changed, moved, points)


def crossovers(leaders: Points, others: Points, count: int, rng: np.random.Generator) -> Points:
    """Each parameter from one of two parents, one of them a leader."""
    leader = leaders[rng.integers(len(leaders), size=count)]
    other = others[rng.integers(len(others), size=count)]
    return np.where(rng.random(leader.shape) < rng.random((count, 1)), leader, other)


def random_candidates(grid: Grid, count: int, rng: np.random.Generator) -> Points:
    """Uniform over the grid."""
    return (rng.random((count, len(grid.axes))) * grid.sizes).astype(np.intp)


def latin_hypercube(grid: Grid, count: int, index: int, seed: int) -> Points:
    """Member ``index`` of a Latin hypercube of ``count`` configurations."""
    rng = np.random.default_rng((seed, index // count))
    places = np.array([rng.permutation(count)[index % count] for _ in grid.axes])
    within = rng.random((count, len(grid.axes)))[index % count]
    return np.asarray((places + within) / count * grid.sizes).astype(np.intp)


def guided_candidates(grid: Grid, incumbents: Points, moves: Sequence[Sequence[str]]) -> Points:
    """Each of ``incumbents`` with its recommended moves, all together and each alone.

    ``moves``: for each incumbent `name+`, `name-` or `name=choice`. Parameters that are not on the
    grid, and choices that are not on offer, are left out.
    """
    candidates = [np.empty((0, len(grid.axes)), np.intp)]
    for incumbent, its_moves in zip(incumbents, moves, strict=True):
        together = _moved(grid, incumbent, its_moves)
        changed = np.flatnonzero(together != incumbent)
        if len(changed):
            alone = np.tile(incumbent, (len(changed), 1))
            alone[np.arange(len(changed)), changed] = together[changed]
            candidates += [together[None, :], alone]
    return np.vstack(candidates)


def _moved(grid: Grid, incumbent: Points, moves: Sequence[str]) -> Points:
    index = {axis.dimension.name: i for i, axis in enumerate(grid.axes)}
    point = incumbent.copy()
    for move in filter(None, map(_MOVE.fullmatch, moves)):
        place = index.get(move["name"])
        if place is None:
            continue
        axis = grid.axes[place]
        if axis.ordered and move["direction"]:
            step = max(1, round(STEP * len(axis.values)))
            level = incumbent[place] + (step if move["direction"] == "+" else -step)
            point[place] = min(max(level, 0), len(axis.values) - 1)
        elif not axis.ordered and move["choice"] in axis.values:
            point[place] = axis.values.index(move["choice"])
    return point


def restarts(grid: Grid, current: Points, points: Points) -> Array:
    """How many services of each point must be restarted, coming from ``current``.

    Configurations that share what needs a restart follow each other cheaply, and so come in groups.
    """
    owners = [axis.dimension.name.rpartition(".")[0] for axis in grid.axes]
    restarting = np.array([axis.dimension.parameter.action is Action.RESTART for axis in grid.axes])
    changed = (points != current) & restarting
    services = sorted(set(owners))
    belongs = np.array([[owner == service for service in services] for owner in owners])
    return np.asarray((changed.astype(float) @ belongs > 0).sum(axis=1).astype(float))
