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

from autotune.measure.capacity import Limits
from autotune.optimize import confirmation
from autotune.optimize.confirmation import Measured
from autotune.services.base import Settings
from autotune.space.dimension import PRESETS
from autotune.space.space import Space
from autotune.study.ranking import (
    baseline,
    baseline_meets,
    best,
    candidates,
    confirmations,
    finalists,
    leader,
    proof,
    pruned_too_early,
    reference,
    rivals,
    undecided,
    works,
)
from autotune.study.records import COUNTED, OPENING, Phase, State, Trial
from autotune.target.model import Budget

# Configurations measured again at the end: at least so many, more where there is time and they are
# hard to tell apart.
FINALISTS = 2
MOST_FINALISTS = 4
# Trials of the search between two measurements of the reference. Those that were screened out cost
# and say little, and drift does them little harm: SCREENED_FOR_ONE of them count as one.
REFERENCE_EVERY = 6
SCREENED_FOR_ONE = 3
# The last part of the time is kept for proof: enough for the finalists and the least number of pairs at
# the pace of the study so far, up to this share. The measurements of the pairs share it.
MOST_RESERVE = 0.45
LEAST_SECONDS = 15.0  # of a measurement: in less, nothing is learned
# What the least number of pairs and one block of changes need is kept in any case, up to this share.
LEAST_PROOF = (2 * confirmation.LEAST_PAIRS + 1) * LEAST_SECONDS
MOST_PROOF = 0.6
SHORTER = 3.0  # a measurement can be cut short to the average time of one divided by this
OVERRUN = 1.05  # of the time: a pair begins only if it can be expected to end within this
MOST_PAIRS = 6
RUNNER_UP_PAIRS = 2
# Blocks of a winner's changes that are measured reverted: how many the search leaves time for, how many
# a comparison with the best preset leaves time for, and the most that are measured.
BLOCKS, LEAST_BLOCKS, MOST_BLOCKS = 4, 2, 8
# Measurements of the confirmation that may fail (the generator starved, say) and be made again.
MOST_LOST = 2
# Of the trials, for known configurations: with many deployments the search must have its share.
MOST_KNOWN = 0.5


@dataclass(frozen=True)
class Measure:
    """Measure these settings; ``suggested`` are the values that came from the sampler. ``repeats`` is
    the trial that this one repeats, where another test bed did not end it."""

    phase: Phase
    settings: Settings
    of: int | None = None
    asked: int | None = None
    suggested: Settings = field(default_factory=dict)
    repeats: int | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to measure until a trial of another test bed is over."""


@dataclass(frozen=True)
class Ask:
    """Ask the sampler for a configuration and measure it."""


@dataclass(frozen=True)
class Rank:
    """Ask the model where the measured configurations stand."""


@dataclass(frozen=True)
class Conclude:
    """Nothing is left to measure."""


@dataclass(frozen=True)
class Simplify:
    """Ask the model which changes of this trial do nothing."""

    trial: int


Step = Measure | Ask | Rank | Simplify | Wait | Conclude


def next_step(
    state: State, space: Space, budget: Budget, elapsed: float, bed: str | None = None
) -> Step:
    """The next step, of a test bed if there are several; ``elapsed`` are the seconds spent on the
    study, all sessions together."""
    return (
        _interrupted(state, bed)
        or _opening(state, space, budget, elapsed, bed)
        or _searching(state, space, budget, elapsed, bed)
        or _awaiting(state, *COUNTED, Phase.REFERENCE)
        or _ranking(state)
        or _finals(state, budget, elapsed)
        or _awaiting(state, Phase.FINALIST)
        or _against_runner_up(state, budget, elapsed, bed)
        or _awaiting(state, Phase.RUNNER_UP)
        or _awaiting(state, Phase.SIMPLIFIED)
        or _simplifying(state, budget, elapsed)
        or _confirming(state, budget, elapsed, bed)
        or _awaiting(state, Phase.CONFIRM)
        or Conclude()
    )


def _interrupted(state: State, bed: str | None) -> Step | None:
    """What this bed was measuring when it was killed, then what beds that are gone did not end."""
    last = next((trial for trial in reversed(state.trials) if trial.bed == bed), None)
    if last is not None and not last.over and last.number not in state.repeated:
        return Measure(
            last.phase, last.settings, last.of, last.asked, last.suggested, repeats=last.repeats
        )
    for trial in _left_by_others(state):
        return Measure(
            trial.phase,
            trial.settings,
            trial.of,
            trial.asked,
            trial.suggested,
            repeats=trial.number,
        )
    return None


# Trials that belong to the bed they were begun on: its own baseline and reference, one side of a pair.
OF_THE_BED = frozenset({Phase.BASELINE, Phase.REFERENCE, Phase.RUNNER_UP, Phase.CONFIRM})


def _left_by_others(state: State) -> list[Trial]:
    """Trials that test beds which no longer take part did not end, and no other one has repeated."""
    gone = [trial for bed, trial in state.last_on.items() if bed not in state.active_beds]
    left = [t for t in gone if not t.over and t.phase not in OF_THE_BED]
    repeated = {trial.repeats for trial in state.trials} if left else ()
    return [trial for trial in left if trial.number not in repeated]


def _awaiting(state: State, *phases: Phase) -> Step | None:
    return Wait() if state.under_way(*phases) else None


def _opening(
    state: State, space: Space, budget: Budget, elapsed: float, bed: str | None
) -> Step | None:
    """The next configuration that is known beforehand: each deployment has its turn early.

    An advised or a published configuration has one only where its deployment may be the best. After
    the presets come the user's own configurations and an earlier study's, except for those that have
    the same effect as an earlier one.
    """
    if not _may_search(state, budget, elapsed):
        return None
    # A baseline that a fault of the benchmark left unmeasured is measured once that is mended.
    counting = [t for phase in OPENING for t in state.of_phase.get(phase, ())
                if not (t.unmeasured and phase is Phase.BASELINE)]  # fmt: skip
    if not any(t.bed == bed and t.phase is Phase.BASELINE for t in counting):
        return Measure(Phase.BASELINE, space.baseline)
    done = [(t.phase, _deployment(t.settings, space)) for t in counting]
    most = max(3, int(MOST_KNOWN * budget.trials))
    tried, clamped = list[Settings](), space.clamped(state.clamps)
    effects: list[Settings] = []  # of those tried
    for phase, settings in _presets(space):
        acts, effect = acting(settings, space), acting(clamped.in_effect(settings), space)
        if acts in tried:
            continue
        new = (phase, _deployment(settings, space)) not in done and effect not in effects
        tried.append(acts)
        effects.append(effect)
        always = phase in (Phase.BASELINE, Phase.RECOMMENDED)
        if new and len(tried) <= most and (always or _competes(state, space, settings)):
            return Measure(phase, settings)
    untried = []
    for changes in (*space.try_first, *state.transferred):
        settings = {**space.baseline, **changes}
        if (acts := acting(settings, space)) not in tried:
            tried.append(acts)
            untried.append(settings)
    following = untried[len(state.begun(Phase.KNOWN)) :]
    return Measure(Phase.KNOWN, following[0]) if following else None


def _competes(state: State, space: Space, settings: Settings) -> bool:
    """Whether a deployment may be the best one, going by what was measured of it so far."""
    deployment = _deployment(settings, space)
    usable = works(state.finished(*COUNTED))
    level = {bed: exp(-state.offset(bed).log) for bed in {t.bed for t in usable}}
    lows = [level[t.bed] * t.peak.low for t in usable if t.peak and not t.peak.screened]
    highs = [level[t.bed] * t.peak.high for t in usable
             if t.peak and _deployment(t.settings, space) == deployment]  # fmt: skip
    return not lows or max(highs, default=0.0) >= max(lows)


def acting(settings: Settings, space: Space) -> Settings:
    """Those of ``settings`` that have an effect."""
    active = space.active(settings)
    return {name: value for name, value in settings.items() if name in active}


def _presets(space: Space) -> Iterator[tuple[Phase, Settings]]:
    yield Phase.BASELINE, space.baseline
    for phase in map(Phase, PRESETS):
        for deployment in space.deployments:
            yield phase, space.preset(str(phase), deployment)


def _deployment(settings: Settings, space: Space) -> Settings:
    """Which software of each tier these settings choose."""
    return {name: settings[name] for name in space.deployments[0] if name in settings}


def _searching(
    state: State, space: Space, budget: Budget, elapsed: float, bed: str | None
) -> Step | None:
    later = state.finished(Phase.FINALIST, Phase.CONFIRM)
    over = later or state.settled or state.posterior or not space.tunable
    if over or not _may_search(state, budget, elapsed):
        return None
    return _reference(state, bed) or _preset_again(state) or Ask()


def _preset_again(state: State) -> Step | None:
    """A preset whose pruning a later measurement of the incumbent has put in doubt: what a study ends
    with is compared with the best preset, so that one must be known."""
    pruned = pruned_too_early(state, Limits.gate)
    return Measure(pruned.phase, pruned.settings, of=pruned.number) if pruned else None


def _reference(state: State, bed: str | None) -> Step | None:
    """The reference, when its last measurement on this bed has become old."""
    chosen = reference(state)
    if chosen is None:
        return None
    own = [t for t in (chosen, *state.finished(Phase.REFERENCE)) if t.bed == bed]
    last = max((t.number for t in own), default=-1)
    since = [t for t in state.finished(*COUNTED) if t.number > last and t.bed == bed]
    screened = sum(t.peak is None or t.peak.screened for t in since)
    if len(since) - screened + screened / SCREENED_FOR_ONE < REFERENCE_EVERY:
        return None
    return Measure(Phase.REFERENCE, chosen.settings, of=state.configuration(chosen))


def _ranking(state: State) -> Step | None:
    return Rank() if state.posterior is None and candidates(state) else None


def _may_search(state: State, budget: Budget, elapsed: float) -> bool:
    """Whether another trial fits before the time kept for proof."""
    counted = len(state.counted(begun=True))
    # One that does not fit at the pace so far is cut short (``allowance``).
    least = min(trial_seconds(state), 2 * LEAST_SECONDS)
    # With only a baseline there is nothing to prove yet.
    kept = reserve(state, budget) if counted > 1 else 2 * LEAST_SECONDS
    fits = elapsed + least <= budget.time - kept
    return counted == 0 or (counted < budget.trials and fits)


def reserve(state: State, budget: Budget) -> float:
    """Seconds kept for re-measuring the leaders, and for simplifying and proving the winner."""
    before = _turns(state, FINALISTS) + BLOCKS
    needed = before * trial_seconds(state) + proof_seconds(state)
    return min(needed, most_reserved(budget))


def most_reserved(budget: Budget) -> float:
    """Seconds that are kept from the search, at most."""
    return max(MOST_RESERVE * budget.time, min(LEAST_PROOF, MOST_PROOF * budget.time))


def proof_seconds(state: State) -> float:
    """Seconds that the least number of pairs take."""
    return 2 * _turns(state, confirmation.LEAST_PAIRS) * trial_seconds(state)


def trial_seconds(state: State) -> float:
    """Seconds a trial has taken on average, on the test bed that measured it."""
    spent = sum(state.bed_seconds.values()) or state.elapsed
    return spent / state.measured if state.measured else 0.0


def _turns(state: State, count: int) -> int:
    """How many measurements the busiest bed makes where the active beds share ``count`` of them."""
    return -(-count // max(1, len(state.active_beds)))


def allowance(state: State, phase: Phase, budget: Budget, elapsed: float) -> float:
    """Seconds that a measurement may take. The search leaves the proof its time, which is divided among
    the least number of measurements that the proof needs."""
    left = budget.time - elapsed
    if phase is Phase.CONFIRM:
        pairs = 2 * confirmation.LEAST_PAIRS - len(state.finished(Phase.CONFIRM))
        return max(LEAST_SECONDS, left / max(1, _turns(state, pairs)))
    if phase in COUNTED or phase is Phase.REFERENCE:
        # The first must leave time for at least one more, which may be better.
        first = max(most_reserved(budget), LEAST_PROOF + 2 * LEAST_SECONDS)
        kept = reserve(state, budget) if state.finished(*COUNTED) else first
        return max(LEAST_SECONDS, left - kept)
    # Where time is short, a block of changes gets no more than each measurement of the proof.
    return max(LEAST_SECONDS, left - proof_seconds(state), left * LEAST_SECONDS / LEAST_PROOF)


def _finals(state: State, budget: Budget, elapsed: float) -> Step | None:
    if elapsed >= budget.time or state.begun(Phase.CONFIRM):
        return None
    done = state.begun(Phase.FINALIST)
    measured = {trial.of for trial in done}
    each = max(trial_seconds(state), 1e-9)
    fitting = int((budget.time - elapsed - proof_seconds(state)) / each)
    # The leaders have precedence over blocks of changes.
    fitting = max(fitting - BLOCKS, min(fitting, FINALISTS - len(done)), 0)
    left = fitting * max(1, len(state.active_beds)) + len(done)
    most = min(left, MOST_FINALISTS)
    # Measuring one finalist alone again would decide nothing.
    for number in finalists(state, most, FINALISTS) if most >= FINALISTS else ():
        if number not in measured:
            return Measure(Phase.FINALIST, state.by_number(number).settings, of=number)
    return None


def _simplifying(state: State, budget: Budget, elapsed: float) -> Step | None:
    """The winner without changes that have no effect by the model, block by block, before its proof."""
    number, last = leader(state), state.simplified
    measured = len(state.begun(Phase.SIMPLIFIED))
    if number is None or state.posterior is None or state.begun(Phase.CONFIRM) or state.values:
        return None
    if not baseline_meets(state):
        return None
    if last is None or measured > last.get("measured", 0):
        return Simplify(number)
    needed = trial_seconds(state) + proof_seconds(state)
    # The first block, of what guides say hardly matters, even if the proof must be cut short for it.
    needed = needed if measured else min(needed, max(LEAST_PROOF, needed / SHORTER))
    latest = budget.time * (1.0 if measured else OVERRUN)
    if not last["reverted"] or measured >= MOST_BLOCKS or elapsed + needed > latest:
        return None
    return Measure(Phase.SIMPLIFIED, last["settings"], of=number)


def _confirming(state: State, budget: Budget, elapsed: float, bed: str | None) -> Step | None:
    """The winner and the baseline in turn, one pair at least."""
    stock, challenger = baseline(state), best(state)
    if stock is None or challenger is None or stock.peak is None or not stock.peak.feasible:
        return None
    measured = confirmations(state, challenger)
    proven = len(measured) >= 2 * confirmation.LEAST_PAIRS
    each = trial_seconds(state)
    pair = 2 * (each if proven else min(each, LEAST_SECONDS))
    latest = budget.time if proven else min(budget.time + pair, OVERRUN * budget.time)
    over = elapsed + pair >= latest and len(measured) >= 2
    over = over or _pairs_begun(state, Phase.CONFIRM, measured) >= MOST_PAIRS
    decided = proof(state, challenger).decided if bed else confirmation.decided(measured)
    return _in_turn(state, Phase.CONFIRM, challenger, stock.number, bed, over=over or decided)


def _against_runner_up(
    state: State, budget: Budget, elapsed: float, bed: str | None
) -> Step | None:
    """Before anything is claimed: the leader and its rival, the best preset or the second best, in turn,
    if there is time."""
    compared = rivals(state)
    if compared is None or state.begun(Phase.CONFIRM):
        return None
    kept = proof_seconds(state) + LEAST_BLOCKS * trial_seconds(state)
    over = elapsed + 2 * trial_seconds(state) + kept > budget.time
    measured = confirmations(state, compared[0], Phase.RUNNER_UP)
    begun = len(state.finished(Phase.RUNNER_UP)) / 2
    begun = _pairs_begun(state, Phase.RUNNER_UP, measured) if bed else begun
    over = over or begun >= RUNNER_UP_PAIRS or not undecided(state, *compared)
    return _in_turn(state, Phase.RUNNER_UP, *compared, bed, over=over)


def _pairs_begun(state: State, phase: Phase, measured: Sequence[Measured]) -> float:
    """The number of pairs ``measured``, including those that test beds are measuring now."""
    if not state.beds:
        return len(measured) / 2
    each = [sum(t.bed == bed for t in state.begun(phase)) for bed in state.active_beds]
    return sum(-(-count // 2) for count in each)


def _in_turn(
    state: State, phase: Phase, first: int, second: int, bed: str | None, *, over: bool
) -> Step | None:
    """The next of two trials' configurations, in alternation until it is ``over``.

    An odd one out is always paired: half a pair says nothing. Each test bed has pairs of its own.
    """
    done = [trial for trial in state.finished(phase) if trial.bed == bed]
    measured = confirmations(state, first, phase, bed)
    if len(done) - len(measured) > MOST_LOST or (len(measured) % 2 == 0 and over):
        return None
    number = first if confirmation.side(len(measured)) else second
    return Measure(phase, state.by_number(number).settings, of=number)
