"""Ranking of a study's trials: candidates, leader, reference, measurements of the proof, and the
verdict.

All results depend only on the state. After the search, the model's estimates (``State.posterior``) rank
the candidates, because a single reading overstates the best candidate by about 10 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import hypot, log

from autotune.estimate import Estimate
from autotune.optimize import ranking
from autotune.optimize.bed_differences import BedReading
from autotune.optimize.confirmation import Gain, Proof, SideMeasurement, estimate_repeat_sd
from autotune.optimize.drift import StudyDrift, estimate_drift
from autotune.optimize.ranking import (
    DECIDED_PROBABILITY,
    compute_win_probability,
    find_winner,
    pool_peaks,
)
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial
from autotune.study.verdict import Verdict
from autotune.study.winner_changes import Simplification

# minimum number of configurations from which the model estimates importance
MIN_CONFIGURATIONS = 10
PLAUSIBLE_SDS = 2.0  # maximum distance of a finalist from the leader, in sds
# The search explores as long as the last EXPLORATION_TRIALS configurations raised the best peak by
# EXPLORATION_FACTOR or more.
EXPLORATION_FACTOR, EXPLORATION_TRIALS = 1.5, 4
# an incumbent is measured again if the sd of its log peak exceeds this value
MAX_INCUMBENT_SD = 0.08
FINAL_PHASES = (Phase.FINALIST, Phase.RUNNER_UP)  # phases after the search and before the proof
PRESET_PHASES = (Phase.RECOMMENDED, Phase.ADVISED, Phase.PUBLISHED)  # presets that autotune ships
MIN_REPEATS = 3  # minimum number of repeats to estimate noise from their spread
# Phases before the proof without selection bias: their configurations were selected before they were
# measured.
PRE_PROOF_PHASES = (Phase.BASELINE, Phase.REFERENCE, *FINAL_PHASES)
REPEATED_PHASES = (*PRE_PROOF_PHASES, Phase.CONFIRM)
# For a proof, the baseline must miss the objective in this many measurements, and a trial must meet it
# in as many repeats. If both met the objective with the same probability p, the probability of a false
# claim would be (p (1 - p))³, at most 1.6 %.
REQUIRED_REPRODUCTIONS = 3
NO_SHIFT = Estimate(0.0, 0.0)  # the shift of a peak without drift and without a test bed's offset


def select_feasible_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that met the objective."""
    return [trial for trial in trials if trial.is_feasible]


def list_measured_trials(state: State) -> list[Trial]:
    """Return the trials that count towards the budget and have a capacity."""
    return select_feasible_trials(state.list_finished_trials(*COUNTED_PHASES))


def estimate_peaks(state: State, trials: Sequence[Trial]) -> list[tuple[int, Estimate]]:
    """Return the peak of each trial that met the objective, with the number of its configuration.

    The peaks are corrected to the level of an average test bed.
    """
    return [
        (state.find_configuration_number(trial), state.normalize_peak(trial))
        for trial in select_feasible_trials(trials)
    ]


def _estimate_configurations(state: State, trials: Sequence[Trial]) -> dict[int, Estimate]:
    """Return the estimate of each configuration in ``trials``.

    Several measurements of a configuration are pooled. A pruned measurement is only an upper bound, and
    is replaced by a later measurement.
    """
    trials_by_configuration: dict[int, list[Trial]] = {}
    for trial in select_feasible_trials(trials):
        trials_by_configuration.setdefault(state.find_configuration_number(trial), []).append(trial)
    return {
        trial_number: _pool_estimates(state, configuration_trials)
        for trial_number, configuration_trials in trials_by_configuration.items()
    }


def _pool_estimates(state: State, trials: Sequence[Trial]) -> Estimate:
    full_trials = [
        trial for trial in trials if trial.peak and not trial.peak.is_incomplete
    ] or trials[-1:]
    peaks = [state.normalize_peak(trial) for trial in full_trials]
    return Estimate.pool(peaks) if len(peaks) > 1 else peaks[0]


def estimate_candidate_peaks(state: State) -> dict[int, Estimate]:
    """Return the estimates of all configurations except the baseline. Repeats in the finals are left
    out.
    """
    baseline_numbers = {
        state.find_configuration_number(t) for t in state.list_finished_trials(Phase.BASELINE)
    }
    searched_trials = [
        t
        for t in state.list_finished_trials(*COUNTED_PHASES)
        if state.find_configuration_number(t) not in baseline_numbers
        and not (t.peak and t.peak.is_unmet)
    ]
    first_estimates = _estimate_configurations(state, searched_trials)
    if state.posterior is None:
        return first_estimates
    posterior_peaks = state.posterior.peaks
    return {trial: posterior_peaks[trial] for trial in first_estimates if trial in posterior_peaks}


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
    return trial if is_rough and next(repeated_trials, None) is None else None


def _find_highest_trial(state: State) -> tuple[int | None, Estimate | None]:
    """Return the number and the peak of the best configuration that was not pruned."""
    peak_by_trial = _estimate_full_trials(state)
    return max(peak_by_trial.items(), key=lambda item: item[1].log_mean, default=(None, None))


def _estimate_full_trials(state: State) -> dict[int, Estimate]:
    """Return the peaks of fully measured configurations, pooled with repeats that detect drift."""
    full_trials = [t for t in list_measured_trials(state) if t.peak and not t.peak.is_incomplete]
    peak_by_trial, reference_repeats = (
        _estimate_configurations(state, full_trials),
        _group_repeats(state, Phase.REFERENCE),
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


def select_finalists(state: State, max_count: int, min_count: int) -> tuple[int, ...]:
    """Return the finalists, best first: trials that may be the best of all.

    The best preset is included if it may be the best of all. Presets were not selected for a lucky
    measurement, and the winner must not be worse than published advice.
    """
    estimates_by_trial = estimate_candidate_peaks(state)
    ranked_trials = _rank_trials(estimates_by_trial)
    plausible_trials = _select_plausible_trials(estimates_by_trial)
    chosen_trials = [
        trial
        for rank, trial in enumerate(ranked_trials)
        if rank < min_count or trial in plausible_trials
    ][:max_count]
    advised_trial = next(
        (number for number in plausible_trials if state.find_trial(number).phase in OPENING_PHASES),
        None,
    )
    if advised_trial is None or advised_trial in chosen_trials:
        return tuple(chosen_trials)
    return (*chosen_trials[:-1], advised_trial)


def _rank_trials(estimates_by_trial: Mapping[int, Estimate]) -> list[int]:
    """Return the trials, the highest peak first."""
    return sorted(estimates_by_trial, key=lambda trial: -estimates_by_trial[trial].log_mean)


def _select_plausible_trials(estimates_by_trial: Mapping[int, Estimate]) -> list[int]:
    """Return the trials that may be the best of all, the highest peak first."""
    ranked_trials = _rank_trials(estimates_by_trial)
    leads_by_trial = {
        trial: estimates_by_trial[ranked_trials[0]].ratio_to(estimates_by_trial[trial])
        for trial in ranked_trials
    }
    return [t for t, lead in leads_by_trial.items() if lead.log_mean < PLAUSIBLE_SDS * lead.sd]


def find_best_trial(state: State) -> int | None:
    """Return the trial that would win now, before it is proven.

    After the search, the best preset wins unless another trial is probably better. If changes without
    an effect were reverted, the result is the trial that measured the remaining changes.
    """
    baseline, trial_numbers = find_baseline(state), {trial.number for trial in state.trials}
    candidates = trial_numbers - {baseline.number} if baseline else trial_numbers
    confirmed_trials = (
        t.source_trial
        for t in state.list_finished_trials(Phase.CONFIRM)
        if t.source_trial in candidates
    )
    if (confirmed_number := next(confirmed_trials, None)) is not None:
        return confirmed_number
    leader_number = find_leader(state)
    simplification = find_simplification(state, leader_number)
    if simplification is None or simplification.accepted is None:
        return leader_number
    return simplification.accepted


def find_simplification(state: State, leader_number: int | None) -> Simplification | None:
    """Return the simplification of a leader; ``None`` if another trial led when it was recorded.

    Further finalists may change the leader.
    """
    simplification = state.simplification
    if simplification is None or simplification.of not in (None, leader_number):
        return None
    return simplification


def find_leader(state: State) -> int | None:
    """Return the trial that would win now, with all of its changes."""
    return find_winner(
        estimate_candidate_peaks(state),
        _list_rival_repeats(state, *FINAL_PHASES),
        _list_preset_trials(state),
    )


def select_finalist_pair(state: State) -> tuple[int, int] | None:
    """Return the two finalists to compare (`optimize.ranking.find_rivals`); ``None`` before the
    first repeat.
    """
    repeats = _list_rival_repeats(state, Phase.FINALIST)
    return (
        ranking.find_rivals(
            pool_peaks(estimate_candidate_peaks(state), repeats), _list_preset_trials(state)
        )
        if repeats
        else None
    )


def is_undecided(state: State, first_number: int, second_number: int) -> bool:
    """True if the measurements do not yet show which of two finalists is better."""
    pooled_peaks = _estimate_finalists(state)
    return ranking.is_undecided(pooled_peaks[first_number], pooled_peaks[second_number])


def is_clearly_worse(state: State, configuration_number: int, trial: Trial) -> bool:
    """True if ``trial`` sustained clearly less than configuration ``configuration_number`` is estimated
    to sustain.
    """
    estimate = _estimate_finalists(state)[configuration_number]
    return (
        compute_win_probability(estimate, _add_study_noise(state, state.normalize_peak(trial)))
        >= DECIDED_PROBABILITY
    )


def predict_repeat(state: State, configuration_number: int) -> Estimate | None:
    """Return the peak that another measurement of a configuration is expected to show; ``None`` if the
    configuration cannot win.
    """
    estimate = _estimate_finalists(state).get(configuration_number)
    return estimate and _add_study_noise(state, estimate)


def _estimate_finalists(state: State) -> Mapping[int, Estimate]:
    """Return the peaks of the configurations that may win, from the search and the finals."""
    return pool_peaks(estimate_candidate_peaks(state), _list_rival_repeats(state, *FINAL_PHASES))


def find_best_preset(state: State) -> Trial | None:
    """Return the best fully measured preset that autotune ships; ``None`` without such a preset."""
    baseline = find_baseline(state)
    preset_trials = {
        state.find_configuration_number(trial): trial
        for trial in select_feasible_trials(state.list_finished_trials(*PRESET_PHASES))
        if trial.peak and not trial.peak.is_incomplete
    }
    if baseline is not None:
        preset_trials.pop(state.find_configuration_number(baseline), None)
    final_peaks: dict[int, list[Estimate]] = {}
    for number, peak in estimate_peaks(state, state.list_finished_trials(*FINAL_PHASES)):
        final_peaks.setdefault(number, []).append(peak)
    preset_peaks = {
        number: Estimate.pool([state.normalize_peak(trial), *final_peaks.get(number, ())])
        for number, trial in preset_trials.items()
    }
    best_number = max(
        preset_peaks, key=lambda trial_number: preset_peaks[trial_number].log_mean, default=None
    )
    return None if best_number is None else preset_trials[best_number]


def list_final_trials(state: State, configuration_number: int) -> tuple[Trial, ...]:
    """Return the measurements of configuration ``configuration_number`` between the search and the
    proof.
    """
    final_trials = state.list_finished_trials(*FINAL_PHASES)
    return tuple(
        trial
        for trial in final_trials
        if state.find_configuration_number(trial) == configuration_number
    )


def add_measurement_noise(state: State, estimate: Estimate, count: int) -> Estimate:
    """Return an estimate from ``count`` measurements, with the noise between measurements added."""
    return estimate.widen_by_noise(_get_selection_noise(state) / max(1, count) ** 0.5)


def _list_preset_trials(state: State) -> frozenset[int]:
    """Return the trials of configurations from guides or the user; empty until the search is over."""
    if state.posterior is None:
        return frozenset()
    preset_trials = state.list_finished_trials(*(OPENING_PHASES - {Phase.BASELINE}))
    return frozenset(trial.number for trial in preset_trials)


def _list_rival_repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """Return the final measurements of each configuration that may win.

    If no preset was measured again, the presets that may be the best are included without measurements.
    A search result must beat the best preset, even if there was no time to repeat that preset.
    """
    repeats, presets = _list_noisy_repeats(state, *phases), _list_preset_trials(state)
    if not repeats or not presets.isdisjoint(repeats):
        return repeats
    failed_trials = {
        state.find_configuration_number(trial)
        for trial in state.list_finished_trials(*FINAL_PHASES)
        if not trial.is_feasible and not trial.is_unmeasured
    }
    plausible_trials = _select_plausible_trials(estimate_candidate_peaks(state))
    rivals = [t for t in plausible_trials if t in presets and t not in failed_trials]
    return {**repeats, **{trial_number: [] for trial_number in rivals}}


def _list_noisy_repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """Return the final measurements, with the noise of a single measurement added."""
    peaks_by_configuration = _group_repeats(state, *phases)
    return {
        trial_number: [_add_study_noise(state, peak) for peak in repeated_peaks]
        for trial_number, repeated_peaks in peaks_by_configuration.items()
    }


def _group_repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    peaks_by_configuration: dict[int, list[Estimate]] = {}
    for configuration_number, peak in estimate_peaks(state, state.list_finished_trials(*phases)):
        peaks_by_configuration.setdefault(configuration_number, []).append(peak)
    return peaks_by_configuration


def _add_study_noise(state: State, estimate: Estimate) -> Estimate:
    """Return a measurement with the study's noise added, for selecting a configuration.

    The model's noise is added to the measurement's own sd. The resulting sd is at least the spread of
    repeats. Repeats in the proof are excluded, because they must not change which configuration is
    proven.
    """
    estimate_with_noise = estimate.widen_by_noise(_get_selection_noise(state))
    repeat_noise = 0.0 if state.values else _estimate_repeat_noise(state, *PRE_PROOF_PHASES)
    return replace(estimate_with_noise, sd=max(estimate_with_noise.sd, repeat_noise))


def _get_model_noise(state: State) -> float:
    return state.posterior.noise if state.posterior else 0.0


def _get_selection_noise(state: State) -> float:
    """Return the noise to add to estimates when a configuration is selected.

    The sd of values from a benchmark command already includes all of their noise.
    """
    if state.posterior is None or state.values:
        return _get_model_noise(state)
    return state.posterior.reading_noise


def _estimate_repeat_noise(state: State, *phases: Phase) -> float:
    """Return the sd of one additional measurement's logarithm, estimated from repeats in ``phases``.

    This sd includes the imprecision of the repeats; 0 means that there are too few repeats. Each repeat
    is compared with the previous repeat on the same test bed, so that drift and differences between beds
    do not count as noise. Measurements that led to the selection of their configuration are excluded.
    """
    log_peaks_by_key: dict[tuple[str | None, int], list[float]] = {}
    for trial in select_feasible_trials(state.list_finished_trials(*phases)):
        bed_and_configuration = (trial.bed, state.find_configuration_number(trial))
        log_peaks_by_key.setdefault(bed_and_configuration, []).append(
            state.normalize_peak(trial).log_mean
        )
    log_differences = [
        later_log_peak - earlier_log_peak
        for log_peaks in log_peaks_by_key.values()
        for earlier_log_peak, later_log_peak in pairwise(log_peaks)
    ]
    return estimate_repeat_sd(log_differences) if len(log_differences) >= MIN_REPEATS else 0.0


def find_baseline(state: State) -> Trial | None:
    """Return the first baseline trial that met the objective, or else the first measured baseline
    trial.

    A baseline that misses the objective is measured once more, because a disturbance may have been the
    cause.
    """
    baselines = state.list_finished_trials(Phase.BASELINE)
    measured_trials = [trial for trial in baselines if not trial.is_unmeasured]
    successful_trials = [trial for trial in measured_trials if trial.meets_slo]
    return next(iter((*successful_trials, *measured_trials, *baselines)), None)


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


def list_confirmations(
    state: State, challenger: int, phase: Phase = Phase.CONFIRM, bed: str | None = None
) -> list[SideMeasurement]:
    """Return the alternating measurements so far in order, from one test bed or from the only stack.

    The sds include the noise of the study: the model's noise is added, and each sd is at least the
    spread of repeats. The sd of values from a benchmark command already includes all of their noise
    (`measure.repeats`).
    """
    model_noise = repeat_noise = 0.0
    if not state.values:
        model_noise, repeat_noise = (
            _get_model_noise(state),
            _estimate_repeat_noise(state, *REPEATED_PHASES),
        )
    feasible_trials = [
        trial
        for trial in select_feasible_trials(state.list_finished_trials(phase))
        if trial.bed == bed
    ]
    peaks_with_trials = [
        (trial, _remove_bed_offset(state, trial).widen_by_noise(model_noise))
        for trial in _select_pairs(state, feasible_trials, challenger, bed)
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


def baseline_meets_slo(state: State) -> bool:
    """True if the baseline met the objective at any rate; only then can a gain be computed."""
    baseline = find_baseline(state)
    return baseline is not None and baseline.meets_slo


def baseline_misses_slo(state: State) -> bool:
    """True if the baseline was measured and did not meet the objective at any rate tried."""
    baseline = find_baseline(state)
    return (
        baseline is not None
        and baseline.peak is not None
        and (baseline.peak.verdict == "unmeetable" or baseline.peak.is_unmet)
    )


def list_repeats(state: State, challenger: int) -> list[Trial]:
    """Return the repeats of a trial after the search, except repeats that measured nothing."""
    return [
        trial
        for trial in state.list_finished_trials(Phase.FINALIST)
        if state.find_configuration_number(trial) == challenger and not trial.is_unmeasured
    ]


def list_failed_baselines(state: State) -> list[Trial]:
    """Return the measurements in which the baseline failed or missed the objective at any rate.

    A search that ran out of time is left out, because a lower rate might have met the objective.
    """
    return [
        trial
        for trial in state.list_finished_trials(Phase.BASELINE)
        if not (trial.is_unmeasured or trial.is_feasible)
    ]


def is_reproduced(state: State, challenger: int) -> bool:
    """True if repeats show that a trial meets an objective that the baseline misses."""
    repeats = list_repeats(state, challenger)
    if not all(trial.meets_slo for trial in repeats):
        return False
    if not baseline_misses_slo(
        state
    ):  # the baseline was never measured, so there is nothing to compare with
        return bool(repeats)
    return min(len(repeats), len(list_failed_baselines(state))) >= REQUIRED_REPRODUCTIONS


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
