"""The project's own sampler: expected improvement over a Gaussian process of few relevant parameters.

Candidates are mutations of the leaders, crossovers with them, points at random, and the leaders with
the moves that a diagnosis recommends for them. While such moves gain much, they are made without a model
(`moves.long_step`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.base import SpaceSampler
from autotune.optimize.gp.grid import Grid, Points, distinct
from autotune.optimize.gp.moves import guided_candidates, history, long_step
from autotune.optimize.gp.surrogate import (
    MATTERS,
    Observations,
    Surrogate,
    log_improvement,
    observe,
    preset_measured,
    shifts,
)
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Settings
from autotune.space.dimension import PRESETS
from autotune.space.space import Infeasible, Space

# A model needs something to compare: before so many trials a Latin hypercube is measured, unless a
# preset was measured already.
COLD = 8
LEAST = 2
# With few trials the model understates its uncertainty: before so many it never ends the search.
SURE = 20
# Below this probability that the parameters known to matter can do better, the others are searched too.
EXHAUSTED = 0.1
# Every so many suggestions may change any parameter, by any of its values.
EVERYWHERE = 3


class GpSampler(SpaceSampler):
    """Stateless: every suggestion follows from the trials in the storage and the seed, unless it is
    reseeded, to differ from those of other processes.

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
        rng = np.random.default_rng((self._task.seed, trial.number, *self._apart))
        core = Region.core(grid, self._task.space)
        if self._task.several and nothing_compared(observations):
            return dict(grid.decode(self._near_preset(observations, rng, core)))
        cold = begun < (LEAST if preset_measured(trials) else COLD)
        if cold or len(observations.points) < LEAST:
            opening = latin_hypercube(grid, COLD, begun, self._task.seed)
            return dict(grid.decode(self._repaired(opening[None, :])[0]))
        step = long_step(grid, observations, self._repaired)
        if step is not None:
            self.improvement_probability = None
            return dict(grid.decode(step))
        if trial.number % EVERYWHERE == EVERYWHERE - 1:
            core = Region.whole(grid)  # a parameter may decide here whatever its class
        surrogate = Surrogate.of(grid, observations)
        # What was deployed last, as far as the sampler knows.
        deployed = [t.params for t in trials if t.params and t.state.is_finished()]
        current = grid.canonical(grid.encode_all(deployed[-1:]))[0] if deployed else None
        point, runners_up = propose(surrogate, self._repaired, rng, current, core)
        probability = surrogate.improvement_probability(runners_up, rng) if begun >= SURE else None
        if probability is not None and probability < EXHAUSTED and not core.covers(grid):
            point, runners_up = propose(surrogate, self._repaired, rng, current)
            probability = surrogate.improvement_probability(runners_up, rng)
        self.improvement_probability = probability
        return dict(grid.decode(point))

    def _near_preset(
        self, observations: Observations, rng: np.random.Generator, core: Region
    ) -> Points:
        """A preset with a few changes, for a test bed with nothing else to measure while others measure
        the presets. Most stacks carry far more with these than with their baseline; with which of them
        most is not known yet."""
        grid, space = self._task.grid, self._task.space
        presets = [space.preset(kind, space.deployments[0]) for kind in PRESETS]
        # Where nothing is advised or published, such a preset is the baseline.
        own = [preset for preset in presets if preset != space.baseline] or presets[:1]
        leaders = np.unique(grid.canonical(grid.encode_all(own)), axis=0)
        points = nearby(grid, scattered(grid, leaders, BATCH, LEAST_CHANGES, rng, core), leaders)
        points = grid.canonical(self._repaired(points))
        tried = np.vstack([leaders, grid.canonical(observations.tried)])
        new = distances(grid, points, tried).min(axis=1) > 0
        return np.asarray(points[int(new.argmax())])

    def _repaired(self, points: Points, origin: Points | None = None) -> Points:
        """The configurations that would be measured: each with every rule kept, where that can be. What
        differs from ``origin`` is kept as it is, if changing other parameters can keep the rules."""
        grid, space = self._task.grid, self._task.space
        repaired = []
        for point in points:
            keep = set() if origin is None else _kept(grid, point, origin)
            try:
                settings = _candidate(space, grid.decode(point), keep)
            except Infeasible:
                continue
            repaired.append(grid.encode(settings))
        return np.array(repaired) if repaired else points


def _kept(grid: Grid, point: Points, origin: Points) -> set[str]:
    """The parameters that a move is to leave as they are if the rules can be kept without them: what
    was raised, so that what it needs is raised, too; if something was lowered, all others."""
    lowered = np.array([axis.ordered for axis in grid.axes]) & (point < origin)
    kept = ~lowered if lowered.any() else point != origin
    return {axis.dimension.name for axis, own in zip(grid.axes, kept, strict=True) if own}


def _candidate(space: Space, settings: Settings, keep: set[str]) -> Settings:
    """The settings with the rules kept, without changing those to ``keep`` if that can be."""
    if keep:
        with suppress(Infeasible):
            return space.candidate(settings, keep).settings
    return space.candidate(settings).settings


@dataclass(frozen=True)
class Region:
    """Which axes of a grid may be changed, and between which levels."""

    axes: npt.NDArray[np.intp]
    low: Points
    high: Points

    @classmethod
    def whole(cls, grid: Grid) -> Region:
        return cls(np.arange(len(grid.axes)), np.zeros_like(grid.sizes), grid.sizes - 1)

    @classmethod
    def core(cls, grid: Grid, space: Space) -> Region:
        """The parameters known to matter, between the levels that no guide warns of."""
        if not space.core_first:
            return cls.whole(grid)
        names = {dimension.name for dimension in space.core}
        axes = [d for d, axis in enumerate(grid.axes) if axis.dimension.name in names]
        low, high = zip(*(axis.safe for axis in grid.axes), strict=True)
        return cls(np.array(axes, np.intp), np.array(low), np.array(high))

    def covers(self, grid: Grid) -> bool:
        """Whether every axis may take all of its levels."""
        levels = self.high - self.low + 1
        return len(self.axes) == len(levels) and bool((levels == grid.sizes).all())

    def drawn(self, count: int, rng: np.random.Generator) -> Points:
        """Uniform over the levels."""
        sizes = self.high - self.low + 1
        return self.low + (rng.random((count, len(sizes))) * sizes).astype(np.intp)


Array = npt.NDArray[np.float64]
Projection = Callable[..., Points]

LEADERS = 4
PLAUSIBLE = 2.0  # sds that a leader may be behind the best
RESTART = 0.02  # what a restart may cost, of the logarithm of the improvement
TRIED = -1e9  # score of what has been measured, or is being
MUTATIONS, RANDOM = 600, 300
# A suggestion changes no more than this many parameters of a leader: many changes at once are hardly
# ever good, and teach little. Each change beyond that costs the penalty, in the logarithm of its
# improvement.
MOST_CHANGES, LEAST_CHANGES, DISTANCE_PENALTY = 4, 2, 10.0
# Nor does it move a number further than this part of its range. The ends of the ranges are the least
# known, and hardly ever good: if a suggestion could cross a whole range, most would go to an end.
STRIDE = 0.25
# So many failures in a row halve the number of changes, so many successes double it (TuRBO's rule).
FAILURES, SUCCESSES = 10, 1
# Added to the score of a recommended move: a diagnosis knows what the model does not.
ADVISED = log(3.0)
# The improvement is multiplied by the probability that the configuration works, to this power.
CAREFUL, LIKELY = 4.0, 0.5
SIGN, GUIDED = {"": 0, "+": 1, "-": -1}, 1 / 3
ROUNDS, PARENTS, OFFSPRING, BATCH = 5, 8, 160, 20


@dataclass(frozen=True)
class _Acquisition:
    """The score of a point: the logarithm of its expected improvement, less penalties.

    ``reach``: how many parameters of one of ``incumbents`` it may change.
    """

    surrogate: Surrogate
    best: float
    incumbents: Points
    tried: frozenset[bytes]
    reach: int

    def near(self, points: Points) -> Array:
        """The score, less a penalty for points that are too far from every incumbent."""
        changes = distances(self.surrogate.grid, points, self.incumbents).min(axis=1)
        too_far = DISTANCE_PENALTY * np.maximum(changes - self.reach, 0)
        return np.asarray(self.score(points) - too_far)

    def score(self, points: Points) -> Array:
        mean, sd = self.surrogate.predict(points)
        scores = log_improvement(mean, sd, self.best)
        feasibility = self.surrogate.feasibility(points)
        scores += CAREFUL * np.log(np.maximum(feasibility, 1e-12)) - 5.0 * (feasibility < LIKELY)
        tried = np.array([point.tobytes() in self.tried for point in points])
        return np.where(tried, TRIED, scores)


def propose(
    surrogate: Surrogate,
    project: Projection,
    rng: np.random.Generator,
    current: Points | None = None,
    region: Region | None = None,
) -> tuple[Points, Points]:
    """The configuration with the highest expected improvement among those likely to work, and the
    runners-up. Among near equals it is the one that needs the fewest restarts, coming from ``current``.

    It changes a few parameters of a leader inside ``region``, or takes a whole tier from another
    configuration, or follows a move recommended for a leader, if that scores highest. ``project`` makes
    points keep the rules of the space."""
    grid, observations = surrogate.grid, surrogate.observations
    surrogate = surrogate.with_pending()
    mean, sd = surrogate.measured()
    once = distinct(
        observations.points
    )  # measured again is not suggested again: one leader at most
    leading = once[plausible(mean[once], sd[once])]
    leaders = observations.points[leading]
    tried = frozenset(point.tobytes() for point in grid.canonical(observations.tried))
    acquisition = _Acquisition(
        surrogate, float(mean.max()), leaders, tried, reach(observations.log_peaks[once])
    )
    pool = _evolved(acquisition, leaders, rng, region)
    candidates, scores = _first_new(acquisition, pool, project)
    if observations.moves:
        for leader, index in zip(leaders, leading, strict=True):
            past = history(observations, int(index))
            advised = guided_candidates(grid, past, observations.moves[index])
            if len(advised):
                advised = grid.canonical(project(advised, leader))
                candidates = np.vstack([candidates, advised])
                scores = np.concatenate([scores, acquisition.score(advised) + ADVISED])
    if current is not None:
        scores = scores - RESTART * restarts(grid, current, candidates)
    return np.asarray(candidates[int(scores.argmax())]), candidates


def nothing_compared(observations: Observations) -> bool:
    """Whether there is one configuration at most that works, and none that does not."""
    return len(distinct(observations.points)) < LEAST and not len(observations.failed)


def plausible(mean: Array, sd: Array) -> npt.NDArray[np.intp]:
    """Indices of those that may well be the best, best first."""
    order = np.argsort(-mean)[:LEADERS]
    behind = mean[order[0]] - mean[order]
    return np.asarray(order[behind <= PLAUSIBLE * np.hypot(sd[order], sd[order[0]])])


def reach(log_peaks: Array) -> int:
    """How many parameters to change at once, by how the last trials went."""
    most, failures, successes = MOST_CHANGES, 0, 0
    best = np.maximum.accumulate(log_peaks) if len(log_peaks) else log_peaks
    for before, peak in zip(best[:-1], log_peaks[1:], strict=True):
        failures, successes = (0, successes + 1) if peak > before + MATTERS else (failures + 1, 0)
        if failures == FAILURES:
            most, failures = max(LEAST_CHANGES, most // 2), 0
        elif successes == SUCCESSES:
            most, successes = min(MOST_CHANGES, 2 * most), 0
    return most


def distances(grid: Grid, points: Points, leaders: Points) -> npt.NDArray[np.intp]:
    """How many parameters of each leader each point changes: ``[point, leader]``. A parameter is not
    counted if the parameter that it depends on is changed, too."""
    changed = points[:, None, :] != leaders[None, :, :]
    for child, parent, _ in grid.conditions:
        changed[:, :, child] &= ~changed[:, :, parent]
    return np.asarray(changed.sum(axis=2))


def _evolved(
    acquisition: _Acquisition,
    leaders: Points,
    rng: np.random.Generator,
    region: Region | None,
) -> Points:
    """Points near the leaders, offspring of the best, and leaders with another's tier; best first."""
    grid, observations = acquisition.surrogate.grid, acquisition.surrogate.observations
    groups = [
        mutations(grid, leaders, MUTATIONS, rng, region=region),
        scattered(grid, leaders, RANDOM, acquisition.reach, rng, region),
    ]
    pool = grid.canonical(nearby(grid, np.vstack(groups), leaders))
    scores = acquisition.near(pool)
    for _ in range(ROUNDS):
        order = np.argsort(-scores)[:PARENTS]
        children = mutations(grid, pool[order], OFFSPRING, rng, changes=1.2, region=region)
        offspring = grid.canonical(nearby(grid, children, leaders))
        pool = np.vstack([pool[order], offspring])
        scores = np.concatenate([scores[order], acquisition.near(offspring)])
    blocks = grid.canonical(tier_blocks(grid, leaders, observations.points))
    pool, scores = np.vstack([pool, blocks]), np.concatenate([scores, acquisition.score(blocks)])
    return np.asarray(pool[np.argsort(-scores)])


def nearby(grid: Grid, points: Points, leaders: Points) -> Points:
    """``points`` with no number further than ``STRIDE`` from what the leader nearest to them has."""
    leader = leaders[distances(grid, points, leaders).argmin(axis=1)]
    stride = np.maximum(1, np.rint(STRIDE * (grid.sizes - 1))).astype(np.intp)
    ordered = np.array([axis.ordered for axis in grid.axes])
    return np.where(ordered, np.clip(points, leader - stride, leader + stride), points)


def tier_blocks(grid: Grid, leaders: Points, others: Points) -> Points:
    """Each leader with one tier as another configuration has it: a tier that is good stays good."""
    tiers = np.array([ParameterName.parse(axis.dimension.name).tier for axis in grid.axes])
    blocks = [leaders[:0]]
    for tier in np.unique(tiers):
        own = tiers == tier
        for other in np.unique(others[:, own], axis=0):
            block = leaders.copy()
            block[:, own] = other
            blocks.append(block[(block != leaders).any(axis=1)])
    return np.vstack(blocks)


def scattered(
    grid: Grid,
    leaders: Points,
    count: int,
    changes: int,
    rng: np.random.Generator,
    region: Region | None = None,
) -> Points:
    """Leaders with ``changes`` of their parameters at random levels of ``region``."""
    points = leaders[rng.integers(len(leaders), size=count)]
    region = region or Region.whole(grid)
    draws = _draws(points, region, rng)
    ranked = np.sort(draws, axis=1)[:, [min(changes, len(region.axes)) - 1]]
    return np.where(draws <= ranked, region.drawn(count, rng), points)


def _draws(points: Points, region: Region, rng: np.random.Generator) -> Array:
    """A number below one for each parameter that the region leaves open, more for all others."""
    draws = np.full(points.shape, 2.0)
    draws[:, region.axes] = rng.random((len(points), len(region.axes)))
    return draws


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
    grid: Grid,
    parents: Points,
    count: int,
    rng: np.random.Generator,
    changes: float = 2.0,
    region: Region | None = None,
) -> Points:
    """Parents with about ``changes`` of the open parameters changed, mostly a little."""
    points = parents[rng.integers(len(parents), size=count)]
    region = region or Region.whole(grid)
    draws = _draws(points, region, rng)
    expected = rng.choice([0.0, 0.5, 1.0, 1.5], size=(count, 1)) * changes
    changed = draws < expected / len(region.axes)
    changed[np.arange(count), rng.choice(region.axes, size=count)] = True
    sizes = grid.sizes
    scale = rng.choice([0.03, 0.1, 0.25, 0.5], size=points.shape)
    step = np.rint(rng.normal(size=points.shape) * scale * sizes).astype(np.intp)
    step = np.where(step == 0, rng.choice([-1, 1], size=points.shape), step)
    # Guides advise a direction: two steps of three go that way.
    guided = np.array([SIGN[axis.dimension.parameter.direction] for axis in grid.axes])
    along = (guided != 0) & (rng.random(points.shape) < GUIDED)
    step = np.where(along, guided * np.abs(step), step)
    # A value that is outside of the region already stays where it is, or moves inwards.
    moved = np.clip(points + step, np.minimum(region.low, points), np.maximum(region.high, points))
    ordered = np.array([axis.ordered for axis in grid.axes])
    moved = np.where(ordered, moved, (rng.random(points.shape) * sizes).astype(np.intp))
    return np.where(changed, moved, points)


def latin_hypercube(grid: Grid, count: int, index: int, seed: int) -> Points:
    """Member ``index`` of a Latin hypercube of ``count`` configurations."""
    rng = np.random.default_rng((seed, index // count))
    places = np.array([rng.permutation(count)[index % count] for _ in grid.axes])
    within = rng.random((count, len(grid.axes)))[index % count]
    return np.asarray((places + within) / count * grid.sizes).astype(np.intp)


def restarts(grid: Grid, current: Points, points: Points) -> Array:
    """How many services must be restarted to get from ``current`` to each point.

    Configurations that differ in nothing that needs a restart follow each other cheaply, and so come in
    groups.
    """
    owners = [ParameterName.parse(axis.dimension.name).owner for axis in grid.axes]
    restarting = np.array([axis.dimension.parameter.action is Action.RESTART for axis in grid.axes])
    changed = (points != current) & restarting
    services = sorted(set(owners))
    belongs = np.array([[owner == service for service in services] for owner in owners])
    return np.asarray((changed.astype(float) @ belongs > 0).sum(axis=1).astype(float))
