"""Several measurements of one configuration as one peak with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.estimate import Estimate
from autotune.study.records import Peak, Phase, State, Trial


def pooled(peaks: Sequence[Peak]) -> Peak | None:
    """One peak for several (`Estimate.pool`); a single one keeps its own interval, none is ``None``."""
    if len(peaks) < 2:
        return peaks[0] if peaks else None
    return Peak.of(Estimate.pool([peak.estimate for peak in peaks]))


def repeats(state: State, number: int) -> tuple[Trial, ...]:
    """Finished measurements of a trial's settings after it was selected: finals, confirmation."""
    again = state.finished(Phase.FINALIST, Phase.CONFIRM)
    return tuple(trial for trial in again if trial.of == number)


def fresh(state: State, number: int) -> Peak | None:
    """A trial's peak from its repeats alone; ``None`` when it has none that met the objective.

    The measurement it was selected for is left out: the best of many overstates itself.
    """
    return pooled(feasible(repeats(state, number)))


def feasible(trials: Sequence[Trial]) -> list[Peak]:
    """The peaks of those that met the objective."""
    return [trial.peak for trial in trials if trial.peak and trial.peak.feasible]
