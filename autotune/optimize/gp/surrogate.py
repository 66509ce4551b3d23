"""The surrogate model of a study: what its trials say of every configuration's peak and feasibility."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.special import ndtr

from autotune.estimate import PartCapacity
from autotune.optimize.gp.composite import LEAST, Composite, compose
from autotune.optimize.gp.grid import Axis, Grid, Points, distinct
from autotune.optimize.gp.model import Beliefs, Process, fit, table
from autotune.optimize.gp.scale import compress, compress_loss, compress_shared
from autotune.services.base import Effect
from autotune.space.dimension import PRESETS

Array = npt.NDArray[np.float64]
T = TypeVar("T")

MOVES = "moves"  # attribute of a trial: the moves its bottleneck recommends, separated by blanks
CAPACITIES = "capacities"  # attribute of a trial: what it told of the parts of the stack, as JSON
BED = "bed"  # attribute of a trial: the test bed that measured it, if there are several
FEASIBLE = "feasible"  # name of the constraint: violated when positive
DRIFT = "drift"  # attribute of the study: trial → by how much its log peak was too high, and the sd
OF_BEDS = "drift of beds"  # attribute of the study: bed → the sd that its shifts share
PRESET_PHASES = (*PRESETS, "known")  # phases of the study that measure presets
SEARCHED = "search"  # the phase that measures suggestions
NO_TRIAL = -1  # for `observe`: no trial is being suggested

# An observation this many sds below what all others predict of it was disturbed, and is disregarded.
DISTURBED = 3.0
ENOUGH = 8  # observations, to compare one with the others
# A disturbance hides a third of a peak at most. A configuration that carried less than two thirds of
# what the others predict fell off an edge that they know nothing of.
HIDDEN = log(1.5)
MATTERS = 0.01  # the least gain worth searching for, as a log ratio
DRAWS = 200
FITS = 1.5  # times the error of the model without parts, that the one with parts may have
# A prediction rests on so many observations at most, for its cost grows with their cube; a sixth of
# them are the newest.
MOST_MODELLED, NEWEST = 300, 6
FAILING = Beliefs(effect=0.5, noise=0.3)
# Prior variance of a parameter's effect, relative to that of parameters that decide on capacity.
VARIANCE = {Effect.CAPACITY: 1.0, Effect.SMALL: 0.3, Effect.COSMETIC: 0.1}


@dataclass(frozen=True)
class Shifts:
    """By how much each trial's log peak was too high, and the sd of its own, by the study's number.
    ``beds``: the sd that all shifts of a test bed share, where there are several."""

    trials: Mapping[int, tuple[float, float]]
    beds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observations:
    """``log_peaks`` (higher is better) and their ``sds``, one per point of ``points``.

    ``pruned``: the log peak is at most this. ``failed`` points could not be used; ``pending`` ones
    are being measured elsewhere. ``moves`` are those recommended for each of ``points``, if any, and
    ``capacities`` those of the stack's parts. ``numbers`` are the study's own of ``points``; ``others``
    were tried, too, and are left out of the model. ``suggested``: which of ``points`` the search made.
    ``shared``, ``[point, bed]``: the sd of the error
    that all log peaks of a test bed have in common, where there are several (`gp.model.fit`).
    """

    points: Points
    log_peaks: Array
    sds: Array
    pruned: npt.NDArray[np.bool_]
    failed: Points
    pending: Points
    moves: tuple[tuple[str, ...], ...] = ()
    capacities: tuple[Mapping[str, PartCapacity], ...] = ()
    numbers: tuple[int, ...] = ()
    others: tuple[Points, ...] = ()
    shared: Array | None = None
    suggested: tuple[bool, ...] = ()

    def __len__(self) -> int:
        return len(self.points) + len(self.failed)

    @property
    def enough_for_parts(self) -> bool:
        """Whether enough configurations were measured to model the parts of the stack.

        While little is known of a part, its model favours wide moves, most of them bad. A study that
        measures one configuration at a time learns that from the first; one with many pending would
        spend all of them on such moves.
        """
        return len(distinct(self.points)) >= LEAST + len(self.pending)

    @property
    def tried(self) -> Points:
        return np.vstack([self.points, self.failed, self.pending, *self.others])

    def bounded(self, most: int = MOST_MODELLED) -> Observations:
        """At most ``most`` points, those that say most of what may be better: half of them the highest,
        a sixth the newest, the rest an even choice of all others by log peak."""
        kept = _evenly(range(len(self.failed)), most // 3)
        bounded = replace(self, failed=self.failed[kept], others=(self.failed,))
        if len(self.points) <= most:
            return bounded if len(kept) < len(self.failed) else self
        order = np.argsort(-self.log_peaks, kind="stable").tolist()
        first = {*order[: most // 2], *range(len(order) - most // NEWEST, len(order))}
        others = [row for row in order if row not in first]
        rows = np.sort([*first, *_evenly(others, most - len(first))]).astype(np.intp)
        return replace(
            bounded, points=self.points[rows], log_peaks=self.log_peaks[rows], sds=self.sds[rows],
            pruned=self.pruned[rows], moves=_at(rows, self.moves),
            capacities=_at(rows, self.capacities), numbers=_at(rows, self.numbers),
            suggested=_at(rows, self.suggested),
            others=(self.points, self.failed),
            shared=None if self.shared is None else self.shared[rows],
        )  # fmt: skip


def _at(rows: Points, values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(values[row] for row in rows) if values else ()


def _evenly(rows: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of ``rows``, evenly spaced in their order."""
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
    return [rows[place] for place in places]


def observe(grid: Grid, trials: Iterable[FrozenTrial], asking: int, drift: Shifts) -> Observations:
    """What is modelled when trial ``asking`` is suggested; trials of a faulty harness say nothing."""
    trials = list(trials)
    measured = _measured(trials)
    failed = [t for t in trials if t.state is TrialState.COMPLETE and not works(t)]
    pending = [t for t in trials if t.state is TrialState.RUNNING and t.number != asking]
    numbers = tuple(int(t.user_attrs.get("trial", t.number)) for t in measured)
    shifted = np.array([drift.trials.get(number, (0.0, 0.0)) for number in numbers])
    shifted = shifted.reshape(-1, 2)
    sds = np.array([float(t.user_attrs.get("sd") or 0.0) for t in measured])

    def points(some: Sequence[FrozenTrial]) -> Any:
        return grid.canonical(grid.encode_all([t.params for t in some]))

    return Observations(
        points(measured),
        log_scale([float(t.value or 0.0) for t in measured]) - shifted[:, 0],
        np.hypot(sds, shifted[:, 1]),
        np.array([t.user_attrs.get("verdict") == "screened" for t in measured], bool),
        points(failed),
        points(pending),
        tuple(tuple(str(t.user_attrs.get(MOVES, "")).split()) for t in measured),
        tuple(_capacities(t, shift) for t, shift in zip(measured, shifted[:, 0], strict=True)),
        numbers,
        shared=_shared(measured, drift.beds),
        suggested=tuple(t.user_attrs.get("phase") == SEARCHED for t in measured),
    ).bounded()


def _shared(trials: Sequence[FrozenTrial], beds: Mapping[str, float]) -> Array:
    """The sd of the error that the trials of each bed share, ``[trial, bed]``."""
    own = [trial.user_attrs.get(BED) for trial in trials]
    shared = np.zeros((len(trials), len(beds)))
    for column, (name, sd) in enumerate(sorted(beds.items())):
        shared[[bed == name for bed in own], column] = sd
    return shared


def _capacities(trial: FrozenTrial, shift: float) -> dict[str, PartCapacity]:
    """What a trial told of the parts, as an average test bed would have. Beds differ in what each part
    carries as they do in what the stack carries; how much is learned as the study goes on."""
    parts = json.loads(trial.user_attrs.get(CAPACITIES, "{}"))
    more = shift if BED in trial.user_attrs else 0.0
    return {
        name: PartCapacity(log - more, sd, tuple(tiers)) for name, (log, sd, tiers) in parts.items()
    }


def works(trial: FrozenTrial) -> bool:
    """Whether a completed trial's configuration could be used."""
    return trial.constraints.get(FEASIBLE, 0.0) <= 0


def preset_measured(trials: Iterable[FrozenTrial]) -> bool:
    """Whether any preset was measured and works."""
    return any(t.user_attrs.get("phase") in PRESET_PHASES for t in _measured(trials))


def shifts(study: Study) -> Shifts:
    """What drift and test beds have done to each trial."""
    attributes = study.user_attrs
    recorded = {int(number): (mean, sd) for number, (mean, sd) in attributes.get(DRIFT, {}).items()}
    return Shifts(recorded, attributes.get(OF_BEDS, {}))


def _measured(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    return [
        t for t in trials if t.state is TrialState.COMPLETE and works(t) and t.value is not None
    ]


def log_scale(values: Sequence[float]) -> Any:
    """Logarithms; if any value has none, all are scaled so that their upper half has an sd like a
    log peak's."""
    if all(value > 0 for value in values):
        return np.array([log(value) for value in values])
    top = np.sort(np.array(values))[len(values) // 2 :]
    return np.array(values) * 0.15 / max(float(top.std()), 1e-12)


@dataclass(frozen=True)
class Surrogate:
    """``log_peak`` models compressed log peaks relative to the best measured; ``feasible`` whether a
    configuration works, and is ``None`` until one has failed. ``composite`` models them by the parts
    of the stack, where these are known and explain the peaks."""

    grid: Grid
    observations: Observations
    log_peak: Process
    feasible: Process | None
    composite: Composite | None = None

    @classmethod
    def of(cls, grid: Grid, observations: Observations) -> Surrogate:
        leader = observations.points[int(observations.log_peaks.argmax())]
        levels = zip(grid.axes, leader, strict=True)
        tables = tuple(VARIANCE[_effect(a)] * table(a, int(level)) for a, level in levels)
        log_peak = _fit_log_peak(tables, observations)
        composite = _composite(grid, tables, observations, log_peak)
        feasible = None
        if len(observations.failed):
            points = np.vstack([observations.points, observations.failed])
            values = np.array([1.0] * len(observations.points) + [-1.0] * len(observations.failed))
            centred = tuple(table(axis) for axis in grid.axes)
            feasible = fit(centred, points, values, np.zeros(len(points)), FAILING, level=0.5)
        return cls(grid, observations, log_peak, feasible, composite)

    def with_pending(self) -> Surrogate:
        """As if each pending measurement had come out as predicted."""
        pending, composite = self.observations.pending, self.composite
        return replace(
            self,
            log_peak=self.log_peak.believing(pending),
            composite=composite.believing(pending) if composite else None,
        )

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Mean and sd of the compressed log peaks."""
        return (self.composite or self.log_peak).predict(points)

    def feasibility(self, points: Points) -> Array:
        """Probability that a configuration works."""
        if self.feasible is None:
            return np.ones(len(points))
        mean, sd = self.feasible.predict(points)
        return np.asarray(ndtr(mean / np.sqrt(sd**2 + 0.05)))

    def improvement_probability(self, points: Points, rng: np.random.Generator) -> float:
        """Probability that any of ``points`` is better by ``MATTERS`` than the best one measured."""
        best = self.observations.points[self.best()]
        model = self.composite or self.log_peak
        drawn = model.draws(np.vstack([best[None, :], points]), DRAWS, rng)
        return float((drawn[:, 1:].max(axis=1) > drawn[:, 0] + MATTERS).mean())

    def measured(self) -> tuple[Array, Array]:
        """Mean and sd at the measured points. The model raises a measurement by ``HIDDEN`` at most."""
        mean, sd = self.predict(self.observations.points)
        log_peaks = self.observations.log_peaks
        return np.minimum(mean, -compress_loss(log_peaks.max() - log_peaks - HIDDEN)), sd

    def best(self) -> int:
        """Index of the measured point believed to be the highest."""
        return int(self.measured()[0].argmax())


def _composite(
    grid: Grid, tables: tuple[Array, ...], observations: Observations, log_peak: Process
) -> Composite | None:
    """The model of the parts; ``None`` if too few are known, or if it predicts left-out peaks much worse
    than ``log_peak`` does. A part model misleads if tiers act on each other."""
    if not any(observations.capacities) or not observations.enough_for_parts:
        return None
    sds = np.sqrt(np.maximum(log_peak.variances - log_peak.noise, 0.0))
    composite = compose(
        grid, tables, observations.points, observations.capacities, observations.log_peaks, sds,
        observations.shared,
    )  # fmt: skip
    error = float(np.abs(log_peak.left_out()[0]).mean())
    return composite if composite and composite.error <= FITS * error else None


def _effect(axis: Axis) -> Effect:
    return axis.dimension.parameter.effect


def _fit_log_peak(tables: tuple[Array, ...], observations: Observations) -> Process:
    """Fitted to all observations; then again, disregarding those that the others contradict.

    A measurement far below what the others predict was disturbed. A pruned one is an upper bound:
    where the others predict less, it adds nothing.
    """
    values, sds = compress(observations.log_peaks, observations.sds)
    shared = compress_shared(observations.log_peaks, observations.shared)
    process = fit(tables, observations.points, values, sds**2, Beliefs(), shared=shared)
    if len(values) < ENOUGH:
        return process
    residual, sd = process.left_out()
    void = (residual < -DISTURBED * sd) | (observations.pruned & (residual > 0.0))
    if not void.any():
        return process
    variances = sds**2 + np.where(void, np.maximum(residual**2, sd**2) * 4.0, 0.0)
    return fit(tables, observations.points, values, variances, Beliefs(), shared=shared)


def log_improvement(mean: Array, sd: Array, best: float) -> Array:
    """Logarithm of the expected improvement over ``best``, without underflow (Ament et al., 2023)."""
    z = (mean - best) / sd
    density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    near = np.maximum(np.exp(density) + z * ndtr(z), 1e-300)
    # φ(z) + z Φ(z) for z far below zero, by the asymptotic series of Mills' ratio.
    square = np.maximum(z * z, 25.0)
    far = density - np.log(square) + np.log1p(-3.0 / square + 15.0 / square**2)
    return np.asarray(np.log(sd) + np.where(z > -5.0, np.log(near), far))
