"""The outlook of a running study: its leader so far, and the time left."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.optimize.confirmation import MIN_PAIRS
from autotune.report import format as fmt
from autotune.report.conclusion import MeasuredConfiguration, find_conclusion
from autotune.report.units import RequestUnits, Units, select_units
from autotune.study import time_budget
from autotune.study.study_state import Phase, State
from autotune.target.model import Budget, Target


@dataclass(frozen=True)
class StudyOutlook:
    """The state of a running study. ``leader`` is the configuration with the highest peak so far, not
    yet proven.

    The leader may be the baseline. Figures pool all measurements of a configuration after its
    selection, as in the report. ``trial_count`` is the number of finished configurations in the budget.
    ``seconds_left`` is estimated from the trials so far and never exceeds the time left in the budget.
    ``is_virtual`` is true if the stack is a model, whose time is not wall-clock time.
    """

    units: Units
    baseline: MeasuredConfiguration | None
    leader: MeasuredConfiguration | None
    trial_count: int
    seconds_left: float
    is_virtual: bool = False

    @property
    def time_left_text(self) -> str:
        """Return the time left as text, marked as virtual for a model; empty if no time is left."""
        seconds = round(self.seconds_left)
        unit = " of virtual time" if self.is_virtual else ""
        return f"{fmt.format_duration(seconds)}{unit} left" if seconds else ""

    @property
    def is_baseline_leading(self) -> bool:
        return self.leader is self.baseline

    @property
    def lead_text(self) -> str:
        """Return the leader's gain over the baseline so far; empty while the baseline leads."""
        baseline_peak, leader_peak = (
            select_feasible_peak(self.baseline),
            select_feasible_peak(self.leader),
        )
        if not baseline_peak or not leader_peak or self.is_baseline_leading:
            return ""
        return self.units.format_change(leader_peak / baseline_peak, baseline_peak)

    def __str__(self) -> str:
        """Return the best result so far, its gain over the baseline, and the time left."""
        return f"{self.best_text}   {self.time_left_text}".rstrip()

    @property
    def best_text(self) -> str:
        """Return the best result so far, and its gain over the baseline."""
        is_web_stack = isinstance(self.units, RequestUnits) and self.baseline is not None
        result_text = "nothing meets the SLO yet" if is_web_stack else "nothing measured yet"
        peak = select_feasible_peak(self.leader)
        if self.leader is not None and peak:
            lead_text = f", {self.lead_text}" if self.lead_text else ""
            repeat_count = self.leader.repeat_count
            repeats_text = f", re-measured {repeat_count}×" if self.leader.repeated_peak else ""
            amount = self.units.format_short(self.units.from_peak(peak))
            result_text = f"best {amount} (#{self.leader.trial.number}{lead_text}{repeats_text})"
        return result_text


def build_outlook(target: Target, state: State) -> StudyOutlook:
    """Return the outlook; the leader is the best candidate if that candidate beats the baseline."""
    conclusion = find_conclusion(state)
    baseline, best = conclusion.baseline, conclusion.best
    return StudyOutlook(
        units=select_units(target, state),
        baseline=baseline,
        leader=best if select_feasible_peak(best) > select_feasible_peak(baseline) else baseline,
        trial_count=len(state.list_counted_trials()),
        seconds_left=_estimate_seconds_left(state, target.budget),
        is_virtual=target.simulated is not None,
    )


def select_feasible_peak(side: MeasuredConfiguration | None) -> float:
    """Return the best estimate of a configuration's peak; 0 if it met the objective at no rate."""
    peak = side.best_estimate if side else None
    return peak.peak if peak and peak.is_feasible else 0.0


def _estimate_seconds_left(state: State, budget: Budget) -> float:
    remaining_seconds = max(0.0, budget.time - state.elapsed_seconds)
    trial_seconds = time_budget.compute_average_trial_seconds(state)
    if not trial_seconds:
        return remaining_seconds
    finalists, confirmation_trials = (
        state.list_finished_trials(Phase.FINALIST),
        state.list_finished_trials(Phase.CONFIRM),
    )
    missing_finalists = max(0, time_budget.MIN_FINALISTS - len(finalists))
    missing_confirmation_count = max(0, 2 * MIN_PAIRS - len(confirmation_trials))
    is_search_over = finalists or confirmation_trials or state.stop_reason or state.posterior
    searched_count = budget.trials if is_search_over else len(state.list_counted_trials())
    bed_count = max(1, len(state.active_beds))
    return min(
        remaining_seconds,
        trial_seconds
        * (max(0, budget.trials - searched_count) + missing_finalists + missing_confirmation_count)
        / bed_count,
    )
