"""Optuna's trials as evidence for a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.search.evidence import Evidence
from autotune.search.lattice import Lattice

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
        heights([float(t.value or 0.0) for t in measured]) - moved[:, 0],
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


def heights(values: Sequence[float]) -> Any:
    """Logarithms; values that have none are spread so that their upper half has an sd like a peak's."""
    if all(value > 0 for value in values):
        return np.array([log(value) for value in values])
    top = np.sort(np.array(values))[len(values) // 2 :]
    return np.array(values) * 0.15 / max(float(top.std()), 1e-12)
