"""Divide the time budget of a study: time for the search, time for the proof, time per measurement."""

from __future__ import annotations

from autotune.optimize import confirmation
from autotune.study.ranking import (
    REQUIRED_REPRODUCTIONS,
    baseline_misses_slo,
    find_baseline,
    find_best_trial,
    list_failed_baselines,
    list_repeats,
)
from autotune.study.study_state import COUNTED_PHASES, Phase, State
from autotune.target.model import Budget

# Maximum share of the time budget that may be reserved for finals and proof.
MAX_RESERVE_SHARE = 0.45
# A short proof shows a gain that multiplies the capacity. If the best capacity is at least
# LARGE_GAIN_FACTOR times the baseline's, at most the share LARGE_GAIN_RESERVE_SHARE is reserved.
LARGE_GAIN_FACTOR, LARGE_GAIN_RESERVE_SHARE = 3.0, 0.4
# If pages are slow, one measurement may take up to the time budget divided by this number. The rest of
# the budget allows a short search and the minimum number of pairs.
USUAL_MEASUREMENTS = 12
MIN_MEASUREMENT_SECONDS = 15.0  # a shorter measurement is too imprecise
# Seconds that the minimum number of pairs and the measurement of one block of changes need.
# MIN_PROOF_SECONDS are always reserved, up to MAX_PROOF_SHARE of the time budget.
MIN_PROOF_SECONDS = (2 * confirmation.MIN_PAIRS + 1) * MIN_MEASUREMENT_SECONDS
MAX_PROOF_SHARE = 0.6
# A pair starts only if it is expected to finish within this multiple of the time budget.
MAX_OVERRUN_FACTOR = 1.05
ROUGH_TRIAL_SHARE = 0.5  # duration of a rough trial, relative to a precise trial
# Numbers of finalists, and of measurements of the winner without a block of its changes, for which time
# is reserved during the search.
MIN_FINALISTS, RESERVED_BLOCKS = 2, 4
# Phases whose measurements leave the time that is reserved for the proof.
SEARCH_PHASES = COUNTED_PHASES | {Phase.REFERENCE}


def is_search_over(state: State, budget: Budget, elapsed_seconds: float) -> bool:
    """True if the search was stopped, finals have started, or no time is left for another trial."""
    final_trials = state.list_finished_trials(Phase.FINALIST, Phase.CONFIRM)
    return bool(final_trials or state.stop_reason or state.posterior) or not has_time_to_search(
        state, budget, elapsed_seconds
    )


def has_time_to_search(state: State, budget: Budget, elapsed_seconds: float) -> bool:
    """True if another trial fits before the time that is reserved for the proof."""
    counted_trials = len(state.list_counted_trials(include_running=True))
    # A trial that would not fit at the current pace is shortened (``compute_time_limit``) if possible.
    shortest_seconds = compute_shortest_seconds(state)
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
    share = LARGE_GAIN_RESERVE_SHARE if _shows_large_gain(state) else MAX_RESERVE_SHARE
    return min(needed_seconds, compute_max_reserve_seconds(budget, min_seconds, share))


def _shows_large_gain(state: State) -> bool:
    """True if the best capacity so far is at least ``LARGE_GAIN_FACTOR`` times the baseline's."""
    baseline, best_number = find_baseline(state), find_best_trial(state)
    if baseline is None or baseline.peak is None or best_number is None:
        return False
    best_peak = state.find_trial(best_number).peak
    return best_peak is not None and 0 < LARGE_GAIN_FACTOR * baseline.peak.peak <= best_peak.peak


def compute_max_reserve_seconds(
    budget: Budget,
    min_proof_seconds: float = MIN_PROOF_SECONDS,
    max_share: float = MAX_RESERVE_SHARE,
) -> float:
    """Return the maximum number of seconds that may be withheld from the search for finals and proof.

    ``min_proof_seconds`` is the duration of the shortest possible proof, and ``max_share`` the maximum
    share of the time budget.
    """
    return max(max_share * budget.time, min(min_proof_seconds, MAX_PROOF_SHARE * budget.time))


def compute_min_proof_seconds(state: State) -> float:
    """Return the seconds needed for the minimum number of pairs in the proof."""
    return (
        2
        * _count_measurements_per_bed(state, confirmation.MIN_PAIRS)
        * compute_average_trial_seconds(state)
    )


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


def compute_shortest_seconds(state: State) -> float:
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
        confirmations = state.exclude_outdated_faults(state.list_finished_trials(Phase.CONFIRM))
        missing_pairs = 2 * confirmation.MIN_PAIRS - len(confirmations)
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
    spare_seconds = remaining_seconds - compute_min_proof_seconds(state)
    if phase is Phase.FINALIST:
        # The missing finalists and one block of changes share the time before the proof.
        finalists = state.exclude_outdated_faults(state.list_finished_trials(Phase.FINALIST))
        missing_count = MIN_FINALISTS - len(finalists)
        spare_seconds /= _count_measurements_per_bed(state, max(0, missing_count) + 1)
    return max(
        MIN_MEASUREMENT_SECONDS,
        spare_seconds,
        _compute_repeat_share(state, phase, remaining_seconds) if is_reproduction else proof_share,
    )


def _is_reproduction(state: State, phase: Phase, budget: Budget, elapsed_seconds: float) -> bool:
    """True if a measurement in ``phase`` repeats a configuration because the baseline missed the
    objective.
    """
    if not baseline_misses_slo(state):
        return False
    # A baseline during the search is the first measurement of a test bed.
    is_repeated_baseline = phase is Phase.BASELINE and is_search_over(
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
