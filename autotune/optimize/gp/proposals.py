"""Where to look for the next configuration: near the leaders, between them, and anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.grid import Lattice, Rows
from autotune.optimize.gp.surrogate import Landscape, log_improvement
from autotune.services.base import Action

Array = npt.NDArray[np.float64]
Projection = Callable[[Rows], Rows]
Score = Callable[[Rows], Array]

LEADERS = 4
RESTART = 0.02  # of the logarithm of its improvement is what a restart may cost
KNOWN = -1e9  # score of what has been measured, or is being
MUTANTS, CROSSES, STRANGERS = 500, 200, 200
# A suggestion far from all leaders in many parameters at once is hardly ever good: beyond ``reach``
# of them each costs so much of the logarithm of its improvement.
TIMID, LEAST_REACH, NEARBY = 1.0, 3, 0.05
# The improvement counts times the chance that the configuration works, to this power.
CAREFUL, LIKELY = 4.0, 0.5
ROUNDS, BRED, FITTED = 5, 160, 20


def propose(
    landscape: Landscape,
    project: Projection,
    rng: np.random.Generator,
    current: Rows | None = None,
    *,
    heeding: bool = False,
) -> tuple[Rows, Rows]:
    """The configuration with the highest expected improvement among those that may work, and those
    that came close to it. Among near equals it is the one that ``current`` can become with the
    fewest restarts. ``heeding`` advice, it is one that follows what was advised for a leader, if any
    such is new and likely to work."""
    lattice, evidence = landscape.lattice, landscape.evidence
    landscape = landscape.awaiting()
    mean, _ = landscape.measured()
    leading = np.argsort(-mean)[:LEADERS]
    leaders = evidence.rows[leading]
    best = float(mean.max())
    homes = lattice.settled(leaders)
    reach = max(LEAST_REACH, len(lattice.axes) // 4)
    tried = {row.tobytes() for row in lattice.settled(evidence.tried)}

    def score(rows: Rows) -> Array:
        middle, sd = landscape.predict(rows)
        gain = log_improvement(middle, sd, best)
        chance = landscape.chance(rows)
        gain += CAREFUL * np.log(np.maximum(chance, 1e-12)) - 5.0 * (chance < LIKELY)
        gain -= TIMID * np.maximum(_changed(lattice, rows, homes) - reach, 0)
        seen = np.array([row.tobytes() in tried for row in rows])
        return np.where(seen, KNOWN, gain)

    if heeding and evidence.moves:
        advised = followers(lattice, homes, [evidence.moves[index] for index in leading])
        fitting = lattice.settled(project(advised)) if len(advised) else advised
        fitting = fitting[landscape.chance(fitting) >= LIKELY]
        final = score(fitting)
        if len(fitting) and final.max() > KNOWN:
            return np.asarray(fitting[int(final.argmax())]), fitting
    pool = lattice.settled(
        np.vstack(
            [
                mutants(lattice, leaders, MUTANTS, rng),
                crosses(leaders, evidence.rows, CROSSES, rng),
                strangers(lattice, STRANGERS, rng),
            ]
        )
    )
    scores = score(pool)
    for _ in range(ROUNDS):
        order = np.argsort(-scores)[:8]
        bred = lattice.settled(mutants(lattice, pool[order], BRED, rng, few=1.2))
        pool = np.vstack([pool[order], bred])
        scores = np.concatenate([scores[order], score(bred)])
    order = np.argsort(-scores)
    for first in range(0, len(order), FITTED):
        # Rules may leave of several configurations only one, and that one may be known already.
        fitting = lattice.settled(project(pool[order[first : first + FITTED]]))
        final = score(fitting)
        if final.max() > KNOWN:
            break
    if current is not None:
        final = final - RESTART * restarts(lattice, current, fitting)
    return np.asarray(fitting[int(final.argmax())]), fitting


def _changed(lattice: Lattice, rows: Rows, homes: Rows) -> Array:
    """How many parameters of each row lie clearly elsewhere than in the nearest of ``homes``."""
    near = np.array([NEARBY * len(a.values) if a.ordered else 0.0 for a in lattice.axes])
    apart = np.abs(rows[:, None, :] - homes[None, :, :]) > near
    return np.asarray(apart.sum(axis=2).min(axis=1).astype(float))


def mutants(
    lattice: Lattice, parents: Rows, count: int, rng: np.random.Generator, few: float = 3.0
) -> Rows:
    """Parents with about ``few`` parameters changed, mostly a little."""
    rows = parents[rng.integers(len(parents), size=count)]
    size = rows.shape[1]
    changed = rng.random(rows.shape) < rng.choice([1.0, few, few, 2 * few], size=(count, 1)) / size
    changed[np.arange(count), rng.integers(size, size=count)] = True
    sizes = lattice.sizes
    scale = rng.choice([0.03, 0.1, 0.25, 0.5], size=rows.shape)
    step = np.rint(rng.normal(size=rows.shape) * scale * sizes).astype(np.intp)
    step = np.where(step == 0, rng.choice([-1, 1], size=rows.shape), step)
    moved = np.clip(rows + step, 0, sizes - 1)
    ordered = np.array([axis.ordered for axis in lattice.axes])
    moved = np.where(ordered, moved, (rng.random(rows.shape) * sizes).astype(np.intp))
    return np.where(changed, moved, rows)


def crosses(leaders: Rows, others: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Each parameter from one of two parents, one of them a leader."""
    one = leaders[rng.integers(len(leaders), size=count)]
    other = others[rng.integers(len(others), size=count)]
    return np.where(rng.random(one.shape) < rng.random((count, 1)), one, other)


def strangers(lattice: Lattice, count: int, rng: np.random.Generator) -> Rows:
    """Anywhere."""
    return (rng.random((count, len(lattice.axes))) * lattice.sizes).astype(np.intp)


def spread(lattice: Lattice, count: int, index: int, seed: int) -> Rows:
    """Member ``index`` of a Latin hypercube of ``count`` configurations."""
    rng = np.random.default_rng((seed, index // count))
    places = np.array([rng.permutation(count)[index % count] for _ in lattice.axes])
    within = rng.random((count, len(lattice.axes)))[index % count]
    return np.asarray((places + within) / count * lattice.sizes).astype(np.intp)


STEP = (
    0.1  # of a parameter's range: on a logarithmic one from 2 to 512 children nearly twice as many
)
_MOVE = re.compile(r"(?P<name>[^=+]+?)(?:(?P<way>[+-])|=(?P<choice>.*))")


def followers(lattice: Lattice, homes: Rows, moves: Sequence[Sequence[str]]) -> Rows:
    """Each of ``homes`` with its moves made, all together and each alone, and nothing else changed.

    ``moves``: for each home `name+`, `name-` or `name=choice`; others than the lattice's parameters,
    and choices that are not on offer, are left out.
    """
    made = [np.empty((0, len(lattice.axes)), np.intp)]
    for home, told in zip(homes, moves, strict=True):
        moved = _moved(lattice, home, told)
        changed = np.flatnonzero(moved != home)
        if len(changed):
            alone = np.tile(home, (len(changed), 1))
            alone[np.arange(len(changed)), changed] = moved[changed]
            made += [moved[None, :], alone]
    return np.vstack(made)


def _moved(lattice: Lattice, home: Rows, told: Sequence[str]) -> Rows:
    index = {axis.dimension.name: i for i, axis in enumerate(lattice.axes)}
    moved = home.copy()
    for found in filter(None, map(_MOVE.fullmatch, told)):
        at = index.get(found["name"])
        if at is None:
            continue
        axis = lattice.axes[at]
        if axis.ordered and found["way"]:
            by = max(1, round(STEP * len(axis.values)))
            level = home[at] + (by if found["way"] == "+" else -by)
            moved[at] = min(max(level, 0), len(axis.values) - 1)
        elif not axis.ordered and found["choice"] in axis.values:
            moved[at] = axis.values.index(found["choice"])
    return moved


def restarts(lattice: Lattice, current: Rows, rows: Rows) -> npt.NDArray[np.float64]:
    """How many services of each row must be restarted, coming from ``current``.

    Configurations that share what needs a restart follow each other cheaply, and so come in groups.
    """
    owners = [axis.dimension.name.rpartition(".")[0] for axis in lattice.axes]
    costly = np.array([axis.dimension.parameter.action is Action.RESTART for axis in lattice.axes])
    changed = (rows != current) & costly
    services = sorted(set(owners))
    belongs = np.array([[owner == service for service in services] for owner in owners])
    return np.asarray((changed.astype(float) @ belongs > 0).sum(axis=1).astype(float))
