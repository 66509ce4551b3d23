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
from dataclasses import dataclass, field
from math import exp, log

from autotune.measure.capacity import SearchLimits
from autotune.optimize import confirmation
from autotune.optimize.drift import MIN_REFERENCES
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.ranking import (
    MIN_CONFIGURATIONS,
    REQUIRED_REPRODUCTIONS,
    baseline_meets_slo,
    baseline_misses_slo,
    collect_proof_measurements,
    estimate_candidate_peaks,
    fails_in_proof,
    find_baseline,
    find_best_trial,
    find_doubtful_pruning,
    find_leader,
    find_reference,
    find_rough_incumbent,
    find_simplification,
    is_exploring,
    is_undecided,
    list_confirmations,
    list_failed_baselines,
    list_measured_trials,
    list_repeats,
    select_feasible_trials,
    select_finalist_pair,
    select_finalists,
)
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial
from autotune.target.model import Budget

# There are two finalists, or more if time allows and their estimates overlap.
MIN_FINALISTS = 2
MAX_FINALISTS = 4
# Number of search trials between two measurements of the reference. Pruned trials are short and less
# sensitive to drift, so PRUNED_TRIALS_DIVISOR pruned trials count as one.
REFERENCE_INTERVAL_TRIALS = 6
PRUNED_TRIALS_DIVISOR = 3
# Maximum share of the time budget that may be reserved for finals and proof.
MAX_RESERVE_SHARE = 0.45
# If pages are slow, one measurement may take up to the time budget divided by this number. The rest of
# the budget allows a short search and the minimum number of pairs.
USUAL_MEASUREMENTS = 12
MIN_MEASUREMENT_SECONDS = 15.0  # a shorter measurement is too imprecise
# Seconds that the minimum number of pairs and the measurement of one block of changes need.
# MIN_PROOF_SECONDS are always reserved, up to MAX_PROOF_SHARE of the time budget.
MIN_PROOF_SECONDS = (2 * confirmation.MIN_PAIRS + 1) * MIN_MEASUREMENT_SECONDS
MAX_PROOF_SHARE = 0.6
# A measurement may be shortened to the average duration of a trial, divided by this number.
MAX_SHORTENING_FACTOR = 3.0
# A pair starts only if it is expected to finish within this multiple of the time budget.
MAX_OVERRUN_FACTOR = 1.05
# share of the usual proof time that remains if an imprecise finalist is measured again
SHORT_PROOF_SHARE = 0.75
ROUGH_TRIAL_SHARE = 0.5  # duration of a rough trial, relative to a precise trial
MAX_PAIRS = 6
# Without `load: {today: …}`, the proof measures latency at this share of the baseline's capacity.
TODAY_CAPACITY_SHARE = 0.4
MAX_RUNNER_UP_PAIRS = 2
# Numbers of measurements of the winner without a block of its changes. RESERVED_BLOCKS are reserved
# during the search, and MIN_BLOCKS during the comparison with the best preset. MAX_BLOCKS is the
# maximum.
RESERVED_BLOCKS, MIN_BLOCKS, MAX_BLOCKS = 4, 2, 8
# Maximum number of measurements that revert a single change, and the smallest possible loss (as a log
# ratio) that justifies such a measurement.
MAX_REVERSALS, MIN_UNCERTAIN_LOSS = 2, 0.1
# Maximum number of measurements in a row that show nothing before a change is reverted. Another one
# would stop the study (`trial.MAX_FAULTS`), which needs no such measurement.
MAX_UNMEASURED_REVERSALS = 2
# Maximum number of failed confirmation measurements that are repeated. Such measurements fail, for
# example, if the load generator gets too little CPU time.
MAX_FAILED_CONFIRMATIONS = 2
# Maximum share of the trial budget for configurations that are known before the search, so that enough
# trials remain for the search.
MAX_OPENING_SHARE = 0.5
# Phases whose measurements leave the time that is reserved for the proof.
SEARCH_PHASES = COUNTED_PHASES | {Phase.REFERENCE}


@dataclass(frozen=True)
class MeasureStep:
    """Measure these settings; ``suggested`` contains the values from the sampler.

    ``replaced_trial`` is the unfinished trial of another test bed that this measurement repeats.
    ``bindings`` are the changes that rules required when the measurement was first started.
    """

    phase: Phase
    settings: Settings
    source_trial: int | None = None
    suggestion_number: int | None = None
    suggested: Settings = field(default_factory=dict)
    replaced_trial: int | None = None
    bindings: tuple[str, ...] = ()


@dataclass(frozen=True)
class WaitStep:
    """Wait until a trial of another test bed is finished."""


@dataclass(frozen=True)
class SuggestStep:
    """Request a configuration from the sampler and measure it."""


@dataclass(frozen=True)
class RankStep:
    """Rank the measured configurations with the model."""


@dataclass(frozen=True)
class ConcludeStep:
    """Conclude the study, because nothing is left to measure."""


@dataclass(frozen=True)
class SimplifyStep:
    """Select the changes of this trial that have no effect according to the model."""

    trial_number: int


@dataclass(frozen=True)
class EstimateCostsStep:
    """Let the model estimate the cost of reverting each change of this trial."""

    trial_number: int


ScheduleStep = (
    MeasureStep
    | SuggestStep
    | RankStep
    | SimplifyStep
    | EstimateCostsStep
    | WaitStep
    | ConcludeStep
)


def select_next_step(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float, bed: str | None = None
) -> ScheduleStep:
    """Return the next step, for ``bed`` if there are several test beds.

    ``elapsed_seconds`` is the time spent on the study in seconds, over all sessions.
    """
    return (
        _plan_interrupted_trial(state, bed)
        or _plan_opening(state, space, budget, elapsed_seconds, bed)
        or _plan_search(state, space, budget, elapsed_seconds, bed)
        or _plan_wait(state, *COUNTED_PHASES, Phase.REFERENCE)
        or _plan_ranking(state)
        or _plan_finals(state, budget, elapsed_seconds)
        or _plan_wait(state, Phase.FINALIST)
        or _plan_runner_up(state, budget, elapsed_seconds, bed)
        or _plan_wait(state, Phase.RUNNER_UP)
        or _plan_wait(state, Phase.SIMPLIFIED)
        or _plan_simplification(state, budget, elapsed_seconds)
        or _plan_reversal(state, space, budget, elapsed_seconds)
        or _plan_wait(state, Phase.EXPLAIN)
        or _plan_reproduction(state, budget, elapsed_seconds)
        or _plan_wait(state, Phase.FINALIST, Phase.BASELINE)
        or _plan_confirmation(state, budget, elapsed_seconds, bed)
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
        return MeasureStep(
            last_trial.phase,
            last_trial.settings,
            last_trial.source_trial,
            last_trial.suggestion_number,
            last_trial.suggested,
            replaced_trial=last_trial.replaced_trial,
            bindings=last_trial.bindings,
        )
    for trial in _find_abandoned_trials(state):
        return MeasureStep(
            trial.phase,
            trial.settings,
            trial.source_trial,
            trial.suggestion_number,
            trial.suggested,
            replaced_trial=trial.number,
            bindings=trial.bindings,
        )
    return None


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


def _plan_opening(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    """Return a measurement of the next configuration that is known before the search, so that each
    deployment is tried early.

    Advised and published configurations are tried only if their deployment may be the best. The user's
    configurations follow the presets, and the winners of an earlier study come last. A configuration
    with the same effect as an earlier configuration is skipped.
    """
    if not _has_time_to_search(state, budget, elapsed_seconds):
        return None
    # A baseline without a result is measured again if the benchmark failed.
    opening_trials = [
        t
        for phase in OPENING_PHASES
        for t in state.trials_by_phase.get(phase, ())
        if not (t.is_unmeasured and phase is Phase.BASELINE)
    ]
    if not any(t.bed == bed and t.phase is Phase.BASELINE for t in opening_trials):
        return MeasureStep(Phase.BASELINE, space.baseline)
    tried_deployments = [(t.phase, _select_deployment(t.settings, space)) for t in opening_trials]
    max_tried_settings = max(3, int(MAX_OPENING_SHARE * budget.trials))
    tried_settings, clamped_space = list[Settings](), space.with_clamps(state.clamps)
    tried_effects: list[Settings] = []  # effective settings of the configurations tried so far
    for phase, settings in _list_preset_settings(space):
        active_settings, effective_settings = (
            space.select_active_settings(settings),
            space.select_active_settings(clamped_space.get_effective_settings(settings)),
        )
        if active_settings in tried_settings:
            continue
        is_new = (
            phase,
            _select_deployment(settings, space),
        ) not in tried_deployments and effective_settings not in tried_effects
        tried_settings.append(active_settings)
        tried_effects.append(effective_settings)
        is_required = phase in (Phase.BASELINE, Phase.RECOMMENDED)
        if (
            is_new
            and len(tried_settings) <= max_tried_settings
            and (is_required or _may_deployment_be_best(state, space, settings))
        ):
            return MeasureStep(phase, settings)
    untried_settings = _find_untried_settings(state, space, clamped_space, tried_settings)
    return MeasureStep(Phase.TRY_FIRST, untried_settings) if untried_settings is not None else None


def _find_untried_settings(
    state: State, space: SearchSpace, clamped_space: SearchSpace, tried_settings: Sequence[Settings]
) -> Settings | None:
    """Return the next configuration of the user or of an earlier study, or ``None`` after the last
    configuration.

    Configurations with the same effect as a measured configuration are left out. ``clamped_space`` is
    the space with the clamps from deployments.
    """
    pending_candidates, seen_settings = list[Settings](), list(tried_settings)
    for changed_settings in (*space.try_first, *state.transferred):
        settings = {**space.baseline, **changed_settings}
        if (active_settings := space.select_active_settings(settings)) not in seen_settings:
            seen_settings.append(active_settings)
            pending_candidates.append(settings)

    def find_effective_settings(settings: Settings) -> Settings:
        return space.select_active_settings(clamped_space.get_effective_settings(settings))

    measured_effects = [
        find_effective_settings(t.settings) for t in state.list_started_trials(*OPENING_PHASES)
    ]
    for trial in sorted(state.list_started_trials(Phase.TRY_FIRST), key=lambda trial: trial.number):
        # The trial measured the first configuration that was new when the trial started. Clamps that
        # were found later may have made the configuration a duplicate.
        first_new_index = next(
            (
                n
                for n, s in enumerate(pending_candidates)
                if find_effective_settings(s) not in measured_effects
            ),
            len(pending_candidates),
        )
        earlier_candidates = pending_candidates[: first_new_index + 1]
        if earlier_candidates:
            shared_counts = [
                _count_shared_settings(trial.settings, s, clamped_space.get_effective_settings(s))
                for s in earlier_candidates
            ]
            pending_candidates = pending_candidates[shared_counts.index(max(shared_counts)) + 1 :]
    return next(
        (s for s in pending_candidates if find_effective_settings(s) not in measured_effects), None
    )


def _count_shared_settings(settings: Settings, *others: Settings) -> int:
    """Return the maximum number of values that ``settings`` shares with any of ``others``."""
    return sum(any(other.get(n) == value for other in others) for n, value in settings.items())


def _may_deployment_be_best(state: State, space: SearchSpace, settings: Settings) -> bool:
    """True if the deployment of ``settings`` may be the best, according to measurements so far."""
    deployment = _select_deployment(settings, space)
    usable_trials = select_feasible_trials(state.list_finished_trials(*COUNTED_PHASES))
    bed_factors = {
        bed: exp(-state.get_bed_offset(bed).log) for bed in {t.bed for t in usable_trials}
    }
    lower_bounds = [
        bed_factors[t.bed] * t.peak.low
        for t in usable_trials
        if t.peak and not t.peak.is_incomplete
    ]
    upper_bounds = [
        bed_factors[t.bed] * t.peak.high
        for t in usable_trials
        if t.peak and _select_deployment(t.settings, space) == deployment
    ]
    return not lower_bounds or max(upper_bounds, default=0.0) >= max(lower_bounds)


def _list_preset_settings(space: SearchSpace) -> list[tuple[Phase, Settings]]:
    presets = ((Phase(preset_name), settings) for preset_name, settings in space.iterate_presets())
    return [(Phase.BASELINE, space.baseline), *presets]


def _select_deployment(settings: Settings, space: SearchSpace) -> Settings:
    """Return the settings that choose the software of each tier."""
    return {name: settings[name] for name in space.deployments[0] if name in settings}


def _plan_search(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    if not space.tunable_dimensions or _is_search_over(state, budget, elapsed_seconds):
        return None
    return (
        _plan_reference(state, budget, elapsed_seconds, bed)
        or _plan_preset_repeat(state)
        or _plan_refinement(state)
        or SuggestStep()
    )


def _plan_refinement(state: State) -> ScheduleStep | None:
    """Return a step that repeats the measurement of a roughly measured incumbent, once the best peak no
    longer rises by large factors.
    """
    rough_incumbent = None if is_exploring(state) else find_rough_incumbent(state)
    return (
        MeasureStep(
            rough_incumbent.phase, rough_incumbent.settings, source_trial=rough_incumbent.number
        )
        if rough_incumbent
        else None
    )


def _plan_preset_repeat(state: State) -> ScheduleStep | None:
    """Return a repeat of a preset whose pruning is in doubt after a later measurement of the incumbent.

    The study compares its winner with the best preset, so that preset must be fully measured.
    """
    doubtful_trial = find_doubtful_pruning(state, SearchLimits.early_prune_probability)
    return (
        MeasureStep(
            doubtful_trial.phase, doubtful_trial.settings, source_trial=doubtful_trial.number
        )
        if doubtful_trial
        else None
    )


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
    needed_seconds = (missing_count + trials_between) * compute_average_trial_seconds(state)
    needed_seconds /= max(1, len(state.active_beds))
    left_trials = budget.trials - len(state.list_counted_trials(include_running=True))
    left_seconds = budget.time - compute_reserve_seconds(state, budget) - elapsed_seconds
    # After the last trial, the search is over and the reference is not repeated.
    return missing_count <= 1 or (trials_between < left_trials and needed_seconds <= left_seconds)


def _plan_ranking(state: State) -> ScheduleStep | None:
    return RankStep() if state.posterior is None and estimate_candidate_peaks(state) else None


def _is_search_over(state: State, budget: Budget, elapsed_seconds: float) -> bool:
    """True if the search was stopped, finals have started, or no time is left for another trial."""
    final_trials = state.list_finished_trials(Phase.FINALIST, Phase.CONFIRM)
    return bool(final_trials or state.stop_reason or state.posterior) or not _has_time_to_search(
        state, budget, elapsed_seconds
    )


def _has_time_to_search(state: State, budget: Budget, elapsed_seconds: float) -> bool:
    """True if another trial fits before the time that is reserved for the proof."""
    counted_trials = len(state.list_counted_trials(include_running=True))
    # A trial that would not fit at the current pace is shortened (``compute_time_limit``) if possible.
    shortest_seconds = _compute_shortest_seconds(state)
    min_trial_seconds = min(compute_average_trial_seconds(state), 2 * shortest_seconds)
    # As long as only the baseline is measured, there is no gain to prove.
    reserved_seconds = (
        compute_reserve_seconds(state, budget) if counted_trials > 1 else 2 * shortest_seconds
    )
    fits_budget = elapsed_seconds + min_trial_seconds <= budget.time - reserved_seconds
    return counted_trials == 0 or (counted_trials < budget.trials and fits_budget)


def compute_reserve_seconds(state: State, budget: Budget) -> float:
    """Return the seconds that are reserved to repeat the leaders, and to simplify and prove the
    winner.
    """
    if baseline_misses_slo(state):
        # The first measurement of the baseline counts as one of the needed failures.
        reproduction_seconds = (2 * REQUIRED_REPRODUCTIONS - 1) * compute_average_trial_seconds(
            state
        )
        return min(
            reproduction_seconds + MIN_MEASUREMENT_SECONDS, compute_max_reserve_seconds(budget)
        )
    trial_count = _count_measurements_per_bed(state, MIN_FINALISTS) + RESERVED_BLOCKS
    proof_seconds = compute_min_proof_seconds(state)
    needed_seconds = trial_count * compute_average_trial_seconds(state) + proof_seconds
    min_seconds = proof_seconds if state.values else MIN_PROOF_SECONDS
    return min(needed_seconds, compute_max_reserve_seconds(budget, min_seconds))


def compute_max_reserve_seconds(
    budget: Budget, min_proof_seconds: float = MIN_PROOF_SECONDS
) -> float:
    """Return the maximum number of seconds that may be withheld from the search for finals and proof.

    ``min_proof_seconds`` is the duration of the shortest possible proof.
    """
    return max(
        MAX_RESERVE_SHARE * budget.time, min(min_proof_seconds, MAX_PROOF_SHARE * budget.time)
    )


def compute_min_proof_seconds(state: State) -> float:
    """Return the seconds needed for the minimum number of pairs in the proof."""
    return (
        2
        * _count_measurements_per_bed(state, confirmation.MIN_PAIRS)
        * compute_average_trial_seconds(state)
    )


def select_today_rate(state: State, phase: Phase, today_rate: float | None) -> float | None:
    """Return the rate in requests/s at which a measurement also measures the latency; ``None`` if
    latency is not measured.

    The proof uses the target's rate, or else a share of the baseline's capacity. `measure` has no
    baseline, so the command uses only the target's rate.
    """
    if phase not in (Phase.CONFIRM, Phase.MEASURE) or state.values:
        return None
    baseline = find_baseline(state)
    if today_rate is not None or phase is Phase.MEASURE or baseline is None:
        return today_rate
    if baseline.peak is None or not baseline.meets_slo:
        return None
    return float(f"{TODAY_CAPACITY_SHARE * baseline.peak.peak:.3g}")


def compute_average_trial_seconds(state: State) -> float:
    """Return the average seconds per trial; a rough trial counts as ``ROUGH_TRIAL_SHARE`` of a trial.

    The finals and the proof measure precisely, so rough trials must not shorten the time reserved for
    precise measurements. Each call of a benchmark command counts as a trial, because only the first
    measurement of the baseline may need several calls.
    """
    spent_seconds = sum(state.bed_seconds.values()) or state.elapsed_seconds
    rough_count = sum(trial.peak is not None and trial.peak.is_rough for trial in state.trials)
    full_count = state.measured_count - (1.0 - ROUGH_TRIAL_SHARE) * rough_count
    if state.values:
        full_count = sum(map(len, state.values.values()))
    return spent_seconds / full_count if full_count else 0.0


def _compute_shortest_seconds(state: State) -> float:
    """Return the duration to which a measurement can be shortened; a benchmark command always takes its
    usual time.
    """
    return compute_average_trial_seconds(state) if state.values else MIN_MEASUREMENT_SECONDS


def _count_measurements_per_bed(state: State, measurement_count: int) -> int:
    """Return the number of measurements on the busiest bed if ``measurement_count`` measurements are
    shared among the active beds.
    """
    return -(-measurement_count // max(1, len(state.active_beds)))


def compute_time_limit(state: State, phase: Phase, budget: Budget, elapsed_seconds: float) -> float:
    """Return the maximum duration of a measurement in seconds.

    The search does not use the time that is reserved for the proof. In the proof, the minimum number of
    measurements share the reserved time. If the baseline missed the objective, the repeats that an
    improvement needs share the time instead.
    """
    remaining_seconds = budget.time - elapsed_seconds
    if phase is Phase.CONFIRM:
        missing_pairs = 2 * confirmation.MIN_PAIRS - len(state.list_finished_trials(Phase.CONFIRM))
        return max(
            MIN_MEASUREMENT_SECONDS,
            remaining_seconds / max(1, _count_measurements_per_bed(state, missing_pairs)),
        )
    is_reproduction = _is_reproduction(state, phase, budget, elapsed_seconds)
    if phase in SEARCH_PHASES and not is_reproduction:
        # The first measurement must leave enough time for at least one more measurement.
        first_trial_reserve = max(
            compute_max_reserve_seconds(budget), MIN_PROOF_SECONDS + 2 * MIN_MEASUREMENT_SECONDS
        )
        reserved_seconds = (
            compute_reserve_seconds(state, budget)
            if state.list_finished_trials(*COUNTED_PHASES)
            else first_trial_reserve
        )
        return max(MIN_MEASUREMENT_SECONDS, remaining_seconds - reserved_seconds)
    # If time is short, a measurement that reverts changes may take as long as a measurement in the
    # proof.
    proof_share = remaining_seconds * MIN_MEASUREMENT_SECONDS / MIN_PROOF_SECONDS
    return max(
        MIN_MEASUREMENT_SECONDS,
        remaining_seconds - compute_min_proof_seconds(state),
        _compute_repeat_share(state, phase, remaining_seconds) if is_reproduction else proof_share,
    )


def _is_reproduction(state: State, phase: Phase, budget: Budget, elapsed_seconds: float) -> bool:
    """True if a measurement in ``phase`` repeats a configuration because the baseline missed the
    objective.
    """
    if not baseline_misses_slo(state):
        return False
    # A baseline during the search is the first measurement of a test bed.
    is_repeated_baseline = phase is Phase.BASELINE and _is_search_over(
        state, budget, elapsed_seconds
    )
    return is_repeated_baseline or phase is Phase.FINALIST


def _compute_repeat_share(state: State, phase: Phase, remaining_seconds: float) -> float:
    """Return the seconds for one repeat if all repeats that an improvement needs share the time.

    Repeats of the baseline get more time, because a search must reach a very low rate to show that no
    rate meets the objective. For the best trial, one rate that meets it is enough.
    """
    challenger = find_best_trial(state)
    repeat_count = (
        len(list_repeats(state, challenger)) if challenger is not None else REQUIRED_REPRODUCTIONS
    )
    missing_repeats = max(0, REQUIRED_REPRODUCTIONS - repeat_count)
    missing_baselines = max(0, REQUIRED_REPRODUCTIONS - len(list_failed_baselines(state)))
    if phase is not Phase.BASELINE:
        missing_count = missing_baselines + missing_repeats
        return remaining_seconds / _count_measurements_per_bed(state, max(1, missing_count))
    repeat_seconds = min(compute_average_trial_seconds(state), 2 * MIN_MEASUREMENT_SECONDS)
    remaining_seconds -= _count_measurements_per_bed(state, missing_repeats) * repeat_seconds
    return remaining_seconds / _count_measurements_per_bed(state, max(1, missing_baselines))


def _plan_finals(state: State, budget: Budget, elapsed_seconds: float) -> ScheduleStep | None:
    if elapsed_seconds >= budget.time or state.list_started_trials(Phase.CONFIRM):
        return None
    # If the baseline misses the objective, the best trial is repeated several times in the same phase.
    measured_numbers = {t.source_trial for t in state.list_started_trials(Phase.FINALIST)}
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
    simplification = find_simplification(state, leader_number)
    simplified_count = len(state.list_started_trials(Phase.SIMPLIFIED))
    if (
        leader_number is None
        or state.posterior is None
        or state.list_started_trials(Phase.CONFIRM)
        or state.values
    ):
        return None
    if not baseline_meets_slo(state):
        return None
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


def _plan_reversal(
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


def _plan_reproduction(state: State, budget: Budget, elapsed_seconds: float) -> ScheduleStep | None:
    """Return the next repeat if the baseline missed the objective.

    No gain over such a baseline can be computed, so these repeats use the time reserved for the proof.
    The baseline is measured again, because a disturbance may have caused its result. The best trial is
    then repeated until one repeat misses the objective, or enough repeats have met the objective.
    """
    trial_seconds = min(compute_average_trial_seconds(state), 2 * MIN_MEASUREMENT_SECONDS)
    if (
        state.values
        or not baseline_misses_slo(state)
        or elapsed_seconds + trial_seconds > budget.time
    ):
        return None
    baseline, challenger = find_baseline(state), find_best_trial(state)
    baselines = state.list_started_trials(Phase.BASELINE)
    if baseline is not None and _needs_more_trials(
        baselines, max(REQUIRED_REPRODUCTIONS, len(state.stacks) + 1)
    ):
        return MeasureStep(Phase.BASELINE, baseline.settings, source_trial=baseline.number)
    if challenger is None or _count_conclusive_trials(baselines) < REQUIRED_REPRODUCTIONS:
        return None
    repeats = [t for t in state.list_started_trials(Phase.FINALIST) if t.source_trial == challenger]
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


def _plan_confirmation(
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
        trial_seconds if has_min_pairs else min(trial_seconds, _compute_shortest_seconds(state))
    )
    latest_end = (
        budget.time
        if has_min_pairs
        else min(budget.time + pair_seconds, MAX_OVERRUN_FACTOR * budget.time)
    )
    is_late = elapsed_seconds + pair_seconds >= latest_end and proof.measurement_count >= 2
    is_proof_over = (
        is_late or _count_started_pairs(state, Phase.CONFIRM) >= MAX_PAIRS or proof.is_decided
    )
    is_proof_over = is_proof_over or fails_in_proof(state, challenger)
    return _plan_alternation(
        state, Phase.CONFIRM, challenger, baseline.number, bed, is_stage_over=is_proof_over
    )


def _plan_runner_up(
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
    reserved_seconds = compute_min_proof_seconds(
        state
    ) + MIN_BLOCKS * compute_average_trial_seconds(state)
    is_comparison_over = (
        elapsed_seconds + 2 * compute_average_trial_seconds(state) + reserved_seconds > budget.time
    )
    is_comparison_over = (
        is_comparison_over or _count_started_pairs(state, Phase.RUNNER_UP) >= MAX_RUNNER_UP_PAIRS
    )
    is_comparison_over = is_comparison_over or not is_undecided(state, *finalist_pair)
    return _plan_alternation(
        state, Phase.RUNNER_UP, *finalist_pair, bed, is_stage_over=is_comparison_over
    )


def _count_started_pairs(state: State, phase: Phase) -> int:
    """Return the number of pairs that have started, including unfinished pairs."""
    started_trials = state.list_started_trials(phase)
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
    measures its own pairs.
    """
    finished_trials = [trial for trial in state.list_finished_trials(phase) if trial.bed == bed]
    failed_count = len(finished_trials) - len(select_feasible_trials(finished_trials))
    confirmations = list_confirmations(state, first_number, phase, bed)
    if failed_count > MAX_FAILED_CONFIRMATIONS or (len(confirmations) % 2 == 0 and is_stage_over):
        return None
    # The second measurement of a pair is the other side. The next pair starts with the side that ended
    # the previous pair, so that steady drift cancels out.
    ended_with_first = bool(confirmations) and confirmations[-1].is_winner
    is_half_measured = len(confirmations) % 2 == 1
    next_number = first_number if ended_with_first is not is_half_measured else second_number
    return MeasureStep(phase, state.find_trial(next_number).settings, source_trial=next_number)
