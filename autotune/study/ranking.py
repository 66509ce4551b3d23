"""Ranking of a study's trials: candidates, finalists, leader and baseline.

All results depend only on the state. After the search, the model's estimates (``State.posterior``) rank
the candidates, because a single reading overstates the best candidate by about 10 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from autotune.estimate import MEASUREMENT_LOG_SD, Estimate
from autotune.optimize import ranking
from autotune.optimize.confirmation import estimate_repeat_sd
from autotune.optimize.ranking import (
    DECIDED_PROBABILITY,
    compute_win_probability,
    find_winner,
    pool_peaks,
)
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial
from autotune.study.winner_changes import Simplification

# minimum number of configurations from which the model estimates importance
MIN_CONFIGURATIONS = 10
PLAUSIBLE_SDS = 2.0  # maximum distance of a finalist from the leader, in sds
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


def select_feasible_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials whose peaks can be compared, including peaks of which no rate met the
    objective.
    """
    return [trial for trial in trials if trial.is_feasible]


def list_measured_trials(state: State) -> list[Trial]:
    """Return the trials that count towards the budget and have a capacity."""
    return select_feasible_trials(state.list_finished_trials(*COUNTED_PHASES))


def estimate_peaks(state: State, trials: Sequence[Trial]) -> list[tuple[int, Estimate]]:
    """Return the peak of each comparable trial, with the number of its configuration.

    The peaks are corrected to the level of an average test bed.
    """
    return [
        (state.find_configuration_number(trial), state.normalize_peak(trial))
        for trial in select_feasible_trials(trials)
    ]


def estimate_configurations(state: State, trials: Sequence[Trial]) -> dict[int, Estimate]:
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
    first_estimates = estimate_configurations(state, searched_trials)
    if state.posterior is None:
        return first_estimates
    posterior_peaks = state.posterior.peaks
    return {trial: posterior_peaks[trial] for trial in first_estimates if trial in posterior_peaks}


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
    # A preset that failed since may be missing among the finalists.
    pooled_peaks = {**estimate_candidate_peaks(state), **_estimate_finalists(state)}
    return ranking.is_undecided(pooled_peaks[first_number], pooled_peaks[second_number])


def is_clearly_worse(state: State, configuration_number: int, trials: Sequence[Trial]) -> bool:
    """True if ``trials`` of another configuration sustained clearly less than configuration
    ``configuration_number`` is estimated to sustain.
    """
    return compute_loss_probability(state, configuration_number, trials) >= DECIDED_PROBABILITY


def compute_loss_probability(
    state: State, configuration_number: int, trials: Sequence[Trial], min_loss: float = 0.0
) -> float:
    """Return the probability that ``trials`` of another configuration show a loss of at least
    ``min_loss``, as a log ratio to the estimate of configuration ``configuration_number``.
    """
    estimate = _estimate_finalists(state)[configuration_number]
    peak = Estimate.pool([_add_study_noise(state, state.normalize_peak(trial)) for trial in trials])
    return compute_win_probability(replace(estimate, log_mean=estimate.log_mean - min_loss), peak)


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
    final_peaks = group_repeats(state, *FINAL_PHASES)
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
    peaks_by_configuration = group_repeats(state, *phases)
    return {
        trial_number: [_add_study_noise(state, peak) for peak in repeated_peaks]
        for trial_number, repeated_peaks in peaks_by_configuration.items()
    }


def group_repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """Return the peaks that were measured in ``phases``, by configuration."""
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
    repeat_noise = 0.0 if state.values else estimate_repeat_noise(state, *PRE_PROOF_PHASES)
    return replace(estimate_with_noise, sd=max(estimate_with_noise.sd, repeat_noise))


def get_model_noise(state: State) -> float:
    """Return the sd of a measurement's logarithm according to the model; 0 before the model exists."""
    return state.posterior.noise if state.posterior else 0.0


def estimate_measurement_sd(state: State, trial: Trial) -> float:
    """Return the sd of the logarithm of one measurement that is as precise as that of ``trial``.

    Without a model, the noise between measurements is the usual one.
    """
    noise = get_model_noise(state) if state.values else _get_reading_noise(state)
    return state.normalize_peak(trial).widen_by_noise(noise).sd


def _get_selection_noise(state: State) -> float:
    """Return the noise to add to estimates when a configuration is selected.

    The sd of values from a benchmark command already includes all of their noise.
    """
    if state.posterior is None or state.values:
        return get_model_noise(state)
    return _get_reading_noise(state)


def _get_reading_noise(state: State) -> float:
    return state.posterior.reading_noise if state.posterior else MEASUREMENT_LOG_SD


def estimate_repeat_noise(state: State, *phases: Phase) -> float:
    """Return the sd of one additional measurement's logarithm, estimated from repeats in ``phases``.

    This sd includes the imprecision of the repeats; 0 means that there are too few repeats. Each repeat
    is compared with the previous repeat on the same test bed, so that drift and differences between beds
    do not count as noise. Measurements that led to the selection of their configuration are excluded, and
    so are rough measurements.
    """
    log_peaks_by_key: dict[tuple[str | None, int], list[float]] = {}
    for trial in select_feasible_trials(state.list_finished_trials(*phases)):
        if trial.peak is not None and trial.peak.is_rough:
            continue
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


def baseline_meets_slo(state: State) -> bool:
    """True if the baseline met the objective at any rate; only then can a gain be computed."""
    baseline = find_baseline(state)
    return baseline is not None and baseline.meets_slo


def baseline_misses_slo(state: State) -> bool:
    """True if the baseline failed, or did not meet the objective at any rate tried. Insufficient load
    shows neither, and benchmarks have no objective.
    """
    baseline = find_baseline(state)
    is_conclusive = baseline is not None and not baseline.is_unmeasured and not state.values
    return is_conclusive and not baseline_meets_slo(state)


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
