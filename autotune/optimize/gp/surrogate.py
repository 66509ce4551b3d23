"""What a study believes about its space: how high each configuration stands, and whether it works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.special import ndtr

from autotune.optimize.gp.grid import Lattice, Rows
from autotune.optimize.gp.model import Beliefs, Process, fit, table

Array = npt.NDArray[np.float64]

# An observation this many sds below what all others predict of it was disturbed, and loses its say.
DISTURBED = 3.0
ENOUGH = 8  # observations, to judge one by the others
# A disturbance hides a third of a peak, no more: a configuration that carried less than that of what
# the others predict fell off an edge that they know nothing of.
HIDDEN = log(1.5)
# A gain that is worth searching on for, as a log ratio.
MATTERS = 0.01
DRAWS = 200
FAILING = Beliefs(effect=0.5, noise=0.3)


@dataclass(frozen=True)
class Landscape:
    """``heights`` are log peaks relative to the best measured; ``working`` is ``None`` until
    something has failed."""

    lattice: Lattice
    evidence: Evidence
    heights: Process
    working: Process | None

    @classmethod
    def of(cls, lattice: Lattice, evidence: Evidence) -> Landscape:
        leader = evidence.rows[int(evidence.heights.argmax())]
        anchored = tuple(
            table(axis, int(level)) for axis, level in zip(lattice.axes, leader, strict=True)
        )
        tables = tuple(table(axis) for axis in lattice.axes)
        return cls(lattice, evidence, _heights(anchored, evidence), _working(tables, evidence))

    def awaiting(self) -> Landscape:
        """With what is being measured elsewhere taken to come out as believed."""
        return replace(self, heights=self.heights.believing(self.evidence.pending))

    def predict(self, rows: Rows) -> tuple[Array, Array]:
        """Mean and sd of the heights."""
        return self.heights.predict(rows)

    def chance(self, rows: Rows) -> Array:
        """Probability that a configuration works."""
        if self.working is None:
            return np.ones(len(rows))
        mean, sd = self.working.predict(rows)
        return np.asarray(ndtr(mean / np.sqrt(sd**2 + 0.05)))

    def prospect(self, rows: Rows, rng: np.random.Generator) -> float:
        """Chance that any of ``rows`` is better by ``MATTERS`` than the best one measured."""
        best = self.evidence.rows[self.best()]
        drawn = self.heights.draws(np.vstack([best[None, :], rows]), DRAWS, rng)
        return float((drawn[:, 1:].max(axis=1) > drawn[:, 0] + MATTERS).mean())

    def measured(self) -> tuple[Array, Array]:
        """Mean and sd of the rows that were measured. What the others say of one lifts it by
        ``HIDDEN`` at most."""
        mean, sd = self.predict(self.evidence.rows)
        known = self.evidence.heights
        return np.minimum(mean, -squeezed(known.max() - known - HIDDEN)), sd

    def best(self) -> int:
        """Index of the measured row believed to be the highest."""
        return int(self.measured()[0].argmax())


def _heights(tables: tuple[Array, ...], evidence: Evidence) -> Process:
    """All observations first; then without the say of those that the others show to have none.

    A measurement far below what the others predict was disturbed. A screened one is a ceiling: where
    the others predict less, it adds nothing.
    """
    values, sds = compressed(evidence.heights, evidence.sds)
    process = fit(tables, evidence.rows, values, sds**2, Beliefs())
    if len(values) < ENOUGH:
        return process
    miss, sd = process.left_out()
    void = (miss < -DISTURBED * sd) | (evidence.screened & (miss > 0.0))
    if not void.any():
        return process
    variances = sds**2 + np.where(void, np.maximum(miss**2, sd**2) * 4.0, 0.0)
    return fit(tables, evidence.rows, values, variances, Beliefs())


def _working(tables: tuple[Array, ...], evidence: Evidence) -> Process | None:
    if not len(evidence.failed):
        return None
    rows = np.vstack([evidence.rows, evidence.failed])
    values = np.array([1.0] * len(evidence.rows) + [-1.0] * len(evidence.failed))
    return fit(tables, rows, values, np.zeros(len(rows)), FAILING, level=0.5)


def log_improvement(mean: Array, sd: Array, best: float) -> Array:
    """Logarithm of the expected improvement over ``best``, without underflow (Ament et al., 2023)."""
    z = (mean - best) / sd
    density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    near = np.maximum(np.exp(density) + z * ndtr(z), 1e-300)
    # φ(z) + z Φ(z) for z far below zero, by the asymptotic series of Mills' ratio.
    square = np.maximum(z * z, 25.0)
    far = density - np.log(square) + np.log1p(-3.0 / square + 15.0 / square**2)
    return np.asarray(np.log(sd) + np.where(z > -5.0, np.log(near), far))


# Far below the best, only the order of magnitude counts: losses beyond this log distance are
# compressed, or a few disastrous configurations would set the scale for all.
NEAR = 0.3


@dataclass(frozen=True)
class Evidence:
    """``heights`` are log peaks (higher is better) and ``sds`` theirs, one per row of ``rows``.

    ``screened``: the height is known to be at most this. ``failed`` rows could not be used;
    ``pending`` ones are being measured elsewhere. ``moves`` are advised for each of ``rows``
    (`optimize.gp.proposals`), if anything is.
    """

    rows: Rows
    heights: Array
    sds: Array
    screened: npt.NDArray[np.bool_]
    failed: Rows
    pending: Rows
    moves: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.failed)

    @property
    def tried(self) -> Rows:
        return np.vstack([self.rows, self.failed, self.pending])


def compressed(heights: Array, sds: Array) -> tuple[Array, Array]:
    """Heights relative to the best, large losses compressed (logarithmically beyond ``NEAR``)."""
    loss = heights.max() - heights
    return -squeezed(loss), sds * NEAR / np.maximum(loss, NEAR)


def squeezed(loss: Array) -> Array:
    """Log distances below the best, compressed where they are large."""
    far = np.maximum(loss, NEAR)
    return np.where(loss > NEAR, NEAR * (1.0 + np.log(far / NEAR)), loss)


def stretched(heights: Array) -> Array:
    """The inverse of ``compressed``, for heights alone: zero for what is believed above the best."""
    loss = np.maximum(-heights, 0.0)
    return -np.where(loss > NEAR, NEAR * np.exp(loss / NEAR - 1.0), -heights)


MOVES = "moves"  # attribute of a trial: what its bottleneck advises, separated by blanks
FEASIBLE = "feasible"  # name of the constraint: violated when positive
DRIFT = "drift"  # attribute of the study: trial → what its log peak was too high by, and the sd
ADVISED = ("recommended", "published", "known")  # phases of the study
NOBODY = -1  # no trial is being asked for
Shifts = Mapping[int, tuple[float, float]]


def works(trial: FrozenTrial) -> bool:
    """Whether a completed trial's configuration could be used."""
    return trial.constraints.get(FEASIBLE, 0.0) <= 0


def advised(trials: Iterable[FrozenTrial]) -> bool:
    """Whether any configuration that somebody advised was measured and works."""
    return any(t.user_attrs.get("phase") in ADVISED for t in _measured(trials))


def numbers(trials: Iterable[FrozenTrial]) -> list[int]:
    """The study's own numbers of the trials that ``evidence`` has rows for, in its order."""
    return [int(t.user_attrs.get("trial", t.number)) for t in _measured(trials)]


def shifts(study: Study) -> Shifts:
    """What drift has done to each trial, by the study's own number."""
    told = study.user_attrs.get(DRIFT, {})
    return {int(number): (mean, sd) for number, (mean, sd) in told.items()}


def evidence(
    lattice: Lattice, trials: Iterable[FrozenTrial], asking: int, drift: Shifts
) -> Evidence:
    """What is known when trial ``asking`` is to be suggested; trials of a faulty harness say nothing."""
    trials = list(trials)
    measured = _measured(trials)
    failed = [t for t in trials if t.state is TrialState.COMPLETE and not works(t)]
    pending = [t for t in trials if t.state is TrialState.RUNNING and t.number != asking]
    moved = np.array([drift.get(number, (0.0, 0.0)) for number in numbers(trials)]).reshape(-1, 2)
    own = np.array([float(t.user_attrs.get("sd") or 0.0) for t in measured])

    def rows(of: Sequence[FrozenTrial]) -> Any:
        return lattice.settled(lattice.rows([t.params for t in of]))

    return Evidence(
        rows(measured),
        log_peaks([float(t.value or 0.0) for t in measured]) - moved[:, 0],
        np.hypot(own, moved[:, 1]),
        np.array([t.user_attrs.get("verdict") == "screened" for t in measured], bool),
        rows(failed),
        rows(pending),
        tuple(tuple(str(t.user_attrs.get(MOVES, "")).split()) for t in measured),
    )


def _measured(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    return [
        t for t in trials if t.state is TrialState.COMPLETE and works(t) and t.value is not None
    ]


def log_peaks(values: Sequence[float]) -> Any:
    """Logarithms; values that have none are spread so that their upper half has an sd like a peak's."""
    if all(value > 0 for value in values):
        return np.array([log(value) for value in values])
    top = np.sort(np.array(values))[len(values) // 2 :]
    return np.array(values) * 0.15 / max(float(top.std()), 1e-12)
