"""The incumbent of a search: the peak to beat, and the trials to measure again because of it."""

from __future__ import annotations

from dataclasses import replace
from math import log

from autotune.estimate import Estimate
from autotune.optimize.ranking import compute_win_probability
from autotune.study.ranking import (
    estimate_configurations,
    group_repeats,
    list_measured_trials,
    select_feasible_trials,
)
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial

# The search explores as long as the last EXPLORATION_TRIALS configurations raised the best peak by
# EXPLORATION_FACTOR or more.
EXPLORATION_FACTOR, EXPLORATION_TRIALS = 1.5, 4
# an incumbent is measured again if the sd of its log peak exceeds this value
MAX_INCUMBENT_SD = 0.08


def find_incumbent(state: State) -> Estimate | None:
    """Return the peak to beat: the peak of the best configuration so far.

    Repeats of this configuration that detect drift are included. A lucky first measurement therefore
    does not prune an equal candidate. Pruned trials are excluded, because their peak is only an upper
    bound.
    """
    _, peak = _find_highest_trial(state)
    return peak


def find_incumbent_number(state: State) -> int | None:
    """Return the number of the configuration with the peak to beat."""
    incumbent_number, _ = _find_highest_trial(state)
    return incumbent_number


def find_rough_incumbent(state: State) -> Trial | None:
    """Return the incumbent if its peak is rough (measured imprecisely) and was not measured again.

    The best of several rough peaks is probably too high, and would prune configurations that are
    better.
    """
    incumbent_number, peak = _find_highest_trial(state)
    if incumbent_number is None or peak is None or peak.sd <= MAX_INCUMBENT_SD:
        return None
    repeated_trials = (
        t for t in state.list_started_trials(*COUNTED_PHASES) if t.source_trial == incumbent_number
    )
    trial = state.find_trial(incumbent_number)
    is_rough = trial.peak is not None and trial.peak.is_rough
    # The baseline is measured again in the proof.
    is_repeatable = trial.phase is not Phase.BASELINE and next(repeated_trials, None) is None
    return trial if is_rough and is_repeatable else None


def _find_highest_trial(state: State) -> tuple[int | None, Estimate | None]:
    """Return the number and the peak of the best configuration that was not pruned."""
    peak_by_trial = _estimate_full_trials(state)
    return max(peak_by_trial.items(), key=lambda item: item[1].log_mean, default=(None, None))


def _estimate_full_trials(state: State) -> dict[int, Estimate]:
    """Return the peaks of fully measured configurations, pooled with repeats that detect drift."""
    full_trials = [t for t in list_measured_trials(state) if t.peak and not t.peak.is_incomplete]
    peak_by_trial, reference_repeats = (
        estimate_configurations(state, full_trials),
        group_repeats(state, Phase.REFERENCE),
    )
    pooled_peaks = {
        n: Estimate.pool([peak_by_trial[n], *repeated_peaks])
        for n, repeated_peaks in reference_repeats.items()
        if n in peak_by_trial
    }
    return peak_by_trial | pooled_peaks


def is_exploring(state: State) -> bool:
    """True if the last ``EXPLORATION_TRIALS`` raised the best peak by ``EXPLORATION_FACTOR`` or more.

    While peaks rise so fast, precise measurements would not change which configuration is tried
    next.
    """
    peaks = [
        (trial.number, state.normalize_peak(trial).log_mean)
        for trial in list_measured_trials(state)
        if trial.peak and not trial.peak.is_incomplete
    ]
    last_numbers = {
        trial.number
        for trial in state.list_finished_trials(*COUNTED_PHASES)[1:][-EXPLORATION_TRIALS:]
    }
    earlier_peaks = [
        log_peak for trial_number, log_peak in peaks if trial_number not in last_numbers
    ]
    newer_peaks = [log_peak for trial_number, log_peak in peaks if trial_number in last_numbers]
    return bool(earlier_peaks and newer_peaks) and max(newer_peaks) - max(earlier_peaks) >= log(
        EXPLORATION_FACTOR
    )


def find_doubtful_pruning(state: State, min_probability: float) -> Trial | None:
    """Return a pruned preset that may be better than the incumbent, because later measurements lowered
    the incumbent's peak.

    The preset beats the current incumbent with a probability of at least ``min_probability``. A
    doubtful preset is repeated only once, whatever the result.
    """
    repeated_trial_numbers = {
        state.find_configuration_number(t)
        for t in state.list_started_trials(*OPENING_PHASES)
        if t.source_trial is not None
    }
    pruned_trials = [
        (trial, replace(state.normalize_peak(trial), sd=trial.peak.upper_sd))
        for trial in select_feasible_trials(state.list_finished_trials(*OPENING_PHASES))
        if trial.peak
        and trial.peak.is_pruned
        and state.find_configuration_number(trial) not in repeated_trial_numbers
    ]
    # The incumbent is expensive to compute and rarely needed for this decision.
    incumbent = find_incumbent(state) if pruned_trials else None
    doubtful_trials = (
        trial
        for trial, upper_bound in pruned_trials
        if incumbent and compute_win_probability(upper_bound, incumbent) >= min_probability
    )
    return next(doubtful_trials, None)
