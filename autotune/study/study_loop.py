"""The main loop of a study: select a step, run it, and report it to the sampler, until the study is
complete.

Each test bed runs the loop in its own thread. A study without beds runs the loop on its only stack.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from autotune.environments.load_session import UNMEASURED_PEAK_SD
from autotune.estimate import Estimate
from autotune.optimize.bed_differences import estimate_offsets
from autotune.optimize.gp.surrogate import MIN_RELEVANT_GAIN, SurrogateModel
from autotune.optimize.reversal import estimate_reversal_costs
from autotune.optimize.reversal_cost import ReversalCost
from autotune.optimize.searcher import Searcher, Suggestion
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study import trial as trials
from autotune.study.bed_barrier import BedBarrier
from autotune.study.incumbent import find_incumbent, find_incumbent_number
from autotune.study.proof import decide_verdict
from autotune.study.ranking import (
    MIN_CONFIGURATIONS,
    find_baseline,
    find_simplification,
    list_measured_trials,
    predict_repeat,
    select_feasible_trials,
)
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import (
    ConcludeStep,
    EstimateCostsStep,
    MeasureStep,
    RankStep,
    ScheduleStep,
    SimplifyStep,
    SuggestStep,
    WaitStep,
)
from autotune.study.search_history import (
    MODELLED_PHASES,
    catch_up_search,
    record_trial_outcome,
    sync_search,
)
from autotune.study.simplification import MAX_SIMPLIFICATION_LOSS, select_next_block
from autotune.study.study_drift import estimate_study_drift, list_bed_readings
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.study_store import StudyStore
from autotune.study.time_budget import USUAL_MEASUREMENTS, compute_time_limit
from autotune.study.trial_context import TrialContext
from autotune.study.verdict import Verdict
from autotune.target.messages import format_count
from autotune.target.model import Budget

NextStep = tuple[ScheduleStep, Trial | None]
# Expected difference between two measurements of the same configuration, as the sd of the logarithm.
REPEAT_LOG_SD = 0.10
# The search stops if the probability of a gain of at least MIN_RELEVANT_GAIN is below STOP_PROBABILITY.
STOP_PROBABILITY = 0.05
# Phases whose trials show differences between beds.
COMPARISON_PHASES = (Phase.BASELINE, Phase.REFERENCE, Phase.FINALIST)
# With at least this many active beds in a shared study, a bed requests its next configuration while it
# is still measuring. The model then lacks only one of many outcomes.
PREFETCH_MIN_BEDS = 16


@dataclass(frozen=True)
class Proposal:
    """A suggestion that was computed without a lock, from the study's first ``trial_count`` trials, of
    which ``finished_count`` were finished and counted towards the budget.
    """

    suggestion: Suggestion
    trial_count: int
    finished_count: int

    def is_still_new(self, state: State) -> bool:
        """True if no later trial uses the same suggestion. A suggestion that would end the search must
        also be based on all outcomes.
        """
        if ends_search(self.suggestion) and count_configurations(state) != self.finished_count:
            return False
        return all(t.suggested != self.suggestion.values for t in state.trials[self.trial_count :])


def ends_search(suggestion: Suggestion) -> bool:
    """True if the model expects no further improvement."""
    probability = suggestion.improvement_probability
    return probability is not None and probability < STOP_PROBABILITY


def count_configurations(state: State) -> int:
    """Return the number of finished trials that count towards the budget."""
    return len(state.list_finished_trials(*COUNTED_PHASES))


class StudyLoop:
    """The loop of a study, which each of its stacks runs until the study is complete.

    Only one bed at a time decides the next step, even across all processes of a shared study. Each
    process has its own search.
    """

    def __init__(
        self,
        space: SearchSpace,
        store: StudyStore,
        searcher: Searcher,
        budget: Budget,
        barrier: BedBarrier,
    ) -> None:
        self._space, self._store, self._searcher = space, store, searcher
        self._budget, self._barrier = budget, barrier
        self._is_caught_up = False
        self._search_lock = threading.Lock()
        self._prefetcher = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._proposals: dict[str | None, Future[Proposal]] = {}

    def run(self, context: TrialContext) -> None:
        """Measure trials one after the other until the study is complete."""
        while True:
            context.wait_for_turn()
            step, trial = self._decide_next_step(context)
            if isinstance(step, ConcludeStep):
                return
            if trial is None or not isinstance(step, MeasureStep):
                self._barrier.wait_for_others(context.bed, context.clock)
                continue
            self._prefetch_proposal(context, trial)
            measurement_inputs = prepare_measurement(step, context, self._budget)
            finished_trial = (
                trial
                if trial.is_finished
                else trials.measure_trial(trial, context, *measurement_inputs)
            )
            self._report_outcome(context, finished_trial)
            self._barrier.finish_trial(context.bed, context.clock)

    def close(self) -> None:
        """Stop requesting suggestions."""
        self._prefetcher.shutdown(cancel_futures=True)

    def _decide_next_step(self, context: TrialContext) -> NextStep:
        """Record and return the next step. In a shared study, the lock is not held while the model
        suggests a configuration.
        """
        prefetched_proposal = self._proposals.pop(context.bed, None)
        with context.clock.time_activity("search"):
            proposal = prefetched_proposal.result() if prefetched_proposal else None
        next_step = self._store.run_decision(partial(self._begin_next_step, context, proposal))
        while isinstance(next_step[0], SuggestStep):
            with context.clock.time_activity("search"):
                proposal = self._propose_suggestion()
            next_step = self._store.run_decision(partial(self._begin_next_step, context, proposal))
        return next_step

    def _prefetch_proposal(self, context: TrialContext, trial: Trial) -> None:
        """Request the next suggestion during a trial of a shared study with many beds."""
        has_many_beds = (
            self._store.is_shared and len(context.store.state.active_beds) >= PREFETCH_MIN_BEDS
        )
        if has_many_beds and trial.phase in COUNTED_PHASES:
            self._proposals[context.bed] = self._prefetcher.submit(self._propose_suggestion)

    def _propose_suggestion(self) -> Proposal:
        with self._search_lock:
            return propose_configuration(self._store.state, self._searcher, self._space)

    def _begin_next_step(self, context: TrialContext, proposal: Proposal | None) -> NextStep:
        """Return the next step, with the trial that was started for it, if any."""
        if self._store.state.verdict is not None:
            return ConcludeStep(), None
        if not (self._is_caught_up or self._store.is_shared):
            with context.clock.time_activity("search"):
                catch_up_search(self._searcher, self._store.state)
            self._is_caught_up = True
        step = resolve_next_step(context, self._searcher, self._budget, proposal, self._search_lock)
        if isinstance(step, ConcludeStep):
            with self._search_lock:
                record_verdict(context, self._searcher)
        return step, trials.begin_trial(step, context) if isinstance(step, MeasureStep) else None

    def _report_outcome(self, context: TrialContext, trial: Trial) -> None:
        """Report the outcome to the search.

        In a shared study, the search instead reads all outcomes from the records at its next request.
        """
        if not self._store.is_shared:
            self._store.run_decision(partial(self._report_local_outcome, context, trial))
            return
        if _shows_bed_differences(trial):
            self._store.run_decision(partial(self._record_bed_offsets, trial))
        context.record_time_spent()

    def _report_local_outcome(self, context: TrialContext, trial: Trial) -> None:
        self._record_bed_offsets(trial)
        learn_from_trial(context, self._searcher, trial)

    def _record_bed_offsets(self, trial: Trial) -> None:
        """Record the estimated differences between beds, if this trial adds information about them.

        Alternating measurements do not change the offsets, because pairs must be compared with the same
        offsets.
        """
        if _shows_bed_differences(trial):
            state = self._store.state
            self._store.record_offsets(estimate_offsets(list_bed_readings(state), state.beds))


def _shows_bed_differences(trial: Trial) -> bool:
    return trial.bed is not None and trial.phase in COMPARISON_PHASES and trial.peak is not None


def run_study_loop(context: TrialContext, searcher: Searcher, budget: Budget) -> Verdict:
    """Run or continue a study on its only stack until it is complete."""
    barrier = BedBarrier((context.bed,))
    with closing(StudyLoop(context.space, context.store, searcher, budget, barrier)) as study_loop:
        study_loop.run(context)
    verdict = context.store.state.verdict
    assert verdict is not None
    return verdict


def resolve_next_step(
    context: TrialContext,
    searcher: Searcher,
    budget: Budget,
    proposal: Proposal | None,
    search_lock: AbstractContextManager[object],
) -> MeasureStep | SuggestStep | ConcludeStep | WaitStep:
    """Return the next step, and record the model's results that this step needs.

    In a shared study, the store's lock is not held while the model suggests a configuration. Without a
    ``proposal`` that is still new, the result is a ``SuggestStep``. ``search_lock`` is held while the
    model is used, because another bed of this process may request a suggestion.
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
        is_proposed = state.is_shared and isinstance(step, SuggestStep)
        model_lock = nullcontext() if is_proposed else search_lock
        with context.clock.time_activity("search"), model_lock:
            if not is_proposed:
                searcher.narrow_space(state.limit_space(context.space))
            if state.is_shared and not isinstance(step, SuggestStep):
                sync_search(searcher, state)
            if isinstance(step, RankStep):
                _record_ranking(context, searcher)
            elif isinstance(step, SimplifyStep):
                _record_simplification(context, searcher, step.trial_number)
            elif isinstance(step, EstimateCostsStep):
                _record_reversal_costs(context, searcher, step.trial_number)
            elif (search_step := _request_suggestion(context, searcher, proposal)) is not None:
                return search_step


def propose_configuration(state: State, searcher: Searcher, space: SearchSpace) -> Proposal:
    """Return the configuration that the model suggests, based on all recorded outcomes."""
    searcher.narrow_space(state.limit_space(space))
    sync_search(searcher, state)
    suggestion = searcher.suggest(estimate_study_drift(state))
    # As on all other workers, the sampler learns of the suggestion only when the trial is recorded.
    searcher.discard_trial(suggestion.number)
    return Proposal(suggestion, len(state.trials), count_configurations(state))


def prepare_measurement(
    step: MeasureStep, context: TrialContext, budget: Budget
) -> tuple[Estimate | None, Estimate | None, float, float]:
    """Return the expected peak, the peak to beat, and the maximum and the usual duration of a
    measurement in seconds.
    """
    state = context.store.state
    bed_offset = state.get_bed_offset(context.bed)
    # The incumbent's first peak may be too high by chance, so it must not prune the repeat.
    is_refinement = step.source_trial is not None and step.source_trial == find_incumbent_number(
        state
    )
    if step.phase is Phase.SIMPLIFIED and step.source_trial is not None:
        best_incumbent = _find_lowest_acceptable_peak(state, step.source_trial)
    else:
        best_incumbent = None if is_refinement else find_incumbent(state)
    expected_peak, incumbent = (
        bed_offset.add_to_peak(estimate) if estimate else None
        for estimate in (estimate_expected_peak(state, step), best_incumbent)
    )
    return (
        expected_peak,
        incumbent,
        compute_time_limit(state, step.phase, budget, context.elapsed_seconds),
        budget.time / USUAL_MEASUREMENTS,
    )


def _find_lowest_acceptable_peak(state: State, winner_number: int) -> Estimate | None:
    """Return the peak below which a simplified winner is rejected without a precise measurement.

    The peak to beat in the search is not used, because it is probably too high by chance.
    """
    peak = predict_repeat(state, winner_number)
    return peak and replace(peak, log_mean=peak.log_mean - MAX_SIMPLIFICATION_LOSS)


def learn_from_trial(context: TrialContext, searcher: Searcher, trial: Trial) -> None:
    """Report the outcome of a trial to the sampler."""
    if trial.phase in MODELLED_PHASES:
        with context.clock.time_activity("search"):
            record_trial_outcome(searcher, trial, context.store.state)
    context.record_time_spent()


def record_verdict(context: TrialContext, searcher: Searcher) -> Verdict:
    """Decide and record the verdict, with the cost of reverting each change of the winner."""
    verdict = decide_verdict(context.store.state)
    with context.clock.time_activity("search"):
        if verdict.best is not None:
            _record_reversal_costs(context, searcher, verdict.best)
    context.record_time_spent()
    context.store.record_verdict(verdict)
    return verdict


def _record_reversal_costs(context: TrialContext, searcher: Searcher, winner_number: int) -> None:
    state = context.store.state
    if len(list_measured_trials(state)) < MIN_CONFIGURATIONS:
        return
    if state.is_shared:
        sync_search(searcher, state)
    surrogate = searcher.fit_surrogate(estimate_study_drift(state))
    costs = predict_reversal_costs(surrogate, context.space, state, winner_number)
    context.store.record_reversal_costs(state.find_trial(winner_number), costs)


def predict_reversal_costs(
    surrogate: SurrogateModel, space: SearchSpace, state: State, winner_number: int
) -> dict[str, ReversalCost]:
    """Return the cost of reverting each searched change of a winner according to the model, the largest
    cost first.
    """
    baseline, winner = find_baseline(state), state.find_trial(winner_number).effective_settings
    if baseline is None:
        return {}
    baseline_settings = baseline.effective_settings
    changed_names = list_searched_changes(space, baseline_settings, winner)
    return estimate_reversal_costs(surrogate, winner, baseline_settings, changed_names)


def list_searched_changes(
    space: SearchSpace, compared_settings: Settings, winner: Settings
) -> list[str]:
    """Return the searched parameters that differ from ``compared_settings`` and have an effect in
    ``winner``.
    """
    searched_names = {d.name for d in space.tunable_dimensions} & space.active_parameters(winner)
    return [
        name
        for name in winner
        if name in searched_names and winner[name] != compared_settings.get(name)
    ]


def estimate_expected_peak(state: State, step: MeasureStep) -> Estimate | None:
    """Return the expected peak, from an earlier measurement of the configuration or else from the
    incumbent.

    A simplified winner has its own settings, but its configuration number is that of the leader.
    """
    earlier_trials = [
        t
        for t in select_feasible_trials(state.list_finished_trials())
        if step.source_trial in (t.number, state.find_configuration_number(t))
    ]
    full_peaks = [
        state.normalize_peak(trial)
        for trial in earlier_trials
        if trial.peak and not trial.peak.is_incomplete
    ]
    if full_peaks:
        sd = max(REPEAT_LOG_SD, full_peaks[0].sd, _compute_sd_in_proof(state, step))
        return Estimate(full_peaks[0].log_mean, sd)
    incumbent = find_incumbent(state)
    peaks = (
        [incumbent]
        if incumbent
        else [state.normalize_peak(trial) for trial in list_measured_trials(state)]
    )
    return Estimate(max(peak.log_mean for peak in peaks), UNMEASURED_PEAK_SD) if peaks else None


def _compute_sd_in_proof(state: State, step: MeasureStep) -> float:
    """Return half the log ratio of winner and baseline in the proof, but at most the sd of a peak that
    was not measured. Return 0 in other phases.

    If an unreliable stack made the first peak of one side too low, later measurements must be able to
    correct it. Otherwise, all pairs would repeat the same error. With an even larger sd, one failure
    near the peak would seem possible for a far lower peak, and short measurements would end too low.
    """
    if step.phase is not Phase.CONFIRM:
        return 0.0
    baseline, peak = find_baseline(state), find_incumbent(state)
    if peak is None or baseline is None or baseline.peak is None:
        return 0.0
    log_ratio = abs(peak.log_mean - state.normalize_peak(baseline).log_mean)
    return min(log_ratio / 2.0, UNMEASURED_PEAK_SD)


def _request_suggestion(
    context: TrialContext, searcher: Searcher, proposal: Proposal | None
) -> MeasureStep | None:
    """Return the next measurement, or ``None`` if the model expects no further improvement."""
    state = context.store.state
    suggestion = proposal.suggestion if proposal else searcher.suggest(estimate_study_drift(state))
    if ends_search(suggestion):
        searcher.discard_trial(suggestion.number)
        count_text = format_count(count_configurations(state), "configuration")
        reason = (
            f"after {count_text}, the probability of another {MIN_RELEVANT_GAIN:.0%} gain is "
            f"{suggestion.improvement_probability:.0%}"
        )
        context.store.record_stop_reason(reason)
        context.progress.note(f"search finished: {reason}")
        return None
    settings = {**context.space.baseline, **suggestion.values}
    # Optuna's trial numbers differ between workers.
    suggestion_number = None if proposal else suggestion.number
    return MeasureStep(
        Phase.SEARCH, settings, suggestion_number=suggestion_number, suggested=suggestion.values
    )


def _record_ranking(context: TrialContext, searcher: Searcher) -> None:
    drift = estimate_study_drift(context.store.state)
    if drift.is_significant:
        context.progress.note(f"drift: {drift}. Capacities are corrected to the current level.")
    posterior = searcher.compute_posterior_peaks(drift)
    # A resumed study ranks again only if the posterior is missing, so the posterior is recorded last.
    context.store.record_model(searcher.build_model_view(drift))
    context.store.record_posterior(posterior)


def _record_simplification(context: TrialContext, searcher: Searcher, trial_number: int) -> None:
    state = context.store.state
    space = context.clamped_space
    previous_record = find_simplification(state, trial_number)
    had_accepted = previous_record is not None and previous_record.accepted is not None
    record = select_next_block(
        state, searcher.fit_surrogate(estimate_study_drift(state)), space, trial_number
    )
    context.store.record_simplification(record)
    winner_settings = state.find_trial(trial_number).effective_settings
    changed_count = sum(winner_settings[name] != value for name, value in space.baseline.items())
    if record.reverted and not record.measured:  # one notice is enough for all blocks
        context.progress.note(
            f"The model expects no effect from {len(record.reverted)} of "
            f"{format_count(changed_count, 'change')} in trial {trial_number}. If time allows, autotune "
            "measures it without them."
        )
    elif record.accepted is not None and not had_accepted:  # later blocks add to the same changes
        context.progress.note(
            f"Measurements show no effect from at least {len(record.without)} of "
            f"{format_count(changed_count, 'change')} in trial {trial_number}. The proof omits changes "
            "without an effect."
        )
