"""The study as a loop: what is next, do it, tell the sampler, until nothing is left to measure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.diagnose.diagnosis import recommended_moves
from autotune.environments.load_session import UNMEASURED_SD
from autotune.estimate import Estimate
from autotune.optimize.gp.surrogate import BED, CAPACITIES, MATTERS, MOVES
from autotune.optimize.searcher import Outcome, Searcher, Suggestion
from autotune.space.space import Space
from autotune.study import trial as trials
from autotune.study.context import TrialContext
from autotune.study.ranking import (
    FINALS,
    Verdict,
    conclude,
    drifted,
    incumbent,
    measured,
    works,
)
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.study.schedule import (
    Ask,
    Conclude,
    Measure,
    Rank,
    Simplify,
    Wait,
    allowance,
    next_step,
)
from autotune.study.simplifying import next_block
from autotune.target.messages import plural
from autotune.target.model import Budget

# How far a configuration's peak may be from its own earlier measurement: sd of its logarithm.
KNOWN_SD = 0.10
# The search ends when the chance of finding anything better by MATTERS is below this.
STOP_BELOW = 0.05
# What the model learns from. The reference is in, measured again and again: the model could explain
# away a single measurement. Finals and simplified trials are in: after the finals the model is asked
# which changes do nothing.
LEARNED = (*COUNTED, Phase.REFERENCE, *FINALS, Phase.SIMPLIFIED)


def tune(context: TrialContext, searcher: Searcher, budget: Budget) -> Verdict:
    """Run the study to its end, from wherever it stands."""
    with context.clock.on("search"):
        catch_up(searcher, context.store.state)
    while isinstance(step := following(context, searcher, budget), Measure):
        request = prepared(step, context, budget)
        done = trials.run(step, context, *request)
        learn(context, searcher, done)
    return concluded(context)


@dataclass(frozen=True)
class Proposal:
    """A suggestion made while others could decide, from the study's first ``trials`` trials."""

    suggestion: Suggestion
    trials: int

    def new(self, state: State) -> bool:
        """Whether nobody has begun to measure the same meanwhile."""
        return all(t.suggested != self.suggestion.values for t in state.trials[self.trials :])


def following(
    context: TrialContext, searcher: Searcher, budget: Budget, proposal: Proposal | None = None
) -> Measure | Ask | Conclude | Wait:
    """The next step. What the model answers on the way is put on record.

    In a shared study the model is asked for a configuration beforehand: without a ``proposal`` that is
    still new, the next step is to ask.
    """
    while True:
        state = context.store.state
        step = next_step(state, context.space, budget, context.elapsed, context.bed)
        if isinstance(step, Measure | Conclude | Wait):
            return step
        if isinstance(step, Ask) and state.shared and not (proposal and proposal.new(state)):
            return step
        with context.clock.on("search"):
            if not (state.shared and isinstance(step, Ask)):
                searcher.narrow(context.space.clamped(state.clamps))
            if state.shared and not isinstance(step, Ask):
                hear(searcher, state)
            if isinstance(step, Rank):
                _rank(context, searcher)
            elif isinstance(step, Simplify):
                _simplify(context, searcher, step.trial)
            elif (asked := _asked(context, searcher, proposal)) is not None:
                return asked


def propose(state: State, searcher: Searcher, space: Space) -> Proposal:
    """What the model suggests, given all that workers have on record; this takes a while."""
    searcher.narrow(space.clamped(state.clamps))
    hear(searcher, state)
    suggestion = searcher.ask(drifted(state))
    searcher.discard(suggestion.number)  # believed once it is on record, like those of others
    return Proposal(suggestion, len(state.trials))


def prepared(
    step: Measure, context: TrialContext, budget: Budget
) -> tuple[Estimate | None, Estimate | None, float]:
    """What a measurement is given: the peak to expect, the one to beat, and the seconds it may take."""
    state = context.store.state
    offset = state.offset(context.bed)
    expected, best = (
        offset.added(estimate) if estimate and context.bed else estimate
        for estimate in (prior(state, step), incumbent(state))
    )
    return expected, best, allowance(state, step.phase, budget, context.elapsed)


def learn(context: TrialContext, searcher: Searcher, done: Trial) -> None:
    """Tell the sampler what came of a trial."""
    if done.phase in LEARNED:
        with context.clock.on("search"):
            _tell(searcher, done, context.store.state)
    context.spent()


def concluded(context: TrialContext) -> Verdict:
    """The verdict, on record."""
    verdict = conclude(context.store.state)
    context.spent()
    context.store.verdict(verdict.record)
    return verdict


def prior(state: State, step: Measure) -> Estimate | None:
    """What to expect of a configuration's peak: its own earlier one, or else the incumbent's."""
    earlier = [t for t in works(state.finished()) if state.configuration(t) == step.of]
    full = [state.level(trial) for trial in earlier if trial.peak and not trial.peak.screened]
    if full:
        return Estimate(full[0].log_mean, KNOWN_SD)
    to_beat = incumbent(state)
    peaks = [to_beat] if to_beat else [state.level(trial) for trial in measured(state)]
    return Estimate(max(peak.log_mean for peak in peaks), UNMEASURED_SD) if peaks else None


def _asked(context: TrialContext, searcher: Searcher, proposal: Proposal | None) -> Measure | None:
    """What to measure next; ``None`` when the model sees nothing left to win."""
    state = context.store.state
    suggestion = proposal.suggestion if proposal else searcher.ask(drifted(state))
    probability = suggestion.improvement_probability
    if probability is not None and probability < STOP_BELOW:
        searcher.discard(suggestion.number)
        tried = plural(len(state.finished(*COUNTED)), "configuration")
        why = (
            f"after {tried} the chance that any other is {MATTERS:.0%} better is {probability:.0%}"
        )
        context.store.settled(why)
        context.progress.note(f"search ends: {why}")
        return None
    settings = {**context.space.baseline, **suggestion.values}
    # Optuna's number, which differs between workers.
    number = None if proposal else suggestion.number
    return Measure(Phase.SEARCH, settings, asked=number, suggested=suggestion.values)


def _rank(context: TrialContext, searcher: Searcher) -> None:
    drift = drifted(context.store.state)
    if drift.real:
        context.progress.note(f"drift: {drift}; peaks are compared as of now")
    context.store.posterior(searcher.posterior(drift))
    context.store.modelled(searcher.view(drift))


def _simplify(context: TrialContext, searcher: Searcher, number: int) -> None:
    state = context.store.state
    space = context.known_space
    record = next_block(state, searcher.surrogate(drifted(state)), space, number)
    context.store.simplified(record)
    winner = state.by_number(number).in_effect
    changed = sum(winner[name] != value for name, value in space.baseline.items())
    if record["reverted"]:
        context.progress.note(
            f"{len(record['reverted'])} of {plural(changed, 'change')} of trial {number} may do nothing, "
            "by the model: to be measured without them, where time is left"
        )
    elif record["accepted"] is not None:
        context.progress.note(
            f"{len(record['without'])} of {plural(changed, 'change')} of trial {number} do nothing, as "
            "measured: it is proven without them"
        )


def _tell(searcher: Searcher, done: Trial, state: State) -> None:
    moves = recommended_moves(state.bottlenecks.get(done.number), done.settings)
    tell(searcher, done, moves, state.capacities.get(done.number))


def tell(
    searcher: Searcher,
    done: Trial,
    advised: Sequence[str] = (),
    capacities: Mapping[str, Any] | None = None,
) -> None:
    """Tell the sampler the outcome of a trial, the moves ``advised`` because of its bottleneck, and the
    ``capacities`` that it showed of the stack's parts."""
    if done.unmeasured:
        # Nothing is known about the configuration: the sampler is to learn nothing from it.
        searcher.discard(done.asked)
        return
    peak = done.peak
    feasible = peak is not None and peak.feasible
    notes: dict[str, str | float | int] = {"trial": done.number, "phase": str(done.phase)}
    if peak is not None:
        sd = peak.upper_sd if peak.screened else peak.sd
        notes |= {MOVES: " ".join(advised)} if advised else {}
        notes |= {CAPACITIES: json.dumps(capacities)} if capacities else {}
        notes |= {BED: done.bed} if done.bed else {}
        notes |= {"low": peak.low, "high": peak.high, "sd": sd, "verdict": peak.verdict}
    else:
        notes["why"] = done.failure or ""
    outcome = Outcome(peak.peak if peak is not None and feasible else None, notes)
    searcher.record(done.asked, done.learned, outcome)


def catch_up(searcher: Searcher, state: State) -> None:
    """After a kill: record what was measured and not recorded, discard suggestions never measured."""
    for trial in state.finished(*LEARNED):
        _tell(searcher, trial, state)
    searcher.discard_pending()


def hear(searcher: Searcher, state: State) -> None:
    """Tell a search that learns only from the record the outcomes, and what workers measure now."""
    hear_outcomes(searcher, state)
    searcher.believe({t.number: t.suggested for t in state.under_way(Phase.SEARCH)})


def hear_outcomes(searcher: Searcher, state: State) -> None:
    """Tell a search the outcomes that it has not recorded yet."""
    recorded = searcher.recorded()
    for trial in state.finished(*LEARNED):
        if trial.number not in recorded:
            _tell(searcher, replace(trial, asked=None), state)
