"""The ranking of a study's trials: candidates, leader, reference, the readings of the proof, and what
they let the study claim.

All of it follows from the state. Once the search has ended, candidates are ranked by what the model
estimates (``State.posterior``): one reading alone overstates the best by about a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from math import hypot
from typing import Any

from autotune.estimate import Estimate
from autotune.optimize import ranking
from autotune.optimize.beds import BedReading
from autotune.optimize.confirmation import BedProof, Gain, Measured, gain, proven, spread
from autotune.optimize.drift import Drift, drift
from autotune.optimize.ranking import DECIDED, better, pooled, winner
from autotune.study.records import COUNTED, OPENING, Phase, State, Trial

LEAST_MEASURED = 10  # configurations that a model needs to tell apart what mattered
# A finalist must stand within so many sds of the leader.
PLAUSIBLE = 2.0
FINALS = (Phase.FINALIST, Phase.RUNNER_UP)  # measurements after the search, before the claim
LEAST_REPEATS = 3  # before their spread says anything
# Phases whose measurements did not select the configuration that they measure; those before the proof.
BEFORE_PROOF = (Phase.BASELINE, Phase.REFERENCE, *FINALS)
REPEATED = (*BEFORE_PROOF, Phase.CONFIRM)


def works(trials: Sequence[Trial]) -> list[Trial]:
    """Those that met the objective."""
    return [trial for trial in trials if trial.meets]


def measured(state: State) -> list[Trial]:
    """The trials that the budget counts and that have a capacity."""
    return works(state.finished(*COUNTED))


def estimates(state: State, trials: Sequence[Trial]) -> list[tuple[int, Estimate]]:
    """Trials that met the objective, by the configuration they stand for, in their order; as an
    average test bed would have measured them."""
    return [(state.configuration(trial), state.level(trial)) for trial in works(trials)]


def _first_estimates(state: State, trials: Sequence[Trial]) -> dict[int, Estimate]:
    """By configuration, its estimate in ``trials``. If one was suggested several times, its measurements
    are pooled; one that was pruned has only a ceiling, which a later measurement replaces."""
    measured: dict[int, list[Trial]] = {}
    for trial in works(trials):
        measured.setdefault(state.configuration(trial), []).append(trial)
    return {number: _pooled(state, tried) for number, tried in measured.items()}


def _pooled(state: State, tried: Sequence[Trial]) -> Estimate:
    full = [trial for trial in tried if trial.peak and not trial.peak.screened] or tried[-1:]
    levels = [state.level(trial) for trial in full]
    return Estimate.pool(levels) if len(levels) > 1 else levels[0]


def candidates(state: State) -> dict[int, Estimate]:
    """All configurations but the baseline, as estimated before they are measured again."""
    baselines = {state.configuration(t) for t in state.finished(Phase.BASELINE)}
    searched = [t for t in state.finished(*COUNTED) if state.configuration(t) not in baselines]
    measured = _first_estimates(state, searched)
    if state.posterior is None:
        return measured
    believed = state.posterior.peaks
    return {trial: believed[trial] for trial in measured if trial in believed}


def incumbent(state: State) -> Estimate | None:
    """The peak to beat: that of the best configuration so far, its measurements as a reference included,
    so that a lucky first one does not prune what is as good. Pruned trials have a ceiling, no peak."""
    full = [t for t in measured(state) if t.peak and not t.peak.screened]
    peaks, again = _first_estimates(state, full), _repeats(state, Phase.REFERENCE)
    pooled_peaks = {n: Estimate.pool([peaks[n], *more]) for n, more in again.items() if n in peaks}
    return max((peaks | pooled_peaks).values(), key=lambda peak: peak.log_mean, default=None)


def pruned_too_early(state: State, chance: float) -> Trial | None:
    """A preset that was pruned against a peak which did not last: by what is known of the incumbent now,
    it has at least this ``chance`` to beat it. Each is measured once more, whatever comes of it."""
    again = {state.configuration(t) for t in state.begun(*OPENING) if t.of is not None}
    pruned = [
        (trial, replace(state.level(trial), sd=trial.peak.upper_sd))
        for trial in works(state.finished(*OPENING))
        if trial.peak and trial.peak.screened and state.configuration(trial) not in again
    ]
    # Most studies have none in doubt, and those of many beds ask often.
    to_beat = incumbent(state) if pruned else None
    doubtful = (
        trial for trial, ceiling in pruned if to_beat and better(ceiling, to_beat) >= chance
    )
    return next(doubtful, None)


def finalists(state: State, most: int, least: int) -> tuple[int, ...]:
    """The trials to measure again, best first: those that may well be the best one.

    The best of what was known before the search is one of them, if it may well be the best: it was
    not picked from many for a lucky measurement, and nobody wants to end below what guides advise.
    """
    estimated = candidates(state)
    ranked = sorted(estimated, key=lambda trial: estimated[trial].log_mean, reverse=True)
    leads = {trial: estimated[ranked[0]].ratio(estimated[trial]) for trial in ranked}
    plausible = [t for t, lead in leads.items() if lead.log_mean < PLAUSIBLE * lead.sd]
    chosen = [trial for place, trial in enumerate(ranked)
              if place < least or trial in plausible][:most]  # fmt: skip
    advised = next((n for n in plausible if state.by_number(n).phase in OPENING), None)
    if advised is None or advised in chosen:
        return tuple(chosen)
    return (*chosen[:-1], advised)


def best(state: State) -> int | None:
    """The trial that would win now: not yet a claim. Once the search has ended, that is the best preset
    unless another trial is likely to be better. Where changes that do nothing were reverted, it is
    the trial that measured the remaining ones."""
    stock, numbers = baseline(state), {trial.number for trial in state.trials}
    others = numbers - {stock.number} if stock else numbers
    proving = (t.of for t in state.finished(Phase.CONFIRM) if t.of in others)
    if (begun := next(proving, None)) is not None:
        return begun
    number, simple = leader(state), state.simplified
    if number is None or simple is None or simple.get("of") != number:
        return number
    accepted = simple.get("accepted")
    return number if accepted is None else int(accepted)


def leader(state: State) -> int | None:
    """The trial that would win now, with all of its changes."""
    return winner(candidates(state), _again(state, *FINALS), _presets(state))


def rivals(state: State) -> tuple[int, int] | None:
    """`optimize.ranking.rivals` of the finalists; also ``None`` where nothing was measured again."""
    again = _again(state, Phase.FINALIST)
    return ranking.rivals(pooled(candidates(state), again), _presets(state)) if again else None


def undecided(state: State, first: int, second: int) -> bool:
    """Whether it may still turn out which of two finalists is better."""
    estimates = pooled(candidates(state), _again(state, *FINALS))
    return ranking.undecided(estimates[first], estimates[second])


def carries_less(state: State, number: int, trial: Trial) -> bool:
    """Whether a configuration, as measured once more, clearly carries less than trial ``number``."""
    estimate = pooled(candidates(state), _again(state, *FINALS))[number]
    return better(estimate, _repeat(state, state.level(trial))) >= DECIDED


def _presets(state: State) -> frozenset[int]:
    """Trials of configurations that guides or the user advise, once the search has ended."""
    if state.posterior is None:
        return frozenset()
    advised = state.finished(*(OPENING - {Phase.BASELINE}))
    return frozenset(trial.number for trial in advised)


def _again(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """Measurements in the finals, as precise as one measurement of any configuration is."""
    repeats = _repeats(state, *phases)
    return {number: [_repeat(state, peak) for peak in peaks] for number, peaks in repeats.items()}


def _repeats(state: State, *phases: Phase) -> dict[int, list[Estimate]]:
    """The measurements in ``phases``, by configuration."""
    repeats: dict[int, list[Estimate]] = {}
    for number, peak in estimates(state, state.finished(*phases)):
        repeats.setdefault(number, []).append(peak)
    return repeats


def _repeat(state: State, estimate: Estimate) -> Estimate:
    """A measurement with the noise of the study, to choose by: the model's noise is added to its own
    sd, and the result is no less than what repeats show. The proof does not count: what it shows must
    not change which configuration is proven."""
    noisy = estimate.noisier(_reading_noise(state))
    of_repeats = 0.0 if state.values else _noise_of_repeats(state, *BEFORE_PROOF)
    return replace(noisy, sd=max(noisy.sd, of_repeats))


def _believed_noise(state: State) -> float:
    """The sd of one more measurement's logarithm as the model has it."""
    return state.posterior.noise if state.posterior else 0.0


def _reading_noise(state: State) -> float:
    """The same for a choice between configurations. A benchmark command's values have all of their noise
    in their sd."""
    if state.posterior is None or state.values:
        return _believed_noise(state)
    return state.posterior.reading_noise


def _noise_of_repeats(state: State, *phases: Phase) -> float:
    """The sd of one more measurement's logarithm as repeats in ``phases`` show it, their own imprecision
    included; 0 where there are too few.

    Each repeat is compared with the one before it on the same test bed, so that neither drift nor
    differences between beds are taken for noise. A measurement that selected its configuration does
    not count.
    """
    repeats: dict[tuple[str | None, int], list[float]] = {}
    for trial in works(state.finished(*phases)):
        of = (trial.bed, state.configuration(trial))
        repeats.setdefault(of, []).append(state.level(trial).log_mean)
    steps = [b - a for logs in repeats.values() for a, b in pairwise(logs)]
    return spread(steps) if len(steps) >= LEAST_REPEATS else 0.0


def baseline(state: State) -> Trial | None:
    """The first baseline trial that was measured, or else the first of all of them."""
    baselines = state.finished(Phase.BASELINE)
    return next((t for t in baselines if not t.unmeasured), next(iter(baselines), None))


def reference(state: State) -> Trial | None:
    """The configuration measured again and again to see the stack drift: the best of those known
    before the search.

    No other fixed configuration is nearer to those that the search compares, and it is quicker to
    measure than a poor one.
    """
    if references := state.finished(Phase.REFERENCE):
        return state.by_number(state.configuration(references[0]))  # a series of one configuration
    presets = [t for t in works(state.finished(*OPENING)) if t.peak and not t.peak.screened]
    usable = presets or works(state.finished(*COUNTED))[:1]
    return max(usable, key=lambda t: state.level(t).log_mean, default=None)


def drifted(state: State) -> Drift:
    """How the stack has changed since the study began, as its reference shows. On several test beds the
    shifts are what each bed adds to a peak, its own changes included."""
    drifts = drift_by_bed(state)
    if not state.beds:
        return drifts[None]
    strongest = max(drifts.values(), key=lambda drift: drift.chance)
    return replace(strongest, beds={bed: state.offset(bed).sd for bed in state.beds}, shifts={
        trial.number: _shift(state, trial, drifts[trial.bed]) for trial in state.trials if trial.bed
    })  # fmt: skip


def drift_by_bed(state: State) -> dict[str | None, Drift]:
    """How each test bed has changed; without any, the stack (``None``)."""
    chosen = reference(state)
    measured: dict[str | None, dict[int, Estimate]] = {bed: {} for bed in state.beds or (None,)}
    numbers: dict[str | None, list[int]] = {bed: [] for bed in measured}
    for trial in state.trials:
        if trial.bed in numbers:
            numbers[trial.bed].append(trial.number)
    # Without the measurement that the reference was chosen by: it is likely to be too high, and later
    # ones would look like a decline.
    for trial in works(state.finished(Phase.REFERENCE)):
        of_chosen = chosen and state.configuration(trial) == chosen.number
        if of_chosen and trial.bed in measured and trial.peak:
            measured[trial.bed][trial.number] = trial.peak.estimate
    return {bed: drift(measured[bed], numbers[bed]) for bed in measured}


def _shift(state: State, trial: Trial, drift: Drift) -> Estimate:
    offset, own = state.offset(trial.bed), drift.shifts.get(trial.number, Estimate(0.0, 0.0))
    return Estimate(own.log_mean + offset.log, hypot(own.sd, offset.excess))


def bed_readings(state: State) -> list[BedReading]:
    """Readings that show how test beds differ: of configurations that they did not select, and of the
    baseline of each bed. Peaks are corrected to today's level for the drift of their bed."""
    drifts, stock = drift_by_bed(state), baseline(state)
    return [
        BedReading(
            stock.number
            if stock and trial.phase is Phase.BASELINE
            else state.configuration(trial),
            trial.bed,
            trial.peak.estimate.ratio(drifts[trial.bed].shifts.get(trial.number, Estimate(0.0, 0.0))),
        )
        for trial in works(state.finished(*REPEATED))
        if trial.bed and trial.bed in drifts and trial.peak is not None
    ]  # fmt: skip


def confirmations(
    state: State, challenger: int, phase: Phase = Phase.CONFIRM, bed: str | None = None
) -> list[Measured]:
    """The alternating measurements so far, in the order taken; those of one test bed, or whole pairs of
    all beds. Their sd includes the noise of the study: the model's noise is added to their own sd, and
    the result is no less than what repeats show.

    A benchmark command's values have all of their noise in their sd: it was given, or learned from
    repeats (`measure.repeats`).
    """
    if state.beds and bed is None:
        return [
            m for each in state.beds for m in whole(confirmations(state, challenger, phase, each))
        ]
    believed = of_repeats = 0.0
    if not state.values:
        believed, of_repeats = _believed_noise(state), _noise_of_repeats(state, *REPEATED)
    noisy = [(trial, _beside(state, trial).noisier(believed))
             for trial in works(state.finished(phase)) if trial.bed == bed]  # fmt: skip
    return [
        Measured(
            state.configuration(trial) == challenger, replace(peak, sd=max(peak.sd, of_repeats))
        )
        for trial, peak in noisy
    ]


def whole(measured: list[Measured]) -> list[Measured]:
    """Only whole pairs of these measurements."""
    return measured[: len(measured) // 2 * 2]


def _beside(state: State, trial: Trial) -> Estimate:
    """A peak without its test bed's offset, to compare with peaks of other beds. The uncertainty of the
    offset is left out: both sides of a pair are of one bed, so it does not affect their ratio."""
    assert trial.peak is not None
    peak = trial.peak.estimate
    return Estimate(peak.log_mean - state.offset(trial.bed).log, peak.sd) if trial.bed else peak


@dataclass(frozen=True)
class Verdict:
    """``gain`` comes from readings taken after the winner was chosen, or is ``None``; ``peaks_from``
    are the phases whose measurements give the peak shown for ``best``. ``beds`` is the gain on each
    test bed, where there are several, and ``disagree`` whether they differ by more than noise."""

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


def baseline_meets(state: State) -> bool:
    """Whether the baseline met the objective at any rate: only then is there a gain to compare."""
    stock = baseline(state)
    return stock is not None and stock.peak is not None and stock.peak.feasible


def conclude(state: State) -> Verdict:
    """The verdict on a study that has nothing left to measure."""
    challenger, meets = best(state), baseline_meets(state)
    if challenger is None:
        return Verdict("no-improvement" if meets else "unmeetable", None, None)
    if not meets:
        # Nothing to compare with: that it meets the objective at all is the improvement, if a
        # second, fresh measurement found the same.
        again = estimates(state, state.finished(Phase.FINALIST))
        twice = any(trial == challenger for trial, _ in again)
        return Verdict("improved" if twice else "unmeetable", challenger, None)
    if state.beds:
        return _on_beds(state, challenger)
    measured = confirmations(state, challenger)
    improved = proven(measured)
    return Verdict("improved" if improved else "no-improvement", challenger, gain(measured))


def proof(state: State, challenger: int) -> BedProof:
    """The proof so far, of each test bed."""
    return BedProof({bed: whole(confirmations(state, challenger, bed=bed)) for bed in state.beds})


def _on_beds(state: State, challenger: int) -> Verdict:
    proven_by = proof(state, challenger)
    return Verdict(
        "improved" if proven_by.proven else "no-improvement",
        challenger,
        proven_by.gain(),
        beds=proven_by.gains,
        disagree=proven_by.disagree,
    )
