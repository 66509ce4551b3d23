"""How a study stands while it runs: who leads, by how much, and how long it may still take."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.search.confirmation import LEAST_PAIRS
from autotune.study import ranking, schedule
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.target.model import Budget


@dataclass(frozen=True)
class Standing:
    """``leader`` carries the most so far, the baseline included: no claim yet."""

    baseline: Trial | None
    leader: Trial | None

    @property
    def ratio(self) -> float | None:
        """The leader's first measurement over the baseline's; ``None`` while it leads itself."""
        stock, best = _peak(self.baseline), _peak(self.leader)
        return best / stock if best and stock and self.leader != self.baseline else None


def standing(state: State) -> Standing:
    """The baseline, and the best of it and the configuration that stands to win."""
    baseline, number = ranking.baseline(state), ranking.best(state)
    leader = None if number is None else state.by_number(number)
    return Standing(baseline, leader if _peak(leader) > _peak(baseline) else baseline)


def _peak(trial: Trial | None) -> float:
    """Requests/s within the objective."""
    return trial.peak.peak if trial and trial.peak and trial.peak.feasible else 0.0


def counted(state: State) -> int:
    """Finished trials that the budget counts."""
    return len(state.finished(*COUNTED))


def seconds_left(state: State, budget: Budget) -> float:
    """About how long the study still takes, going by its trials so far; never beyond its time."""
    rest = max(0.0, budget.time - state.elapsed)
    each = schedule.trial_seconds(state)
    if not each:
        return rest
    finals = max(0, schedule.FINALISTS - len(state.finished(Phase.FINALIST)))
    proof = max(0, 2 * LEAST_PAIRS - len(state.finished(Phase.CONFIRM)))
    later = bool(state.finished(Phase.FINALIST, Phase.CONFIRM))
    search = 0 if later else max(0, budget.trials - counted(state))
    return min(rest, each * (search + finals + proof))
