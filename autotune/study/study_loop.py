"""The main loop of a study: select a step, run it, and report it to the sampler, until the study is
complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.diagnose.diagnosis import list_recommended_changes
from autotune.environments.load_session import UNMEASURED_PEAK_SD
from autotune.estimate import Estimate, InstanceCapacity
from autotune.optimize.gp.surrogate import (
    BED_KEY,
    CAPACITIES_KEY,
    CHANGES_KEY,
    MIN_RELEVANT_GAIN,
    SurrogateModel,
)
from autotune.optimize.reversal import estimate_reversal_costs
from autotune.optimize.reversal_cost import ReversalCost
from autotune.optimize.searcher import Outcome, Searcher, Suggestion
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study import trial as trials
from autotune.study.ranking import (
    FINAL_PHASES,
    MIN_CONFIGURATIONS,
    decide_verdict,
    estimate_study_drift,
    find_baseline,
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
from autotune.study.verdict import Verdict
from autotune.target.messages import format_count
from autotune.target.model import Budget

# Expected difference between a peak and an earlier measurement of the configuration, as the sd of the
# logarithm.
REPEAT_LOG_SD = 0.10
# The search stops if the probability of a gain of at least MIN_RELEVANT_GAIN is below this.
STOP_PROBABILITY = 0.05
# Phases that the model is fitted to. The reference is included because the model could dismiss a single
# measurement as noise. Finals and simplified trials are included to estimate changes without an effect.
MODELLED_PHASES = (*COUNTED_PHASES, Phase.REFERENCE, *FINAL_PHASES, Phase.SIMPLIFIED)


def run_study_loop(context: TrialContext, searcher: Searcher, budget: Budget) -> Verdict:
    """Run or continue the study until it is complete."""
    with context.clock.time_activity("search"):
        catch_up_search(searcher, context.store.state)
    while isinstance(step := resolve_next_step(context, searcher, budget), MeasureStep):
        inputs = prepare_measurement(step, context, budget)
        finished_trial = trials.run_trial(step, context, *inputs)
        learn_from_trial(context, searcher, finished_trial)
    return record_verdict(context, searcher)


@dataclass(frozen=True)
class Proposal:
    """A suggestion that was computed without a lock, from the study's first ``trial_count`` trials."""

    suggestion: Suggestion
    trial_count: int

    def is_still_new(self, state: State) -> bool:
        """True if no later trial uses the same suggestion."""
        return all(t.suggested != self.suggestion.values for t in state.trials[self.trial_count :])


def resolve_next_step(
    context: TrialContext, searcher: Searcher, budget: Budget, proposal: Proposal | None = None
) -> MeasureStep | SuggestStep | ConcludeStep | WaitStep:
    """Return the next step, and record results of the model that it needs.

    In a shared study, the model is queried without holding the lock. Without a ``proposal`` that is
    still new, the result is a ``SuggestStep``.
    """
    while True:
        state = context.store.state
        step = select_next_step(state, context.space, budget, context.elapsed_seconds, context.bed)
        if isinstance(step, MeasureStep | ConcludeStep | WaitStep):
            return step
        if (
            isinstance(step, SuggestStep)
            and state.is_shared
            and not (proposal and proposal.is_still_new(state))
        ):
            return step
        with context.clock.time_activity("search"):
            if not (state.is_shared and isinstance(step, SuggestStep)):
                searcher.narrow(state.limit_space(context.space))
            if state.is_shared and not isinstance(step, SuggestStep):
                sync_search(searcher, state)
            if isinstance(step, RankStep):
                _record_ranking(context, searcher)
            elif isinstance(step, SimplifyStep):
                _record_simplification(context, searcher, step.trial_number)
            elif (search_step := _ask_sampler(context, searcher, proposal)) is not None:
                return search_step


def propose_configuration(state: State, searcher: Searcher, space: SearchSpace) -> Proposal:
    """Return the model's suggestion from all recorded outcomes, which takes some time."""
    searcher.narrow(state.limit_space(space))
    sync_search(searcher, state)
    suggestion = searcher.suggest(estimate_study_drift(state))
    # As on all other workers, the sampler learns of the suggestion only when the trial is recorded.
    searcher.discard_trial(suggestion.number)
    return Proposal(suggestion, len(state.trials))


def prepare_measurement(
    step: MeasureStep, context: TrialContext, budget: Budget
) -> tuple[Estimate | None, Estimate | None, float]:
    """Return the expected peak, the peak to beat, and the maximum duration of a measurement in
    seconds.
    """
    state = context.store.state
    offset = state.bed_offset(context.bed)
    # The incumbent's first peak may have been lucky, and must not prune its own repeat.
    is_refinement = step.source_trial is not None and step.source_trial == find_incumbent_number(
        state
    )
    best_incumbent = None if is_refinement else find_incumbent(state)
    expected, incumbent = (
        offset.add_to_peak(estimate) if estimate and context.bed else estimate
        for estimate in (estimate_expected_peak(state, step), best_incumbent)
    )
    return (
        expected,
        incumbent,
        compute_time_limit(state, step.phase, budget, context.elapsed_seconds),
    )


def learn_from_trial(context: TrialContext, searcher: Searcher, trial: Trial) -> None:
    """Report the outcome of a trial to the sampler."""
    if trial.phase in MODELLED_PHASES:
        with context.clock.time_activity("search"):
            _record_trial_outcome(searcher, trial, context.store.state)
    context.record_time_spent()


def record_verdict(context: TrialContext, searcher: Searcher) -> Verdict:
    """Decide and record the verdict, with the cost of reverting each change of the winner."""
    verdict = decide_verdict(context.store.state)
    with context.clock.time_activity("search"):
        _record_reversal_costs(context, searcher, verdict)
    context.record_time_spent()
    context.store.record_verdict(verdict)
    return verdict


def _record_reversal_costs(context: TrialContext, searcher: Searcher, verdict: Verdict) -> None:
    state = context.store.state
    if verdict.best is None or len(list_measured_trials(state)) < MIN_CONFIGURATIONS:
        return
    if state.is_shared:
        sync_search(searcher, state)
    surrogate = searcher.fit_surrogate(estimate_study_drift(state))
    costs = predict_reversal_costs(surrogate, context.space, state, verdict.best)
    if costs:
        context.store.record_reversal_costs(state.find_trial(verdict.best), costs)


def predict_reversal_costs(
    surrogate: SurrogateModel, space: SearchSpace, state: State, winner_number: int
) -> dict[str, ReversalCost]:
    """Return the cost of reverting each searched change of a winner according to the model, largest
    first.
    """
    baseline, winner = find_baseline(state), state.find_trial(winner_number).effective_settings
    if baseline is None:
        return {}
    baseline_settings = baseline.effective_settings
    changed_names = list_searched_changes(space, baseline_settings, winner)
    return estimate_reversal_costs(surrogate, winner, baseline_settings, changed_names)


def list_searched_changes(space: SearchSpace, before: Settings, winner: Settings) -> list[str]:
    """Return the searched parameters that differ and have an effect in ``winner``."""
    searched_names = {d.name for d in space.tunable_dimensions} & space.active_parameters(winner)
    return [name for name in winner if name in searched_names and winner[name] != before.get(name)]


def estimate_expected_peak(state: State, step: MeasureStep) -> Estimate | None:
    """Return the expected peak: from an earlier measurement, or else from the incumbent's."""
    earlier_trials = [
        t
        for t in select_feasible_trials(state.list_finished())
        if state.configuration_number(t) == step.source_trial
    ]
    full_peaks = [
        state.normalized_peak(trial)
        for trial in earlier_trials
        if trial.peak and not trial.peak.is_pruned
    ]
    if full_peaks:
        return Estimate(full_peaks[0].log_mean, max(REPEAT_LOG_SD, full_peaks[0].sd))
    incumbent = find_incumbent(state)
    peaks = (
        [incumbent]
        if incumbent
        else [state.normalized_peak(trial) for trial in list_measured_trials(state)]
    )
    return Estimate(max(peak.log_mean for peak in peaks), UNMEASURED_PEAK_SD) if peaks else None


def _ask_sampler(
    context: TrialContext, searcher: Searcher, proposal: Proposal | None
) -> MeasureStep | None:
    """Return the next measurement, or ``None`` if the model expects no further improvement."""
    state = context.store.state
    suggestion = proposal.suggestion if proposal else searcher.suggest(estimate_study_drift(state))
    probability = suggestion.improvement_probability
    if probability is not None and probability < STOP_PROBABILITY:
        searcher.discard_trial(suggestion.number)
        count_text = format_count(len(state.list_finished(*COUNTED_PHASES)), "configuration")
        reason = (
            f"after {count_text}, the probability of another {MIN_RELEVANT_GAIN:.0%} gain is "
            f"{probability:.0%}"
        )
        context.store.record_stop_reason(reason)
        context.progress.note(f"search finished: {reason}")
        return None
    settings = {**context.space.baseline, **suggestion.values}
    # Optuna's numbers differ between workers.
    number = None if proposal else suggestion.number
    return MeasureStep(
        Phase.SEARCH, settings, suggestion_number=number, suggested=suggestion.values
    )


def _record_ranking(context: TrialContext, searcher: Searcher) -> None:
    drift = estimate_study_drift(context.store.state)
    if drift.is_significant:
        context.progress.note(f"drift: {drift}. Peaks are corrected to the current level.")
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
    changed_count = sum(winner[name] != value for name, value in space.baseline.items())
    if record.reverted:
        context.progress.note(
            f"The model expects no effect from {len(record.reverted)} of "
            f"{format_count(changed_count, 'change')} in trial {trial_number}. If time allows, autotune "
            "measures it without them."
        )
    elif record.accepted is not None:
        context.progress.note(
            f"Measurements show no effect from {len(record.without)} of "
            f"{format_count(changed_count, 'change')} in trial {trial_number}. The proof omits them."
        )


def _record_trial_outcome(searcher: Searcher, trial: Trial, state: State) -> None:
    moves = list_recommended_changes(state.bottlenecks.get(trial.number), trial.settings)
    record_outcome(searcher, trial, moves, state.capacities.get(trial.number))


def record_outcome(
    searcher: Searcher,
    trial: Trial,
    moves: Sequence[str] = (),
    capacities: Mapping[str, InstanceCapacity] | None = None,
) -> None:
    """Report the outcome of a trial to the sampler.

    ``moves`` are the changes that its bottleneck suggests, and ``capacities`` the measured capacities
    of service instances.
    """
    if trial.is_unmeasured:
        # The result of the configuration is still unknown, so the sampler must not learn from it.
        searcher.discard_trial(trial.suggestion_number)
        return
    peak = trial.peak
    is_feasible = peak is not None and peak.is_feasible
    notes: dict[str, str | float | int] = {"trial": trial.number, "phase": str(trial.phase)}
    if peak is not None:
        sd = peak.upper_sd if peak.is_pruned else peak.sd
        notes |= {CHANGES_KEY: " ".join(moves)} if moves else {}
        notes |= {CAPACITIES_KEY: json.dumps(capacities)} if capacities else {}
        notes |= {BED_KEY: trial.bed} if trial.bed else {}
        notes |= {"low": peak.low, "high": peak.high, "sd": sd, "verdict": peak.verdict}
    else:
        notes["why"] = trial.failure or ""
    outcome = Outcome(peak.peak if peak is not None and is_feasible else None, notes)
    searcher.record_outcome(trial.suggestion_number, trial.learned_settings, outcome)


def catch_up_search(searcher: Searcher, state: State) -> None:
    """Report missing outcomes to the search after a kill, and discard suggestions that were not
    measured.
    """
    for trial in state.list_finished(*MODELLED_PHASES):
        _record_trial_outcome(searcher, trial, state)
    searcher.discard_pending()


def sync_search(searcher: Searcher, state: State) -> None:
    """Report all recorded outcomes and running trials to a search of a shared study."""
    sync_outcomes(searcher, state)
    searcher.add_pending({t.number: t.suggested for t in state.list_running(Phase.SEARCH)})


def sync_outcomes(searcher: Searcher, state: State) -> None:
    """Report the outcomes that are still missing in a search."""
    recorded_trials = searcher.recorded_trials()
    for trial in state.list_finished(*MODELLED_PHASES):
        if trial.number not in recorded_trials:
            _record_trial_outcome(searcher, replace(trial, suggestion_number=None), state)
