"""Select the next step of a study from its state alone, so that resuming needs no other information.

An interrupted trial is repeated first. The other steps follow this order:

1. baseline
2. presets of every deployment (recommended, advised, published), then the user's configurations
3. search, with regular measurements of a reference if the study is long enough
4. finalists
5. the leader and its rival in alternation, if time allows
6. the winner without changes that have no effect
7. this winner without a change whose cost is uncertain and may be large, if time allows
8. this winner and the baseline in alternation
9. verdict

Test beds go through these stages together, but each bed requests its own next step. No bed waits within a
stage. A new stage starts when no trial of the previous stage is running.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.capacity import SearchLimits
from autotune.optimize.drift import MIN_REFERENCES
from autotune.space.space import SearchSpace
from autotune.study.alternation import MAX_FAILED_CONFIRMATIONS, plan_confirmation, plan_runner_up
from autotune.study.incumbent import find_doubtful_pruning, find_rough_incumbent, is_exploring
from autotune.study.opening import plan_opening
from autotune.study.ranking import (
    REQUIRED_REPRODUCTIONS,
    baseline_meets_slo,
    baseline_misses_slo,
    estimate_candidate_peaks,
    find_baseline,
    find_best_trial,
    find_leader,
    find_simplification,
    list_repeats,
    select_finalists,
)
from autotune.study.reversal import plan_reversal
from autotune.study.schedule_steps import (
    ConcludeStep,
    MeasureStep,
    RankStep,
    ScheduleStep,
    SimplifyStep,
    SuggestStep,
    WaitStep,
)
from autotune.study.study_drift import find_reference
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial
from autotune.study.time_budget import (
    MAX_OVERRUN_FACTOR,
    MIN_FINALISTS,
    MIN_MEASUREMENT_SECONDS,
    MIN_PROOF_SECONDS,
    RESERVED_BLOCKS,
    ROUGH_TRIAL_SHARE,
    compute_average_trial_seconds,
    compute_min_proof_seconds,
    compute_reserve_seconds,
    is_search_over,
)
from autotune.target.model import Budget

# There are `MIN_FINALISTS` finalists, or more if time allows and their estimates overlap.
MAX_FINALISTS = 4
# Number of search trials between two measurements of the reference. Pruned trials are short and less
# sensitive to drift, so PRUNED_TRIALS_DIVISOR pruned trials count as one.
REFERENCE_INTERVAL_TRIALS = 6
PRUNED_TRIALS_DIVISOR = 3
# A roughly measured incumbent is measured again only if the search has time for at least this number of
# trials.
MIN_TRIALS_TO_REFINE = 6
# A measurement may be shortened to the average duration of a trial, divided by this number.
MAX_SHORTENING_FACTOR = 3.0
# share of the usual proof time that remains if an imprecise finalist is measured again
SHORT_PROOF_SHARE = 0.75
# Maximum number of measurements of the winner without a block of its changes.
MAX_BLOCKS = 8


def select_next_step(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float, bed: str | None = None
) -> ScheduleStep:
    """Return the next step, for ``bed`` if there are several test beds.

    ``elapsed_seconds`` is the time spent on the study in seconds, over all sessions.
    """
    return (
        _plan_interrupted_trial(state, bed)
        or plan_opening(state, space, budget, elapsed_seconds, bed)
        or _plan_search(state, space, budget, elapsed_seconds, bed)
        or _plan_wait(state, *COUNTED_PHASES, Phase.REFERENCE)
        or _plan_ranking(state)
        or _plan_finals(state, budget, elapsed_seconds)
        or _plan_wait(state, Phase.FINALIST)
        or plan_runner_up(state, budget, elapsed_seconds, bed)
        or _plan_wait(state, Phase.RUNNER_UP)
        or _plan_wait(state, Phase.SIMPLIFIED)
        or _plan_simplification(state, budget, elapsed_seconds)
        or plan_reversal(state, space, budget, elapsed_seconds)
        or _plan_wait(state, Phase.EXPLAIN)
        or _plan_reproduction(state, budget, elapsed_seconds)
        or _plan_wait(state, Phase.FINALIST, Phase.BASELINE)
        or plan_confirmation(state, budget, elapsed_seconds, bed)
        or _plan_wait(state, Phase.CONFIRM)
        or ConcludeStep()
    )


def _plan_interrupted_trial(state: State, bed: str | None) -> ScheduleStep | None:
    """Return a repeat of the bed's interrupted trial, or else of an unfinished trial of an inactive
    bed.
    """
    last_trial = next((trial for trial in reversed(state.trials) if trial.bed == bed), None)
    if (
        last_trial is not None
        and not last_trial.is_finished
        and last_trial.number not in state.repeated_trial_numbers
    ):
        return _repeat_trial(last_trial, last_trial.replaced_trial)
    abandoned_trials = _find_abandoned_trials(state)
    if not abandoned_trials:
        return None
    return _repeat_trial(abandoned_trials[0], abandoned_trials[0].number)


def _repeat_trial(trial: Trial, replaced_trial: int | None) -> MeasureStep:
    """Return a step that starts a trial again, in place of ``replaced_trial`` of another bed."""
    return MeasureStep(
        trial.phase,
        trial.settings,
        trial.source_trial,
        trial.suggestion_number,
        trial.suggested,
        replaced_trial=replaced_trial,
        bindings=trial.bindings,
        requested=trial.requested,
    )


# Phases whose trials another bed cannot repeat, because such a trial belongs to one bed or to a pair on
# one bed.
BED_SPECIFIC_PHASES = frozenset({Phase.BASELINE, Phase.REFERENCE, Phase.RUNNER_UP, Phase.CONFIRM})


def _find_abandoned_trials(state: State) -> list[Trial]:
    """Return unfinished trials of inactive test beds that no other bed has repeated yet."""
    last_trials = [
        trial for bed, trial in state.last_trial_by_bed.items() if bed not in state.active_beds
    ]
    unfinished_trials = [
        t for t in last_trials if not t.is_finished and t.phase not in BED_SPECIFIC_PHASES
    ]
    replaced_trials = {trial.replaced_trial for trial in state.trials} if unfinished_trials else ()
    return [trial for trial in unfinished_trials if trial.number not in replaced_trials]


def _plan_wait(state: State, *phases: Phase) -> ScheduleStep | None:
    return WaitStep() if state.list_running_trials(*phases) else None


def _plan_search(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    if not space.tunable_dimensions or is_search_over(state, budget, elapsed_seconds):
        return None
    return (
        _plan_fault_repeat(state)
        or _plan_reference(state, budget, elapsed_seconds, bed)
        or _plan_preset_repeat(state)
        or _plan_refinement(state, budget, elapsed_seconds)
        or SuggestStep()
    )


def _plan_fault_repeat(state: State) -> ScheduleStep | None:
    """Return a repeat of a preset or of a user's configuration that showed nothing before the study was
    resumed.

    For example, the benchmark was broken, or ``load.max_rate`` was below its capacity.
    """
    repeated_numbers = {trial.replaced_trial for trial in state.trials}
    outdated_faults = (
        trial
        for trial in state.list_finished_trials(*(OPENING_PHASES - {Phase.BASELINE}))
        if state.is_outdated_fault(trial) and trial.number not in repeated_numbers
    )
    fault = next(outdated_faults, None)
    return (
        MeasureStep(
            fault.phase,
            fault.settings,
            fault.source_trial,
            replaced_trial=fault.number,
            bindings=fault.bindings,
            requested=fault.requested,
        )
        if fault
        else None
    )


def _plan_refinement(state: State, budget: Budget, elapsed_seconds: float) -> ScheduleStep | None:
    """Return a step that repeats the measurement of a roughly measured incumbent, once the best peak no
    longer rises by large factors.

    If the search is almost over, the finals repeat the measurement instead.
    """
    has_time = _has_time_for_trials(state, budget, elapsed_seconds, MIN_TRIALS_TO_REFINE)
    rough_incumbent = find_rough_incumbent(state) if has_time and not is_exploring(state) else None
    return _repeat_configuration(rough_incumbent) if rough_incumbent else None


def _has_time_for_trials(
    state: State, budget: Budget, elapsed_seconds: float, trial_count: int
) -> bool:
    """True if ``trial_count`` more trials fit before the time that is reserved for finals and proof."""
    needed_seconds = trial_count * compute_average_trial_seconds(state)
    needed_seconds /= max(1, len(state.active_beds))
    return needed_seconds <= budget.time - compute_reserve_seconds(state, budget) - elapsed_seconds


def _plan_preset_repeat(state: State) -> ScheduleStep | None:
    """Return a repeat of a preset whose pruning is in doubt after a later measurement of the incumbent.

    The study compares its winner with the best preset, so that preset must be fully measured.
    """
    doubtful_trial = find_doubtful_pruning(state, SearchLimits.early_prune_probability)
    return _repeat_configuration(doubtful_trial) if doubtful_trial else None


def _repeat_configuration(trial: Trial) -> MeasureStep:
    """Return a step that measures the configuration of a finished trial again."""
    return MeasureStep(trial.phase, trial.settings, source_trial=trial.number)


def _plan_reference(
    state: State, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    """Return a measurement of the reference if its last measurement on this bed is too old.

    A study that ends before ``MIN_REFERENCES`` repeats of the reference cannot estimate drift, because
    the measurement that selected the reference does not count. Such a study does not repeat the
    reference.
    """
    reference = find_reference(state)
    if reference is None:
        return None
    repeats = [t for t in state.list_finished_trials(Phase.REFERENCE) if t.bed == bed]
    last_number = max((t.number for t in (reference, *repeats) if t.bed == bed), default=-1)
    later_trials = [
        t
        for t in state.list_finished_trials(*COUNTED_PHASES)
        if t.number > last_number and t.bed == bed
    ]
    pruned_count = sum(t.peak is None or t.peak.is_pruned for t in later_trials)
    # A rough trial is short, and drift is small compared with its uncertainty.
    rough_count = sum(t.peak is not None and t.peak.is_rough for t in later_trials)
    full_count = len(later_trials) - pruned_count - rough_count
    weighted_trial_count = (
        full_count + pruned_count / PRUNED_TRIALS_DIVISOR + ROUGH_TRIAL_SHARE * rough_count
    )
    if weighted_trial_count < REFERENCE_INTERVAL_TRIALS:
        return None
    missing_references = MIN_REFERENCES - len(repeats)
    if not _can_measure_references(state, budget, elapsed_seconds, missing_references):
        return None
    return MeasureStep(
        Phase.REFERENCE, reference.settings, source_trial=state.find_configuration_number(reference)
    )


def _can_measure_references(
    state: State, budget: Budget, elapsed_seconds: float, missing_count: int
) -> bool:
    """True if the search is long enough for ``missing_count`` measurements of the reference and for the
    trials between them.
    """
    trials_between = (missing_count - 1) * REFERENCE_INTERVAL_TRIALS
    left_trials = budget.trials - len(state.list_counted_trials(include_running=True))
    # After the last trial, the search is over and the reference is not repeated.
    return missing_count <= 1 or (
        trials_between < left_trials
        and _has_time_for_trials(state, budget, elapsed_seconds, missing_count + trials_between)
    )


def _plan_ranking(state: State) -> ScheduleStep | None:
    return RankStep() if state.posterior is None and estimate_candidate_peaks(state) else None


def _plan_finals(state: State, budget: Budget, elapsed_seconds: float) -> ScheduleStep | None:
    if elapsed_seconds >= budget.time or state.list_started_trials(Phase.CONFIRM):
        return None
    # If the baseline misses the objective, the best trial is repeated several times in the same phase.
    finalists = state.exclude_outdated_faults(state.list_started_trials(Phase.FINALIST))
    measured_numbers = {trial.source_trial for trial in finalists}
    finalist_count = len(measured_numbers)
    trial_seconds = max(compute_average_trial_seconds(state), 1e-9)
    proof_seconds = compute_min_proof_seconds(state)
    # Finalists with imprecise peaks are measured again first, even if less time remains for the proof.
    proof_seconds *= SHORT_PROOF_SHARE if _has_rough_finalist(state) else 1.0
    fitting_trials = int((budget.time - elapsed_seconds - proof_seconds) / trial_seconds)
    # Repeats of the leaders take precedence over measurements that revert blocks of changes.
    fitting_trials = max(
        fitting_trials - RESERVED_BLOCKS, min(fitting_trials, MIN_FINALISTS - finalist_count), 0
    )
    available_trials = fitting_trials * max(1, len(state.active_beds)) + finalist_count
    max_finalists = min(available_trials, MAX_FINALISTS)
    # Repeating only one finalist would decide nothing.
    for finalist_number in (
        select_finalists(state, max_finalists, MIN_FINALISTS)
        if max_finalists >= MIN_FINALISTS
        else ()
    ):
        if finalist_number not in measured_numbers:
            return MeasureStep(
                Phase.FINALIST,
                state.find_trial(finalist_number).settings,
                source_trial=finalist_number,
            )
    return None


def _has_rough_finalist(state: State) -> bool:
    """True if at least one of the two best configurations has a rough peak (measured imprecisely)."""
    best_numbers = select_finalists(state, MIN_FINALISTS, MIN_FINALISTS)
    peaks = [state.find_trial(trial_number).peak for trial_number in best_numbers]
    return any(peak is not None and peak.is_rough for peak in peaks)


def _plan_simplification(
    state: State, budget: Budget, elapsed_seconds: float
) -> ScheduleStep | None:
    """Return a measurement of the winner without a block of changes that probably have no effect."""
    leader_number = find_leader(state)
    if (
        leader_number is None
        or state.posterior is None
        or state.list_started_trials(Phase.CONFIRM)
        or state.values
        or not baseline_meets_slo(state)
    ):
        return None
    simplification = find_simplification(state, leader_number)
    simplified_count = len(state.list_started_trials(Phase.SIMPLIFIED))
    if simplification is None or simplified_count > simplification.measured:
        return SimplifyStep(leader_number)
    needed_seconds = compute_average_trial_seconds(state) + compute_min_proof_seconds(state)
    # The first block contains settings with a low documented impact. The first block is measured even if
    # less time remains for the proof.
    needed_seconds = (
        needed_seconds
        if simplified_count
        else min(needed_seconds, max(MIN_PROOF_SECONDS, needed_seconds / MAX_SHORTENING_FACTOR))
    )
    latest_end = budget.time * (1.0 if simplified_count else MAX_OVERRUN_FACTOR)
    if (
        not simplification.reverted
        or simplified_count >= MAX_BLOCKS
        or elapsed_seconds + needed_seconds > latest_end
    ):
        return None
    return MeasureStep(Phase.SIMPLIFIED, simplification.settings, source_trial=leader_number)


def _plan_reproduction(state: State, budget: Budget, elapsed_seconds: float) -> ScheduleStep | None:
    """Return the next repeat if the baseline missed the objective.

    No gain over such a baseline can be computed, so these repeats use the time reserved for the proof.
    The baseline is measured again, because a disturbance may have caused its result. The best trial is
    then repeated until one repeat misses the objective, or enough repeats have met the objective.
    """
    trial_seconds = min(compute_average_trial_seconds(state), 2 * MIN_MEASUREMENT_SECONDS)
    if not baseline_misses_slo(state) or elapsed_seconds + trial_seconds > budget.time:
        return None
    baseline, challenger = find_baseline(state), find_best_trial(state)
    if challenger is None and (baseline is None or baseline.peak is None):
        return None
    baselines = state.exclude_outdated_faults(state.list_started_trials(Phase.BASELINE))
    if baseline is not None and _needs_more_trials(
        baselines, max(REQUIRED_REPRODUCTIONS, len(state.stacks) + 1)
    ):
        return MeasureStep(Phase.BASELINE, baseline.settings, source_trial=baseline.number)
    if challenger is None or _count_conclusive_trials(baselines) < REQUIRED_REPRODUCTIONS:
        return None
    finalists = state.exclude_outdated_faults(state.list_started_trials(Phase.FINALIST))
    repeats = [trial for trial in finalists if trial.source_trial == challenger]
    has_failed = not all(trial.meets_slo for trial in list_repeats(state, challenger))
    if has_failed or not _needs_more_trials(repeats, REQUIRED_REPRODUCTIONS):
        return None
    settings = state.find_trial(challenger).settings
    return MeasureStep(Phase.FINALIST, settings, source_trial=challenger)


def _needs_more_trials(started_trials: Sequence[Trial], needed_count: int) -> bool:
    """True if fewer than ``needed_count`` trials are conclusive, and a few more trials may be started."""
    return (
        _count_conclusive_trials(started_trials) < needed_count
        and len(started_trials) < needed_count + MAX_FAILED_CONFIRMATIONS
    )


def _count_conclusive_trials(started_trials: Sequence[Trial]) -> int:
    """Return the number of trials that show whether the objective is met, including running trials."""
    return sum(
        not (trial.is_unmeasured or (trial.peak is not None and trial.peak.is_unmet))
        for trial in started_trials
    )
