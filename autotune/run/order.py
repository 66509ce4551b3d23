"""What a study does next, worked out from what it has done: resuming needs nothing else.

Baseline → recommended and published configurations of every deployment → search → the leaders
again → the winner and the baseline in alternation → verdict. An interrupted trial is repeated first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autotune.search import confirmation
from autotune.search.confirmation import Measured
from autotune.search.finalists import Scored, finalists, winner
from autotune.services.base import Settings
from autotune.space.space import Space
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.target.model import Budget

FINALISTS = 2
# The last part of the time belongs to proof, not to search: enough for the finalists and the least
# number of pairs at the pace of the study so far, but never more than this share.
MOST_RESERVE = 0.45
MOST_PAIRS = 6
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
class Conclude:
    """Nothing is left to measure."""


Step = Measure | Ask | Conclude


def next_step(state: State, space: Space, budget: Budget, elapsed: float) -> Step:
    """The next step; ``elapsed`` are the seconds spent on the study, all sessions together."""
    return (
        _interrupted(state)
        or _opening(state, space, budget, elapsed)
        or _searching(state, space, budget, elapsed)
        or _finals(state, budget, elapsed)
        or _confirming(state, budget, elapsed)
        or Conclude()
    )


def _interrupted(state: State) -> Step | None:
    last = state.trials[-1] if state.trials else None
    if last is None or last.over:
        return None
    return Measure(last.phase, last.settings, last.of, last.asked, last.suggested)


def _opening(state: State, space: Space, budget: Budget, elapsed: float) -> Step | None:
    """The next configuration that is known beforehand: each deployment has its turn early."""
    done = [(trial.phase, _deployment(trial.settings, space)) for trial in state.trials]
    most = max(3, int(MOST_KNOWN * budget.trials))
    known: list[Settings] = []
    for phase, settings in _known_beforehand(space):
        acting = space.active(settings)
        acts = {name: value for name, value in settings.items() if name in acting}
        new = acts not in known and (phase, _deployment(settings, space)) not in done
        known.append(acts)
        if new and len(known) <= most and _may_search(state, budget, elapsed):
            return Measure(phase, settings)
    return None


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
    if later or not space.tunable or not _may_search(state, budget, elapsed):
        return None
    return Ask()


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


def scored(trials: Sequence[Trial]) -> list[Scored]:
    """Trials that met the objective, by the configuration they stand for."""
    return [
        Scored(t.number if t.of is None else t.of, t.peak.peak, t.peak.sd)
        for t in trials
        if t.peak is not None and t.peak.feasible
    ]


def contenders(state: State) -> list[Scored]:
    """First measurements of all configurations but the baseline."""
    return scored([t for t in state.finished(*COUNTED) if t.phase is not Phase.BASELINE])


def _finals(state: State, budget: Budget, elapsed: float) -> Step | None:
    if elapsed >= budget.time or state.finished(Phase.CONFIRM):
        return None
    measured = {trial.of for trial in state.finished(Phase.FINALIST)}
    for number in finalists(contenders(state), FINALISTS):
        if number not in measured:
            return Measure(Phase.FINALIST, state.by_number(number).settings, of=number)
    return None


def best(state: State) -> int | None:
    """The trial that stands to win: not yet a claim."""
    again: dict[int, list[Scored]] = {}
    for item in scored(state.finished(Phase.FINALIST)):
        again.setdefault(item.trial, []).append(item)
    return winner(contenders(state), again)


def baseline(state: State) -> Trial | None:
    return next(iter(state.finished(Phase.BASELINE)), None)


def confirmations(state: State, challenger: int) -> list[Measured]:
    """The alternating measurements so far, in the order taken."""
    return [
        Measured(item.trial == challenger, item.peak, item.sd)
        for item in scored(state.finished(Phase.CONFIRM))
    ]


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
