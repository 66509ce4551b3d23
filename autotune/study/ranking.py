"""The ranking of a study's trials: candidates, leader, reference, the readings of the proof, and what
they let the study claim.

All of it follows from the state. Once the search has ended, candidates are ranked by what the model
estimates (``State.posterior``): one reading alone overstates the best by about a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from math import hypot, log
from typing import Any

from autotune.estimate import Estimate
from autotune.optimize import ranking
from autotune.optimize.bed_differences import BedReading
from autotune.optimize.confirmation import (
    BedConfirmation,
    Gain,
    SideMeasurement,
    compute_gain,
    is_proven,
    repeat_sd,
)
from autotune.optimize.drift import StudyDrift, estimate_drift
from autotune.optimize.ranking import (
    DECIDED_PROBABILITY,
    find_winner,
    pool_peaks,
    probability_better,
)
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial

MIN_CONFIGURATIONS = 10  # configurations that a model needs to tell apart what mattered
# A finalist must stand within so many sds of the leader.
PLAUSIBLE_SDS = 2.0
# The search explores while the best peak rises by this factor within this many configurations.
EXPLORATION_FACTOR, EXPLORATION_TRIALS = 1.5, 4
MAX_INCUMBENT_SD = 0.08  # sd of its log peak from which an incumbent is measured again
FINAL_PHASES = (Phase.FINALIST, Phase.RUNNER_UP)  # measurements after the search, before the claim
MIN_REPEATS = 3  # before their spread says anything
# Phases whose measurements did not select the configuration that they measure; those before the proof.
PRE_PROOF_PHASES = (Phase.BASELINE, Phase.REFERENCE, *FINAL_PHASES)
REPEATED_PHASES = (*PRE_PROOF_PHASES, Phase.CONFIRM)


def select_feasible_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Those that met the objective."""
    return [trial for trial in trials if trial.meets]


def list_measured_trials(state: State) -> list[Trial]:
    """The trials that the budget counts and that have a capacity."""
    return select_feasible_trials(state.list_finished(*COUNTED_PHASES))


def estimate_peaks(state: State, trials: Sequence[Trial]) -> list[tuple[int, Estimate]]:
    """Trials that met the objective, by the configuration they stand for, in their order; as an
    average test bed would have measured them."""
    return [
        (state.configuration_number(trial), state.normalized_peak(trial))
        for trial in select_feasible_trials(trials)
    ]


def _list_first_estimates(state: State, trials: Sequence[Trial]) -> dict[int, Estimate]:
    """By configuration, its estimate in ``trials``. If one was suggested several times, its measurements
    are pooled; one that was pruned has only a ceiling, which a later measurement replaces."""
    measured: dict[int, list[Trial]] = {}
    for trial in select_feasible_trials(trials):
        measured.setdefault(state.configuration_number(trial), []).append(trial)
    return {number: _pool_estimates(state, tried) for number, tried in measured.items()}


def _pool_estimates(state: State, tried: Sequence[Trial]) -> Estimate:
    full = [trial for trial in tried if trial.peak and not trial.peak.is_pruned] or tried[-1:]
    levels = [state.normalized_peak(trial) for trial in full]
    return Estimate.pool(levels) if len(levels) > 1 else levels[0]


def estimate_candidates(state: State) -> dict[int, Estimate]:
    """All configurations but the baseline, as estimated before they are measured again."""
    baselines = {state.configuration_number(t) for t in state.list_finished(Phase.BASELINE)}
    searched = [
        t
        for t in state.list_finished(*COUNTED_PHASES)
        if state.configuration_number(t) not in baselines
    ]
    measured = _list_first_estimates(state, searched)
    if state.posterior is None:
        return measured
    believed = state.posterior.peaks
    return {trial: believed[trial] for trial in measured if trial in believed}


def find_incumbent(state: State) -> Estimate | None:
    """The peak to beat: that of the best configuration so far, its measurements as a reference included,
    so that a lucky first one does not prune what is as good. Pruned trials have a ceiling, no peak."""
    return max(_estimate_full(state).values(), key=lambda peak: peak.log_mean, default=None)


def find_incumbent_number(state: State) -> int | None:
    """Return the number of the configuration with the peak to beat."""
    peaks = _estimate_full(state)
    return max(peaks, key=lambda number: peaks[number].log_mean, default=None)


def find_rough_incumbent(state: State) -> Trial | None:
    """Return the incumbent if its peak is rough and was not measured again.

    The best of several rough peaks is probably too high. It would prune configurations that are better.
    """
    peaks, number = _estimate_full(state), find_incumbent_number(state)
    if number is None or peaks[number].sd <= MAX_INCUMBENT_SD:
        return None
    again = (t for t in state.list_started(*COUNTED_PHASES) if t.of == number)
    trial = state.find_trial(number)
    is_rough = trial.peak is not None and trial.peak.is_rough
    return trial if is_rough and next(again, None) is None else None


def _estimate_full(state: State) -> dict[int, Estimate]:
    """Return the peaks of configurations that were not pruned, with their repeats as a reference."""
    full = [t for t in list_measured_trials(state) if t.peak and not t.peak.is_pruned]
    peaks, again = _list_first_estimates(state, full), _group_repeats(state, Phase.REFERENCE)
    pooled_peaks = {n: Estimate.pool([peaks[n], *more]) for n, more in again.items() if n in peaks}
    return peaks | pooled_peaks


def is_exploring(state: State) -> bool:
    """True if the best peak rose by a factor of ``EXPLORATION_FACTOR`` over the last configurations.

    Precise peaks would not change what the search tries next, while every step wins that much.
    """
    peaks = [
        (trial.number, state.normalized_peak(trial).log_mean)
        for trial in list_measured_trials(state)
        if trial.peak and not trial.peak.is_pruned
    ]
    last = {
        trial.number for trial in state.list_finished(*COUNTED_PHASES)[1:][-EXPLORATION_TRIALS:]
    }
    earlier = [log_peak for number, log_peak in peaks if number not in last]
    newer = [log_peak for number, log_peak in peaks if number in last]
    return bool(earlier and newer) and max(newer) - max(earlier) >= log(EXPLORATION_FACTOR)


def find_doubtful_pruning(state: State, min_probability: float) -> Trial | None:
    """A preset that was pruned against a peak which did not last: by what is known of the incumbent now,
    it has at least this ``min_probability`` to beat it. Each is measured once more, whatever comes
    of it."""
    again = {
        state.configuration_number(t)
        for t in state.list_started(*OPENING_PHASES)
        if t.of is not None
    }
    pruned = [
        (trial, replace(state.normalized_peak(trial), sd=trial.peak.upper_sd))
        for trial in select_feasible_trials(state.list_finished(*OPENING_PHASES))
        if trial.peak and trial.peak.is_pruned and state.configuration_number(trial) not in again
    ]
    # Most studies have none in doubt, and those of many beds ask often.
    to_beat = find_incumbent(state) if pruned else None
    doubtful = (
        trial
        for trial, ceiling in pruned
        if to_beat and probability_better(ceiling, to_beat) >= min_probability
    )
    return next(doubtful, None)


def select_finalists(state: State, max_count: int, min_count: int) -> tuple[int, ...]:
    """The trials to measure again, best first: those that may well be the best one.

    The best of what was known before the search is one of them, if it may well be the best: it was
    not picked from many for a lucky measurement, and nobody wants to end below what guides advise.
    """
    estimated = estimate_candidates(state)
    ranked = sorted(estimated, key=lambda trial: estimated[trial].log_mean, reverse=True)
    leads = {trial: estimated[ranked[0]].ratio_to(estimated[trial]) for trial in ranked}
    plausible = [t for t, lead in leads.items() if lead.log_mean < PLAUSIBLE_SDS * lead.sd]
    chosen = [trial for location, trial in enumerate(ranked)
              if location < min_count or trial in plausible][:max_count]  # fmt: skip
    advised = next((n for n in plausible if state.find_trial(n).phase in OPENING_PHASES), None)
    if advised is None or advised in chosen:
        return tuple(chosen)
    return (*chosen[:-1], advised)


def find_best_trial(state: State) -> int | None:
    """The trial that would win now: not yet a claim. Once the search has ended, that is the best preset
    unless another trial is likely to be better. Where changes that do nothing were reverted, it is
    the trial that measured the remaining ones."""
    stock, numbers = find_baseline(state), {trial.number for trial in state.trials}
    others = numbers - {stock.number} if stock else numbers
    proving = (t.of for t in state.list_finished(Phase.CONFIRM) if t.of in others)
    if (begun := next(proving, None)) is not None:
        return begun
    number, simple = find_leader(state), state.simplified
    if number is None or simple is None or simple.get("of") != number:
        return number
    accepted = simple.get("accepted")
    return number if accepted is None else int(accepted)


def find_leader(state: State) -> int | None:
    """The trial that would win now, with all of its changes."""
    return find_winner(
        estimate_candidates(state),
        _list_noisy_repeats(state, *FINAL_PHASES),
        _list_preset_trials(state),
    )


def select_finalist_pair(state: State) -> tuple[int, int] | None:
    """`optimize.ranking.rivals` of the finalists; also ``None`` where nothing was measured again."""
    again = _list_noisy_repeats(state, Phase.FINALIST)
    return (
        ranking.find_rivals(
            pool_peaks(estimate_candidates(state), again), _list_preset_trials(state)
        )
        if again
        else None
    )


def is_undecided(state: State, first: int, second: int) -> bool:
    """Whether it may still turn out which of two finalists is better."""
    estimates = pool_peaks(estimate_candidates(state), _list_noisy_repeats(state, *FINAL_PHASES))
    return ranking.is_undecided(estimates[first], estimates[second])


def is_clearly_worse(state: State, number: int, trial: Trial) -> bool:
    """Whether a configuration, as measured once more, clearly carries less than trial ``number``."""
    estimate = pool_peaks(estimate_candidates(state), _list_noisy_repeats(state, *FINAL_PHASES))[
        number
    ]
    return (
        probability_better(estimate, _add_study_noise(state, state.normalized_peak(trial)))
        >= DECIDED_PROBABILITY
    )


def _list_preset_trials(state: State) -> frozenset[int]:
    """Trials of configurations that guides or the user advise, once the search has ended."""
    if state.posterior is None:
        return frozenset()
    advised = state.list_finished(*(OPENING_PHASES - {Phase.BASELINE}))
    return frozenset(trial.number for trial in advised)


def _list_noisy_repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """Measurements in the finals, as precise as one measurement of any configuration is."""
    repeats = _group_repeats(state, *phases)
    return {
        number: [_add_study_noise(state, peak) for peak in peaks]
        for number, peaks in repeats.items()
    }


def _group_repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """The measurements in ``phases``, by configuration."""
    repeats: dict[int, list[Estimate]] = {}
    for number, peak in estimate_peaks(state, state.list_finished(*phases)):
        repeats.setdefault(number, []).append(peak)
    return repeats


def _add_study_noise(state: State, estimate: Estimate) -> Estimate:
    """A measurement with the noise of the study, to choose by: the model's noise is added to its own
    sd, and the result is no less than what repeats show. The proof does not count: what it shows must
    not change which configuration is proven."""
    noisy = estimate.add_noise(_selection_noise(state))
    of_repeats = 0.0 if state.values else _estimate_repeat_noise(state, *PRE_PROOF_PHASES)
    return replace(noisy, sd=max(noisy.sd, of_repeats))


def _model_noise(state: State) -> float:
    """The sd of one more measurement's logarithm as the model has it."""
    return state.posterior.noise if state.posterior else 0.0


def _selection_noise(state: State) -> float:
    """The same for a choice between configurations. A benchmark command's values have all of their noise
    in their sd."""
    if state.posterior is None or state.values:
        return _model_noise(state)
    return state.posterior.reading_noise


def _estimate_repeat_noise(state: State, *phases: Phase) -> float:
    """The sd of one more measurement's logarithm as repeats in ``phases`` show it, their own imprecision
    included; 0 where there are too few.

    Each repeat is compared with the one before it on the same test bed, so that neither drift nor
    differences between beds are taken for noise. A measurement that selected its configuration does
    not count.
    """
    repeats: dict[tuple[str | None, int], list[float]] = {}
    for trial in select_feasible_trials(state.list_finished(*phases)):
        of = (trial.bed, state.configuration_number(trial))
        repeats.setdefault(of, []).append(state.normalized_peak(trial).log_mean)
    steps = [b - a for logs in repeats.values() for a, b in pairwise(logs)]
    return repeat_sd(steps) if len(steps) >= MIN_REPEATS else 0.0


def find_baseline(state: State) -> Trial | None:
    """Return the first baseline trial that met the objective, else the first that was measured.

    A baseline that misses the objective is measured once more. A disturbance may have been the cause.
    """
    baselines = state.list_finished(Phase.BASELINE)
    measured = [trial for trial in baselines if not trial.is_unmeasured]
    met = [trial for trial in measured if trial.peak and trial.peak.is_feasible]
    return next(iter((*met, *measured, *baselines)), None)


def find_reference(state: State) -> Trial | None:
    """The configuration measured again and again to see the stack drift: the best of those known
    before the search.

    No other fixed configuration is nearer to those that the search compares, and it is quicker to
    measure than a poor one.
    """
    if references := state.list_finished(Phase.REFERENCE):
        # A series of one configuration.
        return state.find_trial(state.configuration_number(references[0]))
    presets = [
        t
        for t in select_feasible_trials(state.list_finished(*OPENING_PHASES))
        if t.peak and not t.peak.is_pruned
    ]
    usable = presets or select_feasible_trials(state.list_finished(*COUNTED_PHASES))[:1]
    return max(usable, key=lambda t: state.normalized_peak(t).log_mean, default=None)


def estimate_study_drift(state: State) -> StudyDrift:
    """How the stack has changed since the study began, as its reference shows. On several test beds the
    shifts are what each bed adds to a peak, its own changes included."""
    drifts = estimate_bed_drifts(state)
    if not state.beds:
        return drifts[None]
    strongest = max(drifts.values(), key=lambda drift: drift.probability)
    return replace(
        strongest,
        bed_sds={bed: state.bed_offset(bed).sd for bed in state.beds},
        shifts={
            trial.number: _compute_shift(state, trial, drifts[trial.bed])
            for trial in state.trials
            if trial.bed
        },
    )


def estimate_bed_drifts(state: State) -> dict[str | None, StudyDrift]:
    """How each test bed has changed; without any, the stack (``None``)."""
    chosen = find_reference(state)
    measured: dict[str | None, dict[int, Estimate]] = {bed: {} for bed in state.beds or (None,)}
    numbers: dict[str | None, list[int]] = {bed: [] for bed in measured}
    for trial in state.trials:
        if trial.bed in numbers:
            numbers[trial.bed].append(trial.number)
    # Without the measurement that the reference was chosen by: it is likely to be too high, and later
    # ones would look like a decline.
    for trial in select_feasible_trials(state.list_finished(Phase.REFERENCE)):
        of_chosen = chosen and state.configuration_number(trial) == chosen.number
        if of_chosen and trial.bed in measured and trial.peak:
            measured[trial.bed][trial.number] = trial.peak.estimate
    return {bed: estimate_drift(measured[bed], numbers[bed]) for bed in measured}


def _compute_shift(state: State, trial: Trial, drift: StudyDrift) -> Estimate:
    offset, own = state.bed_offset(trial.bed), drift.shifts.get(trial.number, Estimate(0.0, 0.0))
    return Estimate(own.log_mean + offset.log, hypot(own.sd, offset.excess_sd))


def list_bed_readings(state: State) -> list[BedReading]:
    """Readings that show how test beds differ: of configurations that they did not select, and of the
    baseline of each bed. Peaks are corrected to today's level for the drift of their bed."""
    drifts, stock = estimate_bed_drifts(state), find_baseline(state)
    return [
        BedReading(
            stock.number
            if stock and trial.phase is Phase.BASELINE
            else state.configuration_number(trial),
            trial.bed,
            trial.peak.estimate.ratio_to(drifts[trial.bed].shifts.get(trial.number, Estimate(0.0, 0.0))),
        )
        for trial in select_feasible_trials(state.list_finished(*REPEATED_PHASES))
        if trial.bed and trial.bed in drifts and trial.peak is not None
    ]  # fmt: skip


def list_confirmations(
    state: State, challenger: int, phase: Phase = Phase.CONFIRM, bed: str | None = None
) -> list[SideMeasurement]:
    """The alternating measurements so far, in the order taken; those of one test bed, or whole pairs of
    all beds. Their sd includes the noise of the study: the model's noise is added to their own sd, and
    the result is no less than what repeats show.

    A benchmark command's values have all of their noise in their sd: it was given, or learned from
    repeats (`measure.repeats`).
    """
    if state.beds and bed is None:
        return [
            m
            for each in state.beds
            for m in keep_whole_pairs(list_confirmations(state, challenger, phase, each))
        ]
    believed = of_repeats = 0.0
    if not state.values:
        believed, of_repeats = _model_noise(state), _estimate_repeat_noise(state, *REPEATED_PHASES)
    noisy = [
        (trial, _remove_bed_offset(state, trial).add_noise(believed))
        for trial in select_feasible_trials(state.list_finished(phase))
        if trial.bed == bed
    ]
    return [
        SideMeasurement(
            state.configuration_number(trial) == challenger,
            replace(peak, sd=max(peak.sd, of_repeats)),
        )
        for trial, peak in noisy
    ]


def keep_whole_pairs(measured: list[SideMeasurement]) -> list[SideMeasurement]:
    """Only whole pairs of these measurements."""
    return measured[: len(measured) // 2 * 2]


def _remove_bed_offset(state: State, trial: Trial) -> Estimate:
    """A peak without its test bed's offset, to compare with peaks of other beds. The uncertainty of the
    offset is left out: both sides of a pair are of one bed, so it does not affect their ratio."""
    assert trial.peak is not None
    peak = trial.peak.estimate
    return Estimate(peak.log_mean - state.bed_offset(trial.bed).log, peak.sd) if trial.bed else peak


@dataclass(frozen=True)
class Verdict:
    """``gain`` comes from readings taken after the winner was chosen, or is ``None``; ``peaks_from``
    are the phases whose measurements give the peak shown for ``find_best_trial``. ``beds`` is the gain
    on each test bed, where there are several, and ``disagree`` whether they differ by more than noise."""

    verdict: str
    best: int | None
    gain: Gain | None
    peaks_from: tuple[Phase, ...] = (Phase.CONFIRM,)
    beds: Mapping[str, Gain] = field(default_factory=dict)
    disagree: bool = False

    @property
    def record(self) -> dict[str, Any]:
        """As it is put on record; ``beds`` and ``disagree`` only where there are several beds."""
        fields = asdict(self)
        of_beds = {key: fields.pop(key) for key in ("beds", "disagree")}
        return fields | (of_beds if self.beds else {})


def baseline_meets_slo(state: State) -> bool:
    """Whether the baseline met the objective at any rate: only then is there a gain to compare."""
    stock = find_baseline(state)
    return stock is not None and stock.peak is not None and stock.peak.is_feasible


def decide_verdict(state: State) -> Verdict:
    """The verdict on a study that has nothing left to measure."""
    challenger, meets = find_best_trial(state), baseline_meets_slo(state)
    if challenger is None:
        return Verdict("no-improvement" if meets else "unmeetable", None, None)
    if not meets:
        # Nothing to compare with: that it meets the objective at all is the improvement, if a
        # second, fresh measurement found the same.
        again = estimate_peaks(state, state.list_finished(Phase.FINALIST))
        twice = any(trial == challenger for trial, _ in again)
        return Verdict("improved" if twice else "unmeetable", challenger, None)
    if state.beds:
        return _decide_bed_verdict(state, challenger)
    measured = list_confirmations(state, challenger)
    improved = is_proven(measured)
    return Verdict("improved" if improved else "no-improvement", challenger, compute_gain(measured))


def collect_bed_proof(state: State, challenger: int) -> BedConfirmation:
    """The proof so far, of each test bed."""
    return BedConfirmation(
        {
            bed: keep_whole_pairs(list_confirmations(state, challenger, bed=bed))
            for bed in state.beds
        }
    )


def _decide_bed_verdict(state: State, challenger: int) -> Verdict:
    proven_by = collect_bed_proof(state, challenger)
    return Verdict(
        "improved" if proven_by.is_proven else "no-improvement",
        challenger,
        proven_by.compute_gain(),
        beds=proven_by.gain_by_bed,
        disagree=proven_by.beds_disagree,
    )
