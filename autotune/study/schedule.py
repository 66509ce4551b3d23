"""What a study does next, worked out from what it has done: resuming needs nothing else.

Baseline → recommended, advised and published configurations of every deployment, and the user's own →
search, with a reference measured again every few trials → the leaders again → the leader and the best
preset (or the second best) in alternation, while there is time → the winner without what does nothing →
that and the baseline in alternation → verdict. An interrupted trial is repeated first.

Test beds go through these stages together, each asking for its own next step: a bed never waits for
another one inside a stage, and goes on to the next when nothing of the last is under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import exp

from autotune.measure.capacity import SearchLimits
from autotune.optimize import confirmation
from autotune.optimize.confirmation import SideMeasurement
from autotune.services.base import Settings
from autotune.space.dimension import PRESET_NAMES
from autotune.space.space import SearchSpace
from autotune.study.ranking import (
    baseline_meets_slo,
    collect_bed_proof,
    estimate_candidates,
    find_baseline,
    find_best_trial,
    find_doubtful_pruning,
    find_leader,
    find_reference,
    find_rough_incumbent,
    is_exploring,
    is_undecided,
    list_confirmations,
    select_feasible_trials,
    select_finalist_pair,
    select_finalists,
)
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State, Trial
from autotune.target.model import Budget

# Configurations measured again at the end: at least so many, more where there is time and they are
# hard to tell apart.
MIN_FINALISTS = 2
MAX_FINALISTS = 4
# Trials of the search between two measurements of the reference. Those that were screened out cost
# and say little, and drift does them little harm: SCREENED_FOR_ONE of them count as one.
REFERENCE_INTERVAL_TRIALS = 6
PRUNED_TRIALS_DIVISOR = 3
# The last part of the time is kept for proof: enough for the finalists and the least number of pairs at
# the pace of the study so far, up to this share. The measurements of the pairs share it.
MAX_RESERVE_SHARE = 0.45
MIN_MEASUREMENT_SECONDS = 15.0  # of a measurement: in less, nothing is learned
# What the least number of pairs and one block of changes need is kept in any case, up to this share.
MIN_PROOF_SECONDS = (2 * confirmation.MIN_PAIRS + 1) * MIN_MEASUREMENT_SECONDS
MAX_PROOF_SHARE = 0.6
MAX_SHORTENING_FACTOR = (
    3.0  # a measurement can be cut short to the average time of one divided by this
)
SHORT_PROOF_SHARE = 0.75  # of the usual proof, if a rough finalist is measured again
ROUGH_TRIAL_SHARE = 0.5  # seconds of a rough trial, as a share of those of a precise one
MAX_OVERRUN_FACTOR = (
    1.05  # of the time: a pair begins only if it can be expected to end within this
)
MAX_PAIRS = 6
MAX_RUNNER_UP_PAIRS = 2
# Blocks of a winner's changes that are measured reverted: how many the search leaves time for, how many
# a comparison with the best preset leaves time for, and the most that are measured.
RESERVED_BLOCKS, MIN_BLOCKS, MAX_BLOCKS = 4, 2, 8
# Measurements of the confirmation that may fail (the generator starved, say) and be made again.
MAX_FAILED_CONFIRMATIONS = 2
# Measurements of the best trial after a baseline that missed the objective.
MAX_REPRODUCTIONS = 3
# Of the trials, for known configurations: with many deployments the search must have its share.
MAX_OPENING_SHARE = 0.5


@dataclass(frozen=True)
class MeasureStep:
    """Measure these settings; ``suggested`` are the values that came from the sampler.
    ``replaced_trial`` is the trial that this one repeats, where another test bed did not end it."""

    phase: Phase
    settings: Settings
    source_trial: int | None = None
    suggestion_number: int | None = None
    suggested: Settings = field(default_factory=dict)
    replaced_trial: int | None = None


@dataclass(frozen=True)
class WaitStep:
    """Nothing to measure until a trial of another test bed is over."""


@dataclass(frozen=True)
class SuggestStep:
    """Ask the sampler for a configuration and measure it."""


@dataclass(frozen=True)
class RankStep:
    """Ask the model where the measured configurations stand."""


@dataclass(frozen=True)
class ConcludeStep:
    """Nothing is left to measure."""


@dataclass(frozen=True)
class SimplifyStep:
    """Ask the model which changes of this trial do nothing."""

    trial_number: int


ScheduleStep = MeasureStep | SuggestStep | RankStep | SimplifyStep | WaitStep | ConcludeStep


def select_next_step(
    state: State, space: SearchSpace, budget: Budget, elapsed: float, bed: str | None = None
) -> ScheduleStep:
    """The next step, of a test bed if there are several; ``elapsed`` are the seconds spent on the
    study, all sessions together."""
    return (
        _plan_interrupted(state, bed)
        or _plan_opening(state, space, budget, elapsed, bed)
        or _plan_search(state, space, budget, elapsed, bed)
        or _plan_wait(state, *COUNTED_PHASES, Phase.REFERENCE)
        or _plan_ranking(state)
        or _plan_finals(state, budget, elapsed)
        or _plan_wait(state, Phase.FINALIST)
        or _plan_runner_up(state, budget, elapsed, bed)
        or _plan_wait(state, Phase.RUNNER_UP)
        or _plan_wait(state, Phase.SIMPLIFIED)
        or _plan_simplification(state, budget, elapsed)
        or _plan_reproduction(state, budget, elapsed)
        or _plan_wait(state, Phase.FINALIST, Phase.BASELINE)
        or _plan_confirmation(state, budget, elapsed, bed)
        or _plan_wait(state, Phase.CONFIRM)
        or ConcludeStep()
    )


def _plan_interrupted(state: State, bed: str | None) -> ScheduleStep | None:
    """What this bed was measuring when it was killed, then what beds that are gone did not end."""
    last = next((trial for trial in reversed(state.trials) if trial.bed == bed), None)
    if last is not None and not last.is_finished and last.number not in state.repeated_numbers:
        return MeasureStep(
            last.phase,
            last.settings,
            last.of,
            last.asked,
            last.suggested,
            replaced_trial=last.repeats,
        )
    for trial in _find_abandoned_trials(state):
        return MeasureStep(
            trial.phase,
            trial.settings,
            trial.of,
            trial.asked,
            trial.suggested,
            replaced_trial=trial.number,
        )
    return None


# Trials that belong to the bed they were begun on: its own baseline and reference, one side of a pair.
BED_SPECIFIC_PHASES = frozenset({Phase.BASELINE, Phase.REFERENCE, Phase.RUNNER_UP, Phase.CONFIRM})


def _find_abandoned_trials(state: State) -> list[Trial]:
    """Trials that test beds which no longer take part did not end, and no other one has repeated."""
    gone = [trial for bed, trial in state.last_trial_by_bed.items() if bed not in state.active_beds]
    left = [t for t in gone if not t.is_finished and t.phase not in BED_SPECIFIC_PHASES]
    repeated = {trial.repeats for trial in state.trials} if left else ()
    return [trial for trial in left if trial.number not in repeated]


def _plan_wait(state: State, *phases: Phase) -> ScheduleStep | None:
    return WaitStep() if state.list_running(*phases) else None


def _plan_opening(
    state: State, space: SearchSpace, budget: Budget, elapsed: float, bed: str | None
) -> ScheduleStep | None:
    """The next configuration that is known beforehand: each deployment has its turn early.

    An advised or a published configuration has one only where its deployment may be the best. After
    the presets come the user's own configurations and an earlier study's, except for those that have
    the same effect as an earlier one.
    """
    if not _can_search(state, budget, elapsed):
        return None
    # A baseline that a fault of the benchmark left unmeasured is measured once that is mended.
    counting = [t for phase in OPENING_PHASES for t in state.trials_by_phase.get(phase, ())
                if not (t.is_unmeasured and phase is Phase.BASELINE)]  # fmt: skip
    if not any(t.bed == bed and t.phase is Phase.BASELINE for t in counting):
        return MeasureStep(Phase.BASELINE, space.baseline)
    done = [(t.phase, _select_deployment(t.settings, space)) for t in counting]
    maximum = max(3, int(MAX_OPENING_SHARE * budget.trials))
    tried, clamped = list[Settings](), space.with_clamps(state.clamps)
    effects: list[Settings] = []  # of those tried
    for phase, settings in _iterate_presets(space):
        acts, effect = (
            select_active_settings(settings, space),
            select_active_settings(clamped.get_effective(settings), space),
        )
        if acts in tried:
            continue
        new = (phase, _select_deployment(settings, space)) not in done and effect not in effects
        tried.append(acts)
        effects.append(effect)
        always = phase in (Phase.BASELINE, Phase.RECOMMENDED)
        if new and len(tried) <= maximum and (always or _may_be_best(state, space, settings)):
            return MeasureStep(phase, settings)
    untried = _find_untried(state, space, clamped, tried)
    return MeasureStep(Phase.TRY_FIRST, untried) if untried is not None else None


def _find_untried(
    state: State, space: SearchSpace, clamped: SearchSpace, tried: Sequence[Settings]
) -> Settings | None:
    """Return the next of the user's and an earlier study's configurations, or ``None`` after the last.

    Configurations with the effect of a measured one are left out. ``clamped`` is the space with the
    clamps that deployments showed.
    """
    pending, seen_settings = list[Settings](), list(tried)
    for changes in (*space.try_first, *state.transferred):
        settings = {**space.baseline, **changes}
        if (acts := select_active_settings(settings, space)) not in seen_settings:
            seen_settings.append(acts)
            pending.append(settings)

    def find_effect(settings: Settings) -> Settings:
        return select_active_settings(clamped.get_effective(settings), space)

    measured = [find_effect(t.settings) for t in state.list_started(*OPENING_PHASES)]
    for trial in sorted(state.list_started(Phase.TRY_FIRST), key=lambda trial: trial.number):
        # A trial is of the first pending one, unless that one was left out: clamps are found later.
        first_new = next(
            (n for n, s in enumerate(pending) if find_effect(s) not in measured), len(pending)
        )
        candidates = pending[: first_new + 1]
        if candidates:
            shared = [
                _count_shared(trial.settings, s, clamped.get_effective(s)) for s in candidates
            ]
            pending = pending[shared.index(max(shared)) + 1 :]
    return next((s for s in pending if find_effect(s) not in measured), None)


def _count_shared(settings: Settings, *others: Settings) -> int:
    """Return the number of values that ``settings`` shares with any of ``others``."""
    return sum(any(other.get(n) == value for other in others) for n, value in settings.items())


def _may_be_best(state: State, space: SearchSpace, settings: Settings) -> bool:
    """Whether a deployment may be the best one, going by what was measured of it so far."""
    deployment = _select_deployment(settings, space)
    usable = select_feasible_trials(state.list_finished(*COUNTED_PHASES))
    level = {bed: exp(-state.bed_offset(bed).log) for bed in {t.bed for t in usable}}
    lows = [level[t.bed] * t.peak.low for t in usable if t.peak and not t.peak.is_pruned]
    highs = [level[t.bed] * t.peak.high for t in usable
             if t.peak and _select_deployment(t.settings, space) == deployment]  # fmt: skip
    return not lows or max(highs, default=0.0) >= max(lows)


def select_active_settings(settings: Settings, space: SearchSpace) -> Settings:
    """Those of ``settings`` that have an effect."""
    active = space.active_parameters(settings)
    return {name: value for name, value in settings.items() if name in active}


def _iterate_presets(space: SearchSpace) -> Iterator[tuple[Phase, Settings]]:
    yield Phase.BASELINE, space.baseline
    for phase in map(Phase, PRESET_NAMES):
        for deployment in space.deployments:
            yield phase, space.preset_settings(str(phase), deployment)


def _select_deployment(settings: Settings, space: SearchSpace) -> Settings:
    """Which software of each tier these settings choose."""
    return {name: settings[name] for name in space.deployments[0] if name in settings}


def _plan_search(
    state: State, space: SearchSpace, budget: Budget, elapsed: float, bed: str | None
) -> ScheduleStep | None:
    later = state.list_finished(Phase.FINALIST, Phase.CONFIRM)
    over = later or state.settled or state.posterior or not space.tunable_dimensions
    if over or not _can_search(state, budget, elapsed):
        return None
    return (
        _plan_reference(state, bed)
        or _plan_preset_repeat(state)
        or _plan_refinement(state)
        or SuggestStep()
    )


def _plan_refinement(state: State) -> ScheduleStep | None:
    """Return a precise measurement of a rough incumbent, once no further rise by factors is likely."""
    rough = None if is_exploring(state) else find_rough_incumbent(state)
    return MeasureStep(rough.phase, rough.settings, source_trial=rough.number) if rough else None


def _plan_preset_repeat(state: State) -> ScheduleStep | None:
    """A preset whose pruning a later measurement of the incumbent has put in doubt: what a study ends
    with is compared with the best preset, so that one must be known."""
    pruned = find_doubtful_pruning(state, SearchLimits.early_prune_probability)
    return (
        MeasureStep(pruned.phase, pruned.settings, source_trial=pruned.number) if pruned else None
    )


def _plan_reference(state: State, bed: str | None) -> ScheduleStep | None:
    """The reference, when its last measurement on this bed has become old."""
    chosen = find_reference(state)
    if chosen is None:
        return None
    own = [t for t in (chosen, *state.list_finished(Phase.REFERENCE)) if t.bed == bed]
    last = max((t.number for t in own), default=-1)
    since = [t for t in state.list_finished(*COUNTED_PHASES) if t.number > last and t.bed == bed]
    screened = sum(t.peak is None or t.peak.is_pruned for t in since)
    if len(since) - screened + screened / PRUNED_TRIALS_DIVISOR < REFERENCE_INTERVAL_TRIALS:
        return None
    return MeasureStep(
        Phase.REFERENCE, chosen.settings, source_trial=state.configuration_number(chosen)
    )


def _plan_ranking(state: State) -> ScheduleStep | None:
    return RankStep() if state.posterior is None and estimate_candidates(state) else None


def _can_search(state: State, budget: Budget, elapsed: float) -> bool:
    """Whether another trial fits before the time kept for proof."""
    counted = len(state.list_counted(include_running=True))
    # One that does not fit at the pace so far is cut short (``allowance``).
    minimum = min(average_trial_seconds(state), 2 * MIN_MEASUREMENT_SECONDS)
    # With only a baseline there is nothing to prove yet.
    kept = compute_reserve_seconds(state, budget) if counted > 1 else 2 * MIN_MEASUREMENT_SECONDS
    fits = elapsed + minimum <= budget.time - kept
    return counted == 0 or (counted < budget.trials and fits)


def compute_reserve_seconds(state: State, budget: Budget) -> float:
    """Seconds kept for re-measuring the leaders, and for simplifying and proving the winner."""
    if misses_slo(state):
        return min(
            MAX_REPRODUCTIONS * average_trial_seconds(state) + MIN_MEASUREMENT_SECONDS,
            max_reserve_seconds(budget),
        )
    before = _measurements_per_bed(state, MIN_FINALISTS) + RESERVED_BLOCKS
    needed = before * average_trial_seconds(state) + min_proof_seconds(state)
    return min(needed, max_reserve_seconds(budget))


def max_reserve_seconds(budget: Budget) -> float:
    """Seconds that are kept from the search, at most."""
    return max(
        MAX_RESERVE_SHARE * budget.time, min(MIN_PROOF_SECONDS, MAX_PROOF_SHARE * budget.time)
    )


def min_proof_seconds(state: State) -> float:
    """Seconds that the least number of pairs take."""
    return 2 * _measurements_per_bed(state, confirmation.MIN_PAIRS) * average_trial_seconds(state)


def average_trial_seconds(state: State) -> float:
    """Return the average seconds of a trial on its test bed, as if no trial were rough.

    The finals and the proof measure precisely, so rough trials must not shorten the time kept for them.
    """
    spent = sum(state.bed_seconds.values()) or state.elapsed_seconds
    rough = sum(trial.peak is not None and trial.peak.is_rough for trial in state.trials)
    full_count = state.measured_count - (1.0 - ROUGH_TRIAL_SHARE) * rough
    return spent / full_count if full_count else 0.0


def _measurements_per_bed(state: State, count: int) -> int:
    """How many measurements the busiest bed makes where the active beds share ``count`` of them."""
    return -(-count // max(1, len(state.active_beds)))


def compute_time_limit(state: State, phase: Phase, budget: Budget, elapsed: float) -> float:
    """Seconds that a measurement may take. The search leaves the proof its time, which is divided among
    the least number of measurements that the proof needs."""
    left = budget.time - elapsed
    if phase is Phase.CONFIRM:
        pairs = 2 * confirmation.MIN_PAIRS - len(state.list_finished(Phase.CONFIRM))
        return max(MIN_MEASUREMENT_SECONDS, left / max(1, _measurements_per_bed(state, pairs)))
    if phase in COUNTED_PHASES or phase is Phase.REFERENCE:
        # The first must leave time for at least one more, which may be better.
        first = max(max_reserve_seconds(budget), MIN_PROOF_SECONDS + 2 * MIN_MEASUREMENT_SECONDS)
        kept = (
            compute_reserve_seconds(state, budget)
            if state.list_finished(*COUNTED_PHASES)
            else first
        )
        return max(MIN_MEASUREMENT_SECONDS, left - kept)
    # Where time is short, a block of changes gets no more than each measurement of the proof.
    return max(
        MIN_MEASUREMENT_SECONDS,
        left - min_proof_seconds(state),
        left * MIN_MEASUREMENT_SECONDS / MIN_PROOF_SECONDS,
    )


def _plan_finals(state: State, budget: Budget, elapsed: float) -> ScheduleStep | None:
    if elapsed >= budget.time or state.list_started(Phase.CONFIRM):
        return None
    done = state.list_started(Phase.FINALIST)
    measured = {trial.of for trial in done}
    each = max(average_trial_seconds(state), 1e-9)
    proof = min_proof_seconds(state)
    # Rough finalists are measured again first, even if the proof gets shorter measurements for it.
    proof *= SHORT_PROOF_SHARE if _has_rough_finalist(state) else 1.0
    fitting = int((budget.time - elapsed - proof) / each)
    # The leaders have precedence over blocks of changes.
    fitting = max(fitting - RESERVED_BLOCKS, min(fitting, MIN_FINALISTS - len(done)), 0)
    left = fitting * max(1, len(state.active_beds)) + len(done)
    maximum = min(left, MAX_FINALISTS)
    # Measuring one finalist alone again would decide nothing.
    for number in (
        select_finalists(state, maximum, MIN_FINALISTS) if maximum >= MIN_FINALISTS else ()
    ):
        if number not in measured:
            return MeasureStep(
                Phase.FINALIST, state.find_trial(number).settings, source_trial=number
            )
    return None


def _has_rough_finalist(state: State) -> bool:
    """True if the peak of one of the two best configurations is rough."""
    best = select_finalists(state, MIN_FINALISTS, MIN_FINALISTS)
    peaks = [state.find_trial(number).peak for number in best]
    return any(peak is not None and peak.is_rough for peak in peaks)


def _plan_simplification(state: State, budget: Budget, elapsed: float) -> ScheduleStep | None:
    """The winner without changes that have no effect by the model, block by block, before its proof."""
    number, last = find_leader(state), state.simplified
    measured = len(state.list_started(Phase.SIMPLIFIED))
    if (
        number is None
        or state.posterior is None
        or state.list_started(Phase.CONFIRM)
        or state.values
    ):
        return None
    if not baseline_meets_slo(state):
        return None
    if last is None or measured > last.get("measured", 0):
        return SimplifyStep(number)
    needed = average_trial_seconds(state) + min_proof_seconds(state)
    # The first block, of what guides say hardly matters, even if the proof must be cut short for it.
    needed = (
        needed if measured else min(needed, max(MIN_PROOF_SECONDS, needed / MAX_SHORTENING_FACTOR))
    )
    latest = budget.time * (1.0 if measured else MAX_OVERRUN_FACTOR)
    if not last["reverted"] or measured >= MAX_BLOCKS or elapsed + needed > latest:
        return None
    return MeasureStep(Phase.SIMPLIFIED, last["settings"], source_trial=number)


def misses_slo(state: State) -> bool:
    """True if the baseline was measured and met the objective at no rate."""
    stock = find_baseline(state)
    return stock is not None and stock.peak is not None and stock.peak.verdict == "unmeetable"


def _plan_reproduction(state: State, budget: Budget, elapsed: float) -> ScheduleStep | None:
    """Return a repeated measurement after a baseline that missed the objective.

    No comparison is possible then, so the time kept for it is used otherwise. The baseline is measured
    once more, because a disturbance may be the cause. Then the best trial is measured until the result
    was reproduced.
    """
    each = min(average_trial_seconds(state), 2 * MIN_MEASUREMENT_SECONDS)
    if state.values or not misses_slo(state) or elapsed + each > budget.time:
        return None
    stock, challenger = find_baseline(state), find_best_trial(state)
    if stock is not None and len(state.list_started(Phase.BASELINE)) <= max(1, len(state.beds)):
        return MeasureStep(Phase.BASELINE, stock.settings, source_trial=stock.number)
    if challenger is None:
        return None
    repeats = [t for t in state.list_started(Phase.FINALIST) if t.of == challenger]
    reproduced = [t for t in repeats if t.is_finished and t.peak and t.peak.is_feasible]
    if reproduced or len(repeats) >= MAX_REPRODUCTIONS:
        return None
    settings = state.find_trial(challenger).settings
    return MeasureStep(Phase.FINALIST, settings, source_trial=challenger)


def _plan_confirmation(
    state: State, budget: Budget, elapsed: float, bed: str | None
) -> ScheduleStep | None:
    """The winner and the baseline in turn, one pair at least."""
    stock, challenger = find_baseline(state), find_best_trial(state)
    if stock is None or challenger is None or stock.peak is None or not stock.peak.is_feasible:
        return None
    measured = list_confirmations(state, challenger)
    proven = len(measured) >= 2 * confirmation.MIN_PAIRS
    each = average_trial_seconds(state)
    pair = 2 * (each if proven else min(each, MIN_MEASUREMENT_SECONDS))
    latest = budget.time if proven else min(budget.time + pair, MAX_OVERRUN_FACTOR * budget.time)
    over = elapsed + pair >= latest and len(measured) >= 2
    over = over or _count_started_pairs(state, Phase.CONFIRM, measured) >= MAX_PAIRS
    decided = (
        collect_bed_proof(state, challenger).is_decided
        if bed
        else confirmation.is_decided(measured)
    )
    return _plan_alternation(
        state, Phase.CONFIRM, challenger, stock.number, bed, is_over=over or decided
    )


def _plan_runner_up(
    state: State, budget: Budget, elapsed: float, bed: str | None
) -> ScheduleStep | None:
    """Before anything is claimed: the leader and its rival, the best preset or the second best, in turn,
    if there is time."""
    compared = select_finalist_pair(state)
    if compared is None or state.list_started(Phase.CONFIRM):
        return None
    kept = min_proof_seconds(state) + MIN_BLOCKS * average_trial_seconds(state)
    over = elapsed + 2 * average_trial_seconds(state) + kept > budget.time
    measured = list_confirmations(state, compared[0], Phase.RUNNER_UP)
    begun = len(state.list_finished(Phase.RUNNER_UP)) / 2
    begun = _count_started_pairs(state, Phase.RUNNER_UP, measured) if bed else begun
    over = over or begun >= MAX_RUNNER_UP_PAIRS or not is_undecided(state, *compared)
    return _plan_alternation(state, Phase.RUNNER_UP, *compared, bed, is_over=over)


def _count_started_pairs(state: State, phase: Phase, measured: Sequence[SideMeasurement]) -> float:
    """The number of pairs ``measured``, including those that test beds are measuring now."""
    if not state.beds:
        return len(measured) / 2
    each = [sum(t.bed == bed for t in state.list_started(phase)) for bed in state.active_beds]
    return sum(-(-count // 2) for count in each)


def _plan_alternation(
    state: State, phase: Phase, first: int, second: int, bed: str | None, *, is_over: bool
) -> ScheduleStep | None:
    """The next of two trials' configurations, in alternation until it is ``is_over``.

    An odd one out is always paired: half a pair says nothing. Each test bed has pairs of its own.
    """
    done = [trial for trial in state.list_finished(phase) if trial.bed == bed]
    measured = list_confirmations(state, first, phase, bed)
    if len(done) - len(measured) > MAX_FAILED_CONFIRMATIONS or (len(measured) % 2 == 0 and is_over):
        return None
    number = first if confirmation.is_winner_turn(len(measured)) else second
    return MeasureStep(phase, state.find_trial(number).settings, source_trial=number)
