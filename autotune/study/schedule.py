"""What a study does next, worked out from what it has done: resuming needs nothing else.

Baseline → recommended and published configurations of every deployment, and the user's own →
search, with a reference measured again every few trials → the leaders again → the winner and the
baseline in alternation → the winner and the runner-up, while there is time → verdict. An interrupted
trial is repeated first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    reference,
    runner_up,
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
# The last part of the time belongs to proof, not to search: enough for the finalists and the least
# number of pairs at the pace of the study so far, but never more than this share.
MOST_RESERVE = 0.45
MOST_PAIRS = 6
# The runner-up is worth no more: what is claimed does not depend on it.
RUNNER_UP_PAIRS = 4
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


Step = Measure | Ask | Rank | Conclude


def next_step(state: State, space: Space, budget: Budget, elapsed: float) -> Step:
    """The next step; ``elapsed`` are the seconds spent on the study, all sessions together."""
    return (
        _interrupted(state)
        or _opening(state, space, budget, elapsed)
        or _searching(state, space, budget, elapsed)
        or _ranking(state)
        or _finals(state, budget, elapsed)
        or _confirming(state, budget, elapsed)
        or _against_runner_up(state, budget, elapsed)
        or Conclude()
    )


def _interrupted(state: State) -> Step | None:
    last = state.trials[-1] if state.trials else None
    if last is None or last.over:
        return None
    return Measure(last.phase, last.settings, last.of, last.asked, last.suggested)


def _opening(state: State, space: Space, budget: Budget, elapsed: float) -> Step | None:
    """The next configuration that is known beforehand: each deployment has its turn early."""
    # A baseline that was never measured for a benchmark's own fault is measured when it is mended.
    counting = [t for t in state.trials if not (t.fault and t.phase is Phase.BASELINE)]
    done = [(trial.phase, _deployment(trial.settings, space)) for trial in counting]
    most = max(3, int(MOST_KNOWN * budget.trials))
    tried: list[Settings] = []
    for phase, settings in _known_beforehand(space):
        acts = _acting(settings, space)
        new = acts not in tried and (phase, _deployment(settings, space)) not in done
        tried.append(acts)
        if new and len(tried) <= most and _may_search(state, budget, elapsed):
            return Measure(phase, settings)
    first = (*space.known, *state.transferred)
    following = _untried(first, space, tried)[len(state.finished(Phase.KNOWN)) :]
    if following and _may_search(state, budget, elapsed):
        return Measure(Phase.KNOWN, following[0])
    return None


def _untried(first: Sequence[Settings], space: Space, tried: Sequence[Settings]) -> list[Settings]:
    """The user's own configurations and an earlier study's, but for those that act as one before
    them does."""
    acted, untried = list(tried), list[Settings]()
    for changes in first:
        settings = {**space.baseline, **changes}
        acts = _acting(settings, space)
        if acts not in acted:
            acted.append(acts)
            untried.append(settings)
    return untried


def _acting(settings: Settings, space: Space) -> Settings:
    acting = space.active(settings)
    return {name: value for name, value in settings.items() if name in acting}


def _known_beforehand(space: Space) -> Iterator[tuple[Phase, Settings]]:
    yield Phase.BASELINE, space.baseline
    for phase in (Phase.RECOMMENDED, Phase.PUBLISHED):
        for deployment in space.deployments:
            yield phase, space.preset(str(phase), deployment)


def _deployment(settings: Settings, space: Space) -> Settings:
    """Which software of each tier these settings choose."""
    return {name: settings[name] for name in space.deployments[0] if name in settings}


def _searching(state: State, space: Space, budget: Budget, elapsed: float) -> Step | None:
    later = state.finished(Phase.FINALIST, Phase.CONFIRM)
    if later or state.settled or state.standings or not space.tunable:
        return None
    if not _may_search(state, budget, elapsed):
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
    return Rank() if state.standings is None and candidates(state) else None


def _may_search(state: State, budget: Budget, elapsed: float) -> bool:
    """Whether another trial fits before the time kept for proof."""
    counted = len(state.finished(*COUNTED))
    if counted == 0:
        return True
    return counted < budget.trials and elapsed + trial_seconds(state) <= budget.time - reserve(
        state, budget
    )


def reserve(state: State, budget: Budget) -> float:
    """Seconds kept for re-measuring the leaders and proving the winner."""
    needed = (FINALISTS + 2 * confirmation.LEAST_PAIRS) * trial_seconds(state)
    return min(needed, MOST_RESERVE * budget.time)


def trial_seconds(state: State) -> float:
    """Seconds a trial has taken on average."""
    measured = [trial for trial in state.finished() if trial.peak is not None]
    return state.elapsed / len(measured) if measured else 0.0


def _finals(state: State, budget: Budget, elapsed: float) -> Step | None:
    if elapsed >= budget.time or state.finished(Phase.CONFIRM):
        return None
    done = state.finished(Phase.FINALIST)
    measured = {trial.of for trial in done}
    each = max(trial_seconds(state), 1e-9)
    proof = 2 * confirmation.LEAST_PAIRS * each
    left = int((budget.time - elapsed - proof) / each) + len(done)
    most = min(max(left, FINALISTS), MOST_FINALISTS)
    for number in finalists(state, most, FINALISTS):
        if number not in measured:
            return Measure(Phase.FINALIST, state.by_number(number).settings, of=number)
    return None


def _confirming(state: State, budget: Budget, elapsed: float) -> Step | None:
    stock, challenger = baseline(state), best(state)
    if stock is None or challenger is None or stock.peak is None or not stock.peak.feasible:
        return None
    done = state.finished(Phase.CONFIRM)
    measured = confirmations(state, challenger)
    enough = len(done) >= 2 * MOST_PAIRS or confirmation.decided(measured)
    # An odd one out is always paired: half a pair says nothing.
    late = elapsed >= budget.time and len(measured) >= 2
    lost = len(done) - len(measured)
    if lost > MOST_LOST or (len(measured) % 2 == 0 and (enough or late)):
        return None
    number = challenger if confirmation.side(len(measured)) else stock.number
    return Measure(Phase.CONFIRM, state.by_number(number).settings, of=number)


def _against_runner_up(state: State, budget: Budget, elapsed: float) -> Step | None:
    """Whether the winner is the winner is worth the time that is left, and no more."""
    first, second = best(state), runner_up(state)
    if first is None or second is None or not state.finished(Phase.CONFIRM):
        return None
    done = state.finished(Phase.RUNNER_UP)
    measured = confirmations(state, first, Phase.RUNNER_UP)
    if len(done) > len(measured) + MOST_LOST:
        return None
    whole = len(measured) % 2 == 0
    enough = len(done) >= 2 * RUNNER_UP_PAIRS or confirmation.decided(measured)
    late = elapsed + 2 * trial_seconds(state) > budget.time
    if whole and (enough or late):
        return None
    number = first if confirmation.side(len(measured)) else second
    return Measure(Phase.RUNNER_UP, state.by_number(number).settings, of=number)
