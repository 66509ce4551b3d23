"""Drift of the stack during a study, and differences between its test beds."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from autotune.estimate import Estimate
from autotune.optimize.bed_differences import BedReading
from autotune.optimize.drift import StudyDrift, estimate_drift
from autotune.study.ranking import REPEATED_PHASES, find_baseline, select_feasible_trials
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial

NO_SHIFT = Estimate(0.0, 0.0)  # the shift of a peak without drift and without a test bed's offset


def find_reference(state: State) -> Trial | None:
    """Return the configuration that is measured regularly to detect drift.

    The reference is the best configuration known before the search. A worse configuration would be less
    similar to the compared configurations, and would take longer to measure.
    """
    if references := state.list_finished_trials(Phase.REFERENCE):
        # All measurements of a series must use the same configuration.
        return state.find_trial(state.find_configuration_number(references[0]))
    presets = [
        t
        for t in select_feasible_trials(state.list_finished_trials(*OPENING_PHASES))
        if t.peak and not t.peak.is_incomplete
    ]
    usable_trials = (
        presets or select_feasible_trials(state.list_finished_trials(*COUNTED_PHASES))[:1]
    )
    return max(usable_trials, key=lambda t: state.normalize_peak(t).log_mean, default=None)


def estimate_study_drift(state: State) -> StudyDrift:
    """Return the drift of the stack since the study started, estimated from repeats of the reference.

    On several test beds, the shifts also include the differences between beds.
    """
    drifts_by_bed = estimate_bed_drifts(state)
    strongest_drift = max(drifts_by_bed.values(), key=lambda drift: drift.probability)
    shifts = {
        trial.number: _compute_shift(state, trial, drifts_by_bed[trial.bed])
        for trial in state.trials
        if trial.bed in drifts_by_bed
    }
    return replace(
        strongest_drift,
        bed_sds={bed: state.get_bed_offset(bed).sd for bed in state.beds},
        shifts={trial_number: shift for trial_number, shift in shifts.items() if shift != NO_SHIFT},
    )


def estimate_bed_drifts(state: State) -> dict[str | None, StudyDrift]:
    """Return the drift of each test bed, or of the only stack (``None``)."""
    reference = find_reference(state)
    peaks_by_bed: dict[str | None, dict[int, Estimate]] = {bed: {} for bed in state.stacks}
    trial_numbers_by_bed: dict[str | None, list[int]] = {bed: [] for bed in peaks_by_bed}
    for trial in state.trials:
        if trial.bed in trial_numbers_by_bed:
            trial_numbers_by_bed[trial.bed].append(trial.number)
    # The measurement that led to the selection of the reference is probably too high. Later measurements
    # would look like a decline, so the first measurement is excluded.
    for trial in select_feasible_trials(state.list_finished_trials(Phase.REFERENCE)):
        is_reference = reference and state.find_configuration_number(trial) == reference.number
        if is_reference and trial.bed in peaks_by_bed and trial.peak:
            peaks_by_bed[trial.bed][trial.number] = trial.peak.estimate
    return {
        bed: estimate_drift(peaks_by_bed[bed], trial_numbers_by_bed[bed]) for bed in peaks_by_bed
    }


def _compute_shift(state: State, trial: Trial, drift: StudyDrift) -> Estimate:
    offset, drift_shift = state.get_bed_offset(trial.bed), drift.shifts.get(trial.number, NO_SHIFT)
    return Estimate(drift_shift.log_mean + offset.log, hypot(drift_shift.sd, offset.excess_sd))


def list_bed_readings(state: State) -> list[BedReading]:
    """Return the readings that show differences between test beds.

    Readings that led to the selection of their configuration are excluded, because their peaks are
    probably too high. Peaks are corrected for the drift of their bed.
    """
    drifts, baseline = estimate_bed_drifts(state), find_baseline(state)
    return [
        BedReading(
            baseline.number
            if baseline and trial.phase is Phase.BASELINE
            else state.find_configuration_number(trial),
            trial.bed,
            trial.peak.estimate.ratio_to(drifts[trial.bed].shifts.get(trial.number, NO_SHIFT)),
        )
        for trial in select_feasible_trials(state.list_finished_trials(*REPEATED_PHASES))
        if trial.bed and trial.bed in drifts and trial.peak is not None
    ]
