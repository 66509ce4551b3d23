"""Plan measurements of the winner without a change whose cost is uncertain and may be large."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from autotune.space.space import SearchSpace
from autotune.study.ranking import (
    MIN_CONFIGURATIONS,
    baseline_meets_slo,
    find_best_trial,
    list_measured_trials,
)
from autotune.study.schedule_steps import EstimateCostsStep, MeasureStep, ScheduleStep
from autotune.study.study_state import Phase, State, Trial
from autotune.study.time_budget import compute_average_trial_seconds, compute_min_proof_seconds
from autotune.target.model import Budget

# Maximum number of measurements that revert a single change, and the smallest possible loss (as a log
# ratio) that justifies such a measurement.
MAX_REVERSALS, MIN_UNCERTAIN_LOSS = 2, 0.1
# Maximum number of measurements in a row that show nothing before a change is reverted. Another one
# would stop the study (`trial.MAX_FAULTS`), which needs no such measurement.
MAX_UNMEASURED_REVERSALS = 2


def plan_reversal(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float
) -> ScheduleStep | None:
    """Return a measurement of the winner without a change whose cost is uncertain and may be large.

    The cost is uncertain because the parameter was rarely measured at its baseline value. The gain may
    depend on this change.
    """
    winner_number, reversals = find_best_trial(state), state.list_started_trials(Phase.EXPLAIN)
    if (
        winner_number is None
        or state.posterior is None
        or state.values
        or state.list_started_trials(Phase.CONFIRM)
        or not baseline_meets_slo(state)
        or len(list_measured_trials(state)) < MIN_CONFIGURATIONS
        or not _may_revert_more(state, reversals)
        or elapsed_seconds + compute_average_trial_seconds(state) + compute_min_proof_seconds(state)
        > budget.time
    ):
        return None
    if state.cost_trial != winner_number:
        return EstimateCostsStep(winner_number)
    reverted_name = _find_next_reversal(state, space, reversals)
    if reverted_name is None:
        return None
    winner = state.find_trial(winner_number)
    settings = space.replace_impossible_values(winner.effective_settings, winner.settings)
    return MeasureStep(Phase.EXPLAIN, {**settings, reverted_name: space.baseline[reverted_name]})


def _may_revert_more(state: State, reversals: Sequence[Trial]) -> bool:
    """True if another measurement may revert a change.

    Measurements that showed nothing do not count. After ``MAX_UNMEASURED_REVERSALS`` of them in a row,
    the next fault would stop the study.
    """
    measured_count = sum(not trial.is_unmeasured for trial in reversals)
    last_trials = state.list_finished_trials()[-MAX_UNMEASURED_REVERSALS:]
    return measured_count < MAX_REVERSALS and not (
        len(last_trials) == MAX_UNMEASURED_REVERSALS
        and all(trial.is_unmeasured for trial in last_trials)
    )


def _find_next_reversal(state: State, space: SearchSpace, reversals: Sequence[Trial]) -> str | None:
    """Return the next change to revert alone: the largest possible cost that was not measured yet."""
    measured_settings = [trial.settings for trial in reversals if not trial.is_unmeasured]
    return next(
        (
            name
            for name in _list_uncertain_changes(state)
            if all(settings.get(name) != space.baseline[name] for settings in measured_settings)
        ),
        None,
    )


def _list_uncertain_changes(state: State) -> list[str]:
    """Return the changes whose cost may be zero or large, the largest possible cost first."""
    possible_losses = {
        name: -log(cost.ratio.interval()[0])
        for name, cost in state.reversal_costs.items()
        if not cost.is_distinguishable
    }
    ranked_names = sorted(possible_losses, key=lambda name: -possible_losses[name])
    return [name for name in ranked_names if possible_losses[name] >= MIN_UNCERTAIN_LOSS]
