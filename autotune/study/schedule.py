"""What a study does next, worked out from what it has done: resuming needs nothing else.

Baseline → recommended and published configurations of every deployment, and the user's own →
search, with a reference measured again every few trials → the leaders again → the leader and the best
preset (or the second best) in alternation, while there is time → the winner without what does nothing →
that and the baseline in alternation → verdict. An interrupted trial is repeated first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from autotune.optimize import confirmation
from autotune.services.base import Settings
from autotune.space.space import Space
from autotune.study.ranking import (
    baseline,
    best,
    candidates,
    confirmations,
    finalists,
    leader,
    reference,
    rivals,
    undecided,
)
from autotune.study.records import COUNTED, Phase, State
from autotune.target.model import Budget

# Configurations measured again at the end: at least so many, more where there is time and they are
# hard to tell apart.
FINALISTS = 2
MOST_FINALISTS = 4
# Trials of the search between two measurements of the reference; those that were screened out cost
# and say little, and drift does them little harm.
REFERENCE_EVERY = 6
SCREENED_FOR_ONE = 3
# The last part of the time belongs to proof, not to search: enough for the finalists and the least number
# of pairs at the pace of the study so far, up to this share, which the pairs' measurements divide.
MOST_RESERVE = 0.45
LEAST_SECONDS = 15.0  # of a measurement: in less, nothing is learned
MOST_PAIRS = 6
RUNNER_UP_PAIRS = 2
# Measurements of the confirmation that may fail (the generator starved, say) and be made again.
MOST_LOST = 2
# Of the trials, for known configurations: with many deployments the search must have its share.
MOST_KNOWN = 0.5


@dataclass(frozen=True)
class Measure:
    """Measure these settings; ``suggested`` is the sampler's part when a trial is repeated."""

    phase: Phase
    settings: Settings
    of: int | None = None
    asked: int | None = None
    suggested: Settings = field(default_factory=dict)


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


Step = Measure | Ask | Rank | Simplify | Conclude


def next_step(state: State, space: Space, budget: Budget, elapsed: float) -> Step:
    """The next step; ``elapsed`` are the seconds spent on the study, all sessions together."""
    return (
        _interrupted(state)
        or _opening(state, space, budget, elapsed)
        or _searching(state, space, budget, elapsed)
        or _ranking(state)
        or _finals(state, budget, elapsed)
        or _against_runner_up(state, budget, elapsed)
        or _simplifying(state, budget, elapsed)
        or _confirming(state, budget, elapsed)
        or Conclude()
    )


def _interrupted(state: State) -> Step | None:
    last = state.trials[-1] if state.trials else None
    if last is None or last.over:
        return None
    return Measure(last.phase, last.settings, last.of, last.asked, last.suggested)


def _opening(state: State, space: Space, budget: Budget, elapsed: float) -> Step | None:
    """The next configuration that is known beforehand: each deployment has its turn early.

    A published configuration has one only where its deployment may be the best. After the presets
    come the user's own configurations and an earlier study's, but for those that act as one before
    them does.
    """
    if not _may_search(state, budget, elapsed):
        return None
    # A baseline that was never measured for a benchmark's own fault is measured when it is mended.
    counting = [t for t in state.trials if not (t.fault and t.phase is Phase.BASELINE)]
    done = [(trial.phase, _deployment(trial.settings, space)) for trial in counting]
    most = max(3, int(MOST_KNOWN * budget.trials))
    tried: list[Settings] = []
    for phase, settings in _presets(space):
        acts = acting(settings, space)
        new = acts not in tried and (phase, _deployment(settings, space)) not in done
        tried.append(acts)
        races = phase is not Phase.PUBLISHED or _competes(state, space, settings)
        if new and races and len(tried) <= most:
            return Measure(phase, settings)
    untried = []
    for changes in (*space.try_first, *state.transferred):
        settings = {**space.baseline, **changes}
        if (acts := acting(settings, space)) not in tried:
            tried.append(acts)
            untried.append(settings)
    following = untried[len(state.finished(Phase.KNOWN)) :]
    return Measure(Phase.KNOWN, following[0]) if following else None


def _competes(state: State, space: Space, settings: Settings) -> bool:
    """Whether a deployment may be the best one, going by what was measured of it so far."""
    deployment = _deployment(settings, space)
    works = [t for t in state.finished(*COUNTED) if t.peak and t.peak.feasible]
    lows = [t.peak.low for t in works if t.peak and not t.peak.screened]
    highs = [t.peak.high for t in works if t.peak and _deployment(t.settings, space) == deployment]
    return not lows or max(highs, default=0.0) >= max(lows)


def acting(settings: Settings, space: Space) -> Settings:
    """Those of ``settings`` that have an effect."""
    active = space.active(settings)
    return {name: value for name, value in settings.items() if name in active}


def _presets(space: Space) -> Iterator[tuple[Phase, Settings]]:
    yield Phase.BASELINE, space.baseline
    for phase in (Phase.RECOMMENDED, Phase.PUBLISHED):
        for deployment in space.deployments:
            yield phase, space.preset(str(phase), deployment)


def _deployment(settings: Settings, space: Space) -> Settings:
    """Which software of each tier these settings choose."""
    return {name: settings[name] for name in space.deployments[0] if name in settings}


def _searching(state: State, space: Space, budget: Budget, elapsed: float) -> Step | None:
    later = state.finished(Phase.FINALIST, Phase.CONFIRM)
    over = later or state.settled or state.posterior or not space.tunable
    if over or not _may_search(state, budget, elapsed):
        return None
    return _reference(state) or Ask()


def _reference(state: State) -> Step | None:
    """The reference, when its last measurement has become old."""
    chosen = reference(state)
    if chosen is None:
        return None
    last = max(t.number for t in (chosen, *state.finished(Phase.REFERENCE)))
    since = [t for t in state.finished(*COUNTED) if t.number > last]
    screened = sum(t.peak is None or t.peak.screened for t in since)
    if len(since) - screened + screened / SCREENED_FOR_ONE < REFERENCE_EVERY:
        return None
    return Measure(Phase.REFERENCE, chosen.settings, of=chosen.number)


def _ranking(state: State) -> Step | None:
    return Rank() if state.posterior is None and candidates(state) else None


def _may_search(state: State, budget: Budget, elapsed: float) -> bool:
    """Whether another trial fits before the time kept for proof."""
    counted = len(state.finished(*COUNTED))
    # One that does not fit at the pace so far is cut short (``allowance``).
    least = min(trial_seconds(state), 2 * LEAST_SECONDS)
    fits = elapsed + least <= budget.time - reserve(state, budget)
    return counted == 0 or (counted < budget.trials and fits)


def reserve(state: State, budget: Budget) -> float:
    """Seconds kept for re-measuring the leaders and proving the winner."""
    needed = FINALISTS * trial_seconds(state) + proof_seconds(state)
    return min(needed, MOST_RESERVE * budget.time)


def proof_seconds(state: State) -> float:
    """Seconds that the least number of pairs take."""
    return 2 * confirmation.LEAST_PAIRS * trial_seconds(state)


def trial_seconds(state: State) -> float:
    """Seconds a trial has taken on average."""
    measured = [trial for trial in state.finished() if trial.peak is not None]
    return state.elapsed / len(measured) if measured else 0.0


def allowance(state: State, phase: Phase, budget: Budget, elapsed: float) -> float:
    """Seconds that a measurement may take: the search leaves those of the proof alone, which are
    shared by the measurements that it needs at least."""
    left = budget.time - elapsed
    if phase is Phase.CONFIRM:
        pairs = 2 * confirmation.LEAST_PAIRS - len(state.finished(Phase.CONFIRM))
        return max(LEAST_SECONDS, left / max(1, pairs))
    if phase in COUNTED or phase is Phase.REFERENCE:
        kept = reserve(state, budget) if state.finished(*COUNTED) else MOST_RESERVE * budget.time
        return max(LEAST_SECONDS, left - kept)
    return max(LEAST_SECONDS, left - proof_seconds(state))


def _finals(state: State, budget: Budget, elapsed: float) -> Step | None:
    if elapsed >= budget.time or state.finished(Phase.CONFIRM):
        return None
    done = state.finished(Phase.FINALIST)
    measured = {trial.of for trial in done}
    each = max(trial_seconds(state), 1e-9)
    left = int((budget.time - elapsed - proof_seconds(state)) / each) + len(done)
    most = min(left, MOST_FINALISTS)
    # One alone would be measured again for nothing.
    for number in finalists(state, most, FINALISTS) if most >= FINALISTS else ():
        if number not in measured:
            return Measure(Phase.FINALIST, state.by_number(number).settings, of=number)
    return None


def _simplifying(state: State, budget: Budget, elapsed: float) -> Step | None:
    """The winner without what the model holds to be without effect, measured once before its proof."""
    number = leader(state)
    fits = elapsed + trial_seconds(state) + proof_seconds(state) <= budget.time
    begun = state.finished(Phase.CONFIRM, Phase.SIMPLIFIED) or state.values
    if number is None or state.posterior is None or begun or not fits:
        return None
    if state.simplified is None:
        return Simplify(number)
    if not state.simplified["reverted"]:
        return None
    return Measure(Phase.SIMPLIFIED, state.simplified["settings"], of=number)


def _confirming(state: State, budget: Budget, elapsed: float) -> Step | None:
    """The winner and the baseline in turn, one pair at least."""
    stock, challenger = baseline(state), best(state)
    if stock is None or challenger is None or stock.peak is None or not stock.peak.feasible:
        return None
    measured = confirmations(state, challenger)
    proven = len(measured) >= 2 * confirmation.LEAST_PAIRS
    more = 2 * trial_seconds(state) if proven else 0.0
    over = elapsed + more >= budget.time and len(measured) >= 2
    over = over or len(measured) >= 2 * MOST_PAIRS or confirmation.decided(measured)
    return _in_turn(state, Phase.CONFIRM, challenger, stock.number, over=over)


def _against_runner_up(state: State, budget: Budget, elapsed: float) -> Step | None:
    """Before anything is claimed: whether the leader is better than the best preset, if there is time."""
    compared = rivals(state)
    if compared is None or state.finished(Phase.CONFIRM):
        return None
    over = elapsed + 2 * trial_seconds(state) + proof_seconds(state) > budget.time
    over = over or len(state.finished(Phase.RUNNER_UP)) >= 2 * RUNNER_UP_PAIRS
    over = over or not undecided(state, *compared)
    return _in_turn(state, Phase.RUNNER_UP, *compared, over=over)


def _in_turn(state: State, phase: Phase, first: int, second: int, *, over: bool) -> Step | None:
    """The next of two trials' configurations, in alternation until it is ``over``.

    An odd one out is always paired: half a pair says nothing.
    """
    done, measured = state.finished(phase), confirmations(state, first, phase)
    if len(done) - len(measured) > MOST_LOST or (len(measured) % 2 == 0 and over):
        return None
    number = first if confirmation.side(len(measured)) else second
    return Measure(phase, state.by_number(number).settings, of=number)
