"""The study as a loop: what is next, do it, tell the sampler, until nothing is left to measure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.diagnose.diagnosis import list_recommended_changes
from autotune.environments.load_session import UNMEASURED_PEAK_SD
from autotune.estimate import Estimate
from autotune.optimize.gp.surrogate import BED_KEY, CAPACITIES_KEY, CHANGES_KEY, MIN_RELEVANT_GAIN
from autotune.optimize.searcher import Outcome, Searcher, Suggestion
from autotune.space.space import SearchSpace
from autotune.study import trial as trials
from autotune.study.ranking import (
    FINAL_PHASES,
    Verdict,
    decide_verdict,
    estimate_study_drift,
    find_incumbent,
    find_incumbent_number,
    list_measured_trials,
    select_feasible_trials,
)
from autotune.study.schedule import (
    ConcludeStep,
    MeasureStep,
    RankStep,
    SimplifyStep,
    SuggestStep,
    WaitStep,
    compute_time_limit,
    select_next_step,
)
from autotune.study.simplification import select_next_block
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.trial_context import TrialContext
from autotune.target.messages import format_count
from autotune.target.model import Budget

# How far a configuration's peak may be from its own earlier measurement: sd of its logarithm.
REPEAT_LOG_SD = 0.10
# The search ends when the chance of finding anything better by MATTERS is below this.
STOP_PROBABILITY = 0.05
# What the model learns from. The reference is in, measured again and again: the model could explain
# away a single measurement. Finals and simplified trials are in: after the finals the model is asked
# which changes do nothing.
MODELLED_PHASES = (*COUNTED_PHASES, Phase.REFERENCE, *FINAL_PHASES, Phase.SIMPLIFIED)


def run_study_loop(context: TrialContext, searcher: Searcher, budget: Budget) -> Verdict:
    """Run the study to its end, from wherever it stands."""
    with context.clock.time_activity("search"):
        catch_up_search(searcher, context.store.state)
    while isinstance(step := resolve_next_step(context, searcher, budget), MeasureStep):
        request = prepare_measurement(step, context, budget)
        done = trials.run_trial(step, context, *request)
        learn_from_trial(context, searcher, done)
    return record_verdict(context)


@dataclass(frozen=True)
class Proposal:
    """A suggestion made while others could decide, from the study's first ``trial_count`` trials."""

    suggestion: Suggestion
    trial_count: int

    def is_still_new(self, state: State) -> bool:
        """Whether nobody has begun to measure the same meanwhile."""
        return all(t.suggested != self.suggestion.values for t in state.trials[self.trial_count :])


def resolve_next_step(
    context: TrialContext, searcher: Searcher, budget: Budget, proposal: Proposal | None = None
) -> MeasureStep | SuggestStep | ConcludeStep | WaitStep:
    """The next step. What the model answers on the way is put on record.

    In a shared study the model is asked for a configuration beforehand: without a ``proposal`` that is
    still new, the next step is to ask.
    """
    while True:
        state = context.store.state
        step = select_next_step(state, context.space, budget, context.elapsed_seconds, context.bed)
        if isinstance(step, MeasureStep | ConcludeStep | WaitStep):
            return step
        if (
            isinstance(step, SuggestStep)
            and state.shared
            and not (proposal and proposal.is_still_new(state))
        ):
            return step
        with context.clock.time_activity("search"):
            if not (state.shared and isinstance(step, SuggestStep)):
                searcher.narrow(context.space.with_clamps(state.clamps))
            if state.shared and not isinstance(step, SuggestStep):
                sync_search(searcher, state)
            if isinstance(step, RankStep):
                _record_ranking(context, searcher)
            elif isinstance(step, SimplifyStep):
                _record_simplification(context, searcher, step.trial_number)
            elif (search_step := _ask_sampler(context, searcher, proposal)) is not None:
                return search_step


def propose_configuration(state: State, searcher: Searcher, space: SearchSpace) -> Proposal:
    """What the model suggests, given all that workers have on record; this takes a while."""
    searcher.narrow(space.with_clamps(state.clamps))
    sync_search(searcher, state)
    suggestion = searcher.suggest(estimate_study_drift(state))
    searcher.discard(suggestion.number)  # believed once it is on record, like those of others
    return Proposal(suggestion, len(state.trials))


def prepare_measurement(
    step: MeasureStep, context: TrialContext, budget: Budget
) -> tuple[Estimate | None, Estimate | None, float]:
    """What a measurement is given: the peak to expect, the one to beat, and the seconds it may take."""
    state = context.store.state
    offset = state.bed_offset(context.bed)
    # The incumbent cannot be pruned by its own peak, which may have been lucky.
    refines = step.source_trial is not None and step.source_trial == find_incumbent_number(state)
    to_beat = None if refines else find_incumbent(state)
    expected, best = (
        offset.add_to(estimate) if estimate and context.bed else estimate
        for estimate in (estimate_expected_peak(state, step), to_beat)
    )
    return expected, best, compute_time_limit(state, step.phase, budget, context.elapsed_seconds)


def learn_from_trial(context: TrialContext, searcher: Searcher, trial: Trial) -> None:
    """Tell the sampler what came of a trial."""
    if trial.phase in MODELLED_PHASES:
        with context.clock.time_activity("search"):
            _record_trial_outcome(searcher, trial, context.store.state)
    context.record_time_spent()


def record_verdict(context: TrialContext) -> Verdict:
    """The verdict, on record."""
    verdict = decide_verdict(context.store.state)
    context.record_time_spent()
    context.store.record_verdict(verdict.record)
    return verdict


def estimate_expected_peak(state: State, step: MeasureStep) -> Estimate | None:
    """What to expect of a configuration's peak: its own earlier one, or else the incumbent's."""
    earlier = [
        t
        for t in select_feasible_trials(state.list_finished())
        if state.configuration_number(t) == step.source_trial
    ]
    full = [
        state.normalized_peak(trial) for trial in earlier if trial.peak and not trial.peak.is_pruned
    ]
    if full:
        return Estimate(full[0].log_mean, max(REPEAT_LOG_SD, full[0].sd))
    to_beat = find_incumbent(state)
    peaks = (
        [to_beat]
        if to_beat
        else [state.normalized_peak(trial) for trial in list_measured_trials(state)]
    )
    return Estimate(max(peak.log_mean for peak in peaks), UNMEASURED_PEAK_SD) if peaks else None


def _ask_sampler(
    context: TrialContext, searcher: Searcher, proposal: Proposal | None
) -> MeasureStep | None:
    """What to measure next; ``None`` when the model sees nothing left to win."""
    state = context.store.state
    suggestion = proposal.suggestion if proposal else searcher.suggest(estimate_study_drift(state))
    probability = suggestion.improvement_probability
    if probability is not None and probability < STOP_PROBABILITY:
        searcher.discard(suggestion.number)
        tried = format_count(len(state.list_finished(*COUNTED_PHASES)), "configuration")
        reason = (
            f"after {tried} the chance that any other is {MIN_RELEVANT_GAIN:.0%} better is "
            f"{probability:.0%}"
        )
        context.store.record_stop_reason(reason)
        context.progress.note(f"search ends: {reason}")
        return None
    settings = {**context.space.baseline, **suggestion.values}
    # Optuna's number, which differs between workers.
    number = None if proposal else suggestion.number
    return MeasureStep(
        Phase.SEARCH, settings, suggestion_number=number, suggested=suggestion.values
    )


def _record_ranking(context: TrialContext, searcher: Searcher) -> None:
    drift = estimate_study_drift(context.store.state)
    if drift.is_significant:
        context.progress.note(f"drift: {drift}; peaks are compared as of now")
    context.store.record_posterior(searcher.compute_posterior(drift))
    context.store.record_model(searcher.build_view(drift))


def _record_simplification(context: TrialContext, searcher: Searcher, trial_number: int) -> None:
    state = context.store.state
    space = context.clamped_space
    record = select_next_block(
        state, searcher.fit_surrogate(estimate_study_drift(state)), space, trial_number
    )
    context.store.record_simplification(record)
    winner = state.find_trial(trial_number).effective_settings
    changed = sum(winner[name] != value for name, value in space.baseline.items())
    if record["reverted"]:
        context.progress.note(
            f"{len(record['reverted'])} of {format_count(changed, 'change')} of trial "
            f"{trial_number} may do nothing, "
            "by the model: to be measured without them, where time is left"
        )
    elif record["accepted"] is not None:
        context.progress.note(
            f"{len(record['without'])} of {format_count(changed, 'change')} of trial "
            f"{trial_number} do nothing, as "
            "measured: it is proven without them"
        )


def _record_trial_outcome(searcher: Searcher, trial: Trial, state: State) -> None:
    moves = list_recommended_changes(state.bottlenecks.get(trial.number), trial.settings)
    record_outcome(searcher, trial, moves, state.capacities.get(trial.number))


def record_outcome(
    searcher: Searcher,
    trial: Trial,
    moves: Sequence[str] = (),
    capacities: Mapping[str, Any] | None = None,
) -> None:
    """Tell the sampler the outcome of a trial, the moves ``moves`` because of its bottleneck, and the
    ``capacities`` that it showed of the stack's parts."""
    if trial.is_unmeasured:
        # Nothing is known about the configuration: the sampler is to learn nothing from it.
        searcher.discard(trial.asked)
        return
    peak = trial.peak
    feasible = peak is not None and peak.is_feasible
    notes: dict[str, str | float | int] = {"trial": trial.number, "phase": str(trial.phase)}
    if peak is not None:
        sd = peak.upper_sd if peak.is_pruned else peak.sd
        notes |= {CHANGES_KEY: " ".join(moves)} if moves else {}
        notes |= {CAPACITIES_KEY: json.dumps(capacities)} if capacities else {}
        notes |= {BED_KEY: trial.bed} if trial.bed else {}
        notes |= {"low": peak.low, "high": peak.high, "sd": sd, "verdict": peak.verdict}
    else:
        notes["why"] = trial.failure or ""
    outcome = Outcome(peak.peak if peak is not None and feasible else None, notes)
    searcher.record_outcome(trial.asked, trial.learned_settings, outcome)


def catch_up_search(searcher: Searcher, state: State) -> None:
    """After a kill: record what was measured and not recorded, discard suggestions never measured."""
    for trial in state.list_finished(*MODELLED_PHASES):
        _record_trial_outcome(searcher, trial, state)
    searcher.discard_pending()


def sync_search(searcher: Searcher, state: State) -> None:
    """Tell a search that learns only from the record the outcomes, and what workers measure now."""
    sync_outcomes(searcher, state)
    searcher.add_pending({t.number: t.suggested for t in state.list_running(Phase.SEARCH)})


def sync_outcomes(searcher: Searcher, state: State) -> None:
    """Tell a search the outcomes that it has not recorded yet."""
    recorded = searcher.recorded_trials()
    for trial in state.list_finished(*MODELLED_PHASES):
        if trial.number not in recorded:
            _record_trial_outcome(searcher, replace(trial, asked=None), state)
