"""Optuna's trials as evidence for a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from autotune.search.evidence import Evidence
from autotune.search.lattice import Lattice

FEASIBLE = "feasible"  # name of the constraint: violated when positive


def works(trial: FrozenTrial) -> bool:
    """Whether a completed trial's configuration could be used."""
    return trial.constraints.get(FEASIBLE, 0.0) <= 0


def evidence(lattice: Lattice, trials: Iterable[FrozenTrial], asking: int) -> Evidence:
    """What is known when trial ``asking`` is to be suggested; trials of a faulty harness say nothing."""
    trials = list(trials)
    done = [t for t in trials if t.state is TrialState.COMPLETE]
    measured = [t for t in done if works(t) and t.value is not None]
    failed = [t for t in done if not works(t)]
    pending = [t for t in trials if t.state is TrialState.RUNNING and t.number != asking]

    def rows(of: Sequence[FrozenTrial]) -> Any:
        return lattice.settled(lattice.rows([t.params for t in of]))

    return Evidence(
        rows(measured),
        heights([float(t.value or 0.0) for t in measured]),
        np.array([float(t.user_attrs.get("sd") or 0.0) for t in measured]),
        np.array([t.user_attrs.get("verdict") == "screened" for t in measured], bool),
        rows(failed),
        rows(pending),
    )


def heights(values: Sequence[float]) -> Any:
    """Logarithms; values that have none are spread so that their upper half has an sd like a peak's."""
    if all(value > 0 for value in values):
        return np.array([log(value) for value in values])
    top = np.sort(np.array(values))[len(values) // 2 :]
    return np.array(values) * 0.15 / max(float(top.std()), 1e-12)
