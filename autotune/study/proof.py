"""The proof of a winner: its measurements in pairs with the baseline, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.estimate import Estimate
from autotune.optimize.confirmation import Gain, Proof, SideMeasurement
from autotune.study.ranking import (
    REPEATED_PHASES,
    REQUIRED_REPRODUCTIONS,
    baseline_meets_slo,
    baseline_misses_slo,
    estimate_repeat_noise,
    find_best_trial,
    get_model_noise,
    list_failed_baselines,
    list_repeats,
)
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import Verdict

# If the capacities of a configuration differ by more than this factor, the servers are too unreliable for
# any claim.
MAX_REPRODUCTION_RATIO = 3.0


def list_confirmations(
    state: State, challenger: int, phase: Phase = Phase.CONFIRM, bed: str | None = None
) -> list[SideMeasurement]:
    """Return the alternating measurements so far in order, from one test bed or from the only stack.
    Measurements in which no rate met the objective are left out: their peaks are rough guesses.

    The sds include the noise of the study: the model's noise is added, and each sd is at least the
    spread of repeats. The sd of values from a benchmark command already includes all of their noise
    (`measure.repeats`).
    """
    model_noise = repeat_noise = 0.0
    if not state.values:
        model_noise, repeat_noise = (
            get_model_noise(state),
            estimate_repeat_noise(state, *REPEATED_PHASES),
        )
    measured_trials = [
        trial for trial in state.list_finished_trials(phase) if trial.meets_slo and trial.bed == bed
    ]
    peaks_with_trials = [
        (trial, _remove_bed_offset(state, trial).widen_by_noise(model_noise))
        for trial in _select_pairs(state, measured_trials, challenger, bed)
    ]
    return [
        SideMeasurement(
            state.find_configuration_number(trial) == challenger,
            replace(peak, sd=max(peak.sd, repeat_noise)),
        )
        for trial, peak in peaks_with_trials
    ]


def _select_pairs(
    state: State, trials: list[Trial], challenger: int, bed: str | None
) -> list[Trial]:
    """Return the alternating measurements in pairs of both sides, and the first half of an unfinished
    pair.

    Both measurements of a pair are in the same section between long pauses, because a later second
    measurement would include the drift. A measurement is left out if no measurement of the other side
    follows it in its section.
    """
    pause_numbers = [pause.after_trial for pause in state.pauses if pause.bed in (None, bed)]

    def describe(trial: Trial) -> tuple[int, bool]:
        """Return the number of pauses before a measurement, and true for the challenger."""
        earlier_pauses = sum(number < trial.number for number in pause_numbers)
        return earlier_pauses, state.find_configuration_number(trial) == challenger

    paired_trials: list[Trial] = []
    first_half: Trial | None = None
    for trial in trials:
        section, is_challenger = describe(trial)
        if first_half is not None and describe(first_half) == (section, not is_challenger):
            paired_trials += (first_half, trial)
            first_half = None
        else:
            first_half = trial
    if first_half is not None and describe(first_half)[0] == len(pause_numbers):
        paired_trials.append(first_half)
    return paired_trials


def list_proof_failures(state: State) -> list[Trial]:
    """Return the measurements of the proof in which a configuration failed or missed the objective.

    Benchmark failures and insufficient load are excluded, because the configuration did not cause them.
    So is a search that ran out of time, because a lower rate might have met the objective.
    """
    return [
        trial
        for trial in state.list_finished_trials(Phase.CONFIRM)
        if not trial.is_feasible and not trial.is_unmeasured
    ]


def fails_in_proof(state: State, challenger: int) -> bool:
    """True if the winner fails in the proof more often than the baseline.

    The winner's other measurements then prove nothing, because a random disturbance would affect winner
    and baseline equally often.
    """
    proof_failures = list_proof_failures(state)
    winner_failures = sum(
        state.find_configuration_number(trial) == challenger for trial in proof_failures
    )
    return 2 * winner_failures > len(proof_failures)


def _keep_complete_pairs(measurements: list[SideMeasurement]) -> list[SideMeasurement]:
    return measurements[: len(measurements) // 2 * 2]


def _remove_bed_offset(state: State, trial: Trial) -> Estimate:
    """Return a peak without its test bed's offset, for comparison with peaks on other beds.

    The offset's uncertainty is excluded, because both measurements of a pair are on the same bed and
    their ratio is not affected.
    """
    assert trial.peak is not None
    peak = trial.peak.estimate
    return Estimate(peak.log_mean - state.get_bed_offset(trial.bed).log, peak.sd)


def is_reproduced(state: State, challenger: int) -> bool:
    """True if repeats show that a trial meets an objective that the baseline misses, at similar rates."""
    repeats = list_repeats(state, challenger)
    if not all(trial.meets_slo for trial in repeats) or have_unstable_rates(repeats):
        return False
    if not baseline_misses_slo(state):  # there is nothing to compare with
        return bool(repeats)
    return min(len(repeats), len(list_failed_baselines(state))) >= REQUIRED_REPRODUCTIONS


def have_unstable_rates(repeats: Sequence[Trial]) -> bool:
    """True if the capacities of a configuration's repeats certainly differ by more than
    ``MAX_REPRODUCTION_RATIO``.
    """
    peaks = [trial.peak for trial in repeats if trial.peak is not None and trial.meets_slo]
    return bool(peaks) and max(peak.low for peak in peaks) > MAX_REPRODUCTION_RATIO * min(
        peak.high for peak in peaks
    )


def decide_verdict(state: State) -> Verdict:
    """Return the verdict of a study after its last measurement."""
    challenger, meets_slo = find_best_trial(state), baseline_meets_slo(state)
    if challenger is None:
        return _build_verdict("no-improvement" if meets_slo else "unmeetable", None)
    if not meets_slo:
        # If the baseline has no capacity, meeting the objective is the improvement.
        verdict_name = "improved" if is_reproduced(state, challenger) else "unmeetable"
        return _build_verdict(verdict_name, challenger)
    if fails_in_proof(state, challenger):
        return _build_verdict("no-improvement", challenger)
    proof = collect_proof_measurements(state, challenger)
    gain_by_bed = {bed: gain for bed, gain in proof.gain_by_bed.items() if bed is not None}
    verdict = (
        _build_verdict("improved", challenger, proof.compute_proven_gain())
        if proof.is_proven
        else _build_verdict("no-improvement", challenger, proof.compute_gain())
    )
    return replace(verdict, beds=gain_by_bed, disagree=proof.beds_disagree if gain_by_bed else None)


def _build_verdict(verdict: str, best_number: int | None, gain: Gain | None = None) -> Verdict:
    """Return a verdict whose displayed peaks come from the proof alone."""
    return Verdict(verdict, best_number, gain, (Phase.CONFIRM,))


def collect_proof_measurements(state: State, challenger: int) -> Proof:
    """Return the proof measurements made so far, by test bed."""
    return Proof(
        {
            bed: _keep_complete_pairs(list_confirmations(state, challenger, bed=bed))
            for bed in state.stacks
        }
    )
