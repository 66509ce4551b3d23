"""Plan pairs of measurements: two finalists in alternation, then the winner and the baseline."""

from __future__ import annotations

from autotune.optimize import confirmation
from autotune.study.proof import collect_proof_measurements, fails_in_proof, list_confirmations
from autotune.study.ranking import (
    find_baseline,
    find_best_trial,
    is_undecided,
    select_finalist_pair,
)
from autotune.study.schedule_steps import MeasureStep, ScheduleStep
from autotune.study.study_state import Phase, State
from autotune.study.time_budget import (
    MAX_OVERRUN_FACTOR,
    compute_average_trial_seconds,
    compute_min_proof_seconds,
    compute_shortest_seconds,
)
from autotune.target.model import Budget

MAX_PAIRS = 6  # of the winner and the baseline
MAX_RUNNER_UP_PAIRS = 2  # of the leader and its rival
# Number of measurements of the winner without a block of its changes for which time is reserved during
# the comparison with the best preset.
MIN_BLOCKS = 2
# Maximum number of failed confirmation measurements that are repeated. Such measurements fail, for
# example, if the load generator gets too little CPU time.
MAX_FAILED_CONFIRMATIONS = 2


def plan_confirmation(
    state: State, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    """Return the next measurement of the winner or the baseline. Winner and baseline alternate for at
    least one pair.
    """
    baseline, challenger = find_baseline(state), find_best_trial(state)
    if baseline is None or challenger is None or not baseline.meets_slo:
        return None
    proof = collect_proof_measurements(state, challenger)
    has_min_pairs = proof.measurement_count >= 2 * confirmation.MIN_PAIRS
    trial_seconds = compute_average_trial_seconds(state)
    pair_seconds = 2 * (
        trial_seconds if has_min_pairs else min(trial_seconds, compute_shortest_seconds(state))
    )
    latest_end = (
        budget.time
        if has_min_pairs
        else min(budget.time + pair_seconds, MAX_OVERRUN_FACTOR * budget.time)
    )
    is_late = elapsed_seconds + pair_seconds >= latest_end and proof.measurement_count >= 2
    is_proof_over = (
        is_late
        or _count_started_pairs(state, Phase.CONFIRM) >= MAX_PAIRS
        or proof.is_decided
        or fails_in_proof(state, challenger)
    )
    return _plan_alternation(
        state, Phase.CONFIRM, challenger, baseline.number, bed, is_stage_over=is_proof_over
    )


def plan_runner_up(
    state: State, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    """Return the next measurement of the leader or its rival. Leader and rival alternate if time
    allows.

    The rival is the best preset, or else the second best configuration. The comparison ends before the
    proof starts.
    """
    finalist_pair = select_finalist_pair(state)
    if finalist_pair is None or state.list_started_trials(Phase.CONFIRM):
        return None
    average_seconds = compute_average_trial_seconds(state)
    reserved_seconds = compute_min_proof_seconds(state) + MIN_BLOCKS * average_seconds
    is_comparison_over = (
        elapsed_seconds + 2 * average_seconds + reserved_seconds > budget.time
        or _count_started_pairs(state, Phase.RUNNER_UP) >= MAX_RUNNER_UP_PAIRS
        or not is_undecided(state, *finalist_pair)
    )
    return _plan_alternation(
        state, Phase.RUNNER_UP, *finalist_pair, bed, is_stage_over=is_comparison_over
    )


def _count_started_pairs(state: State, phase: Phase) -> int:
    """Return the number of pairs that have started, including unfinished pairs. Faults before the study
    was resumed do not count.
    """
    started_trials = state.exclude_outdated_faults(state.list_started_trials(phase))
    measurement_counts = (sum(t.bed == bed for t in started_trials) for bed in state.active_stacks)
    return sum(-(-measurement_count // 2) for measurement_count in measurement_counts)


def _plan_alternation(
    state: State,
    phase: Phase,
    first_number: int,
    second_number: int,
    bed: str | None,
    *,
    is_stage_over: bool,
) -> ScheduleStep | None:
    """Return the next measurement of one of two configurations. The two configurations alternate until
    ``is_stage_over``.

    A single measurement always gets its counterpart, because half a pair shows nothing. After a long
    pause, the whole pair is measured again, and an interrupted measurement comes first. Each test bed
    measures its own pairs. After too many failures, no measurement follows until the study is resumed.
    """
    finished_trials = [trial for trial in state.list_finished_trials(phase) if trial.bed == bed]
    failed_count = sum(
        not trial.meets_slo for trial in state.exclude_outdated_faults(finished_trials)
    )
    confirmations = list_confirmations(state, first_number, phase, bed)
    if failed_count > MAX_FAILED_CONFIRMATIONS or (len(confirmations) % 2 == 0 and is_stage_over):
        return None
    # The second measurement of a pair is the other side. The next pair starts with the side that ended
    # the previous pair, so that steady drift cancels out.
    ended_with_first = bool(confirmations) and confirmations[-1].is_winner
    is_half_measured = len(confirmations) % 2 == 1
    next_number = first_number if ended_with_first is not is_half_measured else second_number
    return MeasureStep(phase, state.find_trial(next_number).settings, source_trial=next_number)
