"""How a study stands while it runs: the current leader, its lead, and the time left."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.optimize.confirmation import LEAST_PAIRS
from autotune.report import format as fmt
from autotune.report.objective import Requests, Units, units_of
from autotune.study import ranking, schedule
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.target.model import Budget, Target


@dataclass(frozen=True)
class Outlook:
    """``leader`` carries the most so far, the baseline included: no claim yet.

    ``counted`` are the finished trials that the budget counts, ``seconds_left`` about how long the
    study still takes, going by its trials so far; never beyond its time.
    """

    units: Units
    baseline: Trial | None
    leader: Trial | None
    counted: int
    seconds_left: float

    @property
    def ratio(self) -> float | None:
        """The leader's first measurement over the baseline's; ``None`` while it leads itself."""
        stock, best = _peak(self.baseline), _peak(self.leader)
        return best / stock if best and stock and self.leader != self.baseline else None

    @property
    def lead(self) -> str:
        """By how much the leader beats the baseline so far; empty while the baseline leads."""
        stock = self.baseline.peak if self.baseline else None
        return self.units.change(self.ratio, stock.peak) if self.ratio and stock else ""

    def __str__(self) -> str:
        """The best so far, by how much it beats the baseline, and the time left."""
        requests = isinstance(self.units, Requests)
        best = "nothing meets the SLO yet" if requests else "no value yet"
        if self.leader is not None and self.leader.peak is not None and self.leader.peak.feasible:
            lead = f", {self.lead}" if self.lead else ""
            amount = self.units.brief(self.units.of(self.leader.peak.peak))
            best = f"best {amount} (#{self.leader.number}{lead})"
        return f"{best}   {fmt.duration(self.seconds_left)} left"


def outlook(target: Target, state: State) -> Outlook:
    """The baseline, and the best of it and the configuration that stands to win."""
    baseline, number = ranking.baseline(state), ranking.best(state)
    best = None if number is None else state.by_number(number)
    return Outlook(
        units=units_of(target, state),
        baseline=baseline,
        leader=best if _peak(best) > _peak(baseline) else baseline,
        counted=len(state.finished(*COUNTED)),
        seconds_left=_seconds_left(state, target.budget),
    )


def _peak(trial: Trial | None) -> float:
    """Requests/s within the SLO."""
    return trial.peak.peak if trial and trial.peak and trial.peak.feasible else 0.0


def _seconds_left(state: State, budget: Budget) -> float:
    rest = max(0.0, budget.time - state.elapsed)
    each = schedule.trial_seconds(state)
    if not each:
        return rest
    finals = max(0, schedule.FINALISTS - len(state.finished(Phase.FINALIST)))
    proof = max(0, 2 * LEAST_PAIRS - len(state.finished(Phase.CONFIRM)))
    later = bool(state.finished(Phase.FINALIST, Phase.CONFIRM))
    search = 0 if later else max(0, budget.trials - len(state.finished(*COUNTED)))
    return min(rest, each * (search + finals + proof))
