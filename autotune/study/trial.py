"""One trial: repair the settings, record the trial, evaluate the settings, and record the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from autotune.deploy.deploy_result import DeployResult
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    FailedEvaluation,
    Measurement,
)
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.measure.benchmark import BenchmarkAnswer
from autotune.measure.warm_up import WarmUpResult
from autotune.space.repair import InfeasibleRule
from autotune.space.space import Candidate, SearchSpace
from autotune.study.incumbent import is_exploring
from autotune.study.reading_records import record_reading
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import COUNTED_PHASES, PRESET_PHASES, Phase, State, Trial
from autotune.study.study_store import StudyStore, format_current_timestamp
from autotune.study.today_rate import select_today_rate
from autotune.study.trial_context import TrialContext

# Phases that measure new configurations.
NEW_PHASES = COUNTED_PHASES - {Phase.BASELINE}
# Phases in which a configuration is measured only in part if it is unlikely to beat the incumbent. A
# simplified winner is compared with the lowest acceptable peak instead.
PRUNABLE_PHASES = NEW_PHASES | {Phase.SIMPLIFIED}
REFERENCE_PHASES = frozenset({Phase.BASELINE, Phase.MEASURE})
MAX_FAULTS = 3  # consecutive faults after which the study stops


def run_trial(
    step: MeasureStep,
    context: TrialContext,
    expected_peak: Estimate | None,
    incumbent: Estimate | None,
    max_seconds: float = inf,
    usual_seconds: float = inf,
) -> Trial:
    """Repair the settings, evaluate them (deploy, warm-up, capacity), and record the outcome.

    The trial is recorded before any host changes, and each reading before its result is used. A
    configuration that cannot be deployed or used is recorded as infeasible. ``max_seconds`` is the
    maximum duration of the trial. ``usual_seconds`` is the trial's share of the time budget (see
    `EvaluationRequest`).
    """
    trial = begin_trial(step, context)
    return (
        trial
        if trial.is_finished
        else measure_trial(trial, context, expected_peak, incumbent, max_seconds, usual_seconds)
    )


def begin_trial(step: MeasureStep, context: TrialContext) -> Trial:
    """Record the trial, which fails immediately if no values satisfy the rules."""
    store = context.store
    space = context.clamped_space
    # Settings from a record are not sealed, so they must be validated again.
    space.validate_settings(step.settings)
    start_recorder = partial(
        store.begin_trial,
        step.phase,
        suggestion_number=step.suggestion_number,
        suggested=step.suggested,
        bed=context.bed,
        replaced_trial=step.replaced_trial,
        bindings=step.bindings,
        requested=step.requested,
    )
    try:
        # A repeat uses the same settings, even if its memory requirements are now better known.
        is_repeated = step.source_trial is not None or step.phase is Phase.BASELINE
        candidate = (
            space.complete_without_repair(step.settings)
            if is_repeated
            else _build_candidate(step, space, context.store.state)
        )
    except InfeasibleRule as error:
        # With other settings, the schedule would request the same configuration again.
        trial = start_recorder(context.space.complete_without_repair(step.settings))
        return _finish_trial(
            context, trial, FailedEvaluation(f"no values satisfy the rule {error}")
        )
    trial = start_recorder(candidate, source_trial=step.source_trial)
    context.progress.on_trial_start(trial)
    return trial


def _build_candidate(step: MeasureStep, space: SearchSpace, state: State) -> Candidate:
    """Return the repaired settings of a step. Raises InfeasibleRule.

    Usually, candidates may need as much memory as the baseline. If the memory of a host was exhausted
    with the baseline, presets keep to the memory limit of this host, if possible. If the baseline
    failed, this applies to all hosts, because a host without memory may not show its usage.
    """
    hosts = space.memory_limited_hosts if state.has_failed_baseline else state.exhausted_hosts
    if step.phase in PRESET_PHASES and hosts:
        with suppress(InfeasibleRule):
            return space.without_memory_allowance(hosts).build_candidate(step.settings)
    return space.build_candidate(step.settings)


def measure_trial(
    trial: Trial,
    context: TrialContext,
    expected_peak: Estimate | None,
    incumbent: Estimate | None,
    max_seconds: float,
    usual_seconds: float,
) -> Trial:
    """Evaluate a recorded trial, and record its outcome."""
    request = EvaluationRequest(
        trial.number,
        expected_peak,
        incumbent if trial.phase in PRUNABLE_PHASES else None,
        is_reference=trial.phase in REFERENCE_PHASES,
        max_seconds=max_seconds,
        usual_seconds=usual_seconds,
        is_claim=trial.phase not in COUNTED_PHASES,
        is_exploration=trial.phase in NEW_PHASES and is_exploring(context.store.state),
        today_rate=select_today_rate(context.store.state, trial.phase, context.today_rate),
    )
    recorder = TrialRecorder(context, trial)
    evaluation = context.session.evaluate(trial.settings, request, recorder)
    context.wait_for_turn()
    return _finish_trial(context, trial, evaluation)


@dataclass(frozen=True)
class TrialRecorder:
    """A recorder that stores the events of an evaluation as events of ``trial``."""

    context: TrialContext
    trial: Trial

    def on_deployed(self, deployed: DeployResult) -> None:
        self.context.wait_for_turn()
        self.context.store.record_deployment(self.trial, deployed)
        self.context.progress.on_deployed(self.trial, deployed)

    def on_warm_up(self, warm_up: WarmUpResult) -> None:
        self.context.wait_for_turn()
        self.context.store.record_warm_up(self.trial, warm_up)
        self.context.progress.on_warm_up(self.trial, warm_up)

    def on_reading(self, watched: WatchedReading, purpose: str) -> None:
        self.context.wait_for_turn()
        record = record_reading(
            self.trial.number, format_current_timestamp(), purpose, watched.reading, watched.hosts
        )
        self.context.store.record_reading(record)
        self.context.record_time_spent()
        self.context.progress.on_reading(self.trial, watched.reading, purpose)

    def on_references(self, references: Sequence[Mapping[str, object]]) -> None:
        self.context.wait_for_turn()
        self.context.store.record_reference_answers(references)

    def on_answer(self, answer: BenchmarkAnswer, seconds: float) -> None:
        self.context.store.record_call(self.trial, answer, seconds)
        self.context.record_time_spent()

    def note(self, text: str) -> None:
        self.context.progress.note(text)


def _finish_trial(context: TrialContext, trial: Trial, evaluation: Evaluation) -> Trial:
    store = context.store
    if isinstance(evaluation, FailedEvaluation):
        store.record_failure(trial, evaluation.reason, is_fault=evaluation.is_fault)
    else:
        _record_measurement(context, trial, evaluation)
    finished_trial = store.state.find_trial(trial.number)
    context.progress.on_trial_end(finished_trial)
    check_repeated_faults(store, finished_trial)
    return finished_trial


def _record_measurement(context: TrialContext, trial: Trial, measurement: Measurement) -> None:
    store = context.store
    if measurement.bottleneck is not None:
        store.record_bottleneck(trial, measurement.bottleneck)
    store.record_capacities(trial, measurement.capacities)
    store.record_memory(trial, measurement.rss)
    if measurement.noise is not None:
        store.record_noise(measurement.noise)
    if measurement.values:
        store.record_command_values(trial, measurement.values)
    store.record_peak(
        trial,
        measurement.peak,
        reading_count=measurement.reading_count,
        load_seconds=measurement.load_seconds,
    )


def check_repeated_faults(store: StudyStore, last_trial: Trial) -> None:
    """Raise AutotuneError if repeated faults on the bed of ``last_trial`` show that the benchmark or the
    load must be fixed.
    """
    if not last_trial.is_unmeasured or (
        last_trial.phase is Phase.MEASURE and not last_trial.is_fault
    ):
        return
    finished_trials = store.state.exclude_outdated_faults(store.state.list_finished_trials())
    last_trials = [trial for trial in finished_trials if trial.bed == last_trial.bed][-MAX_FAULTS:]
    if last_trial.phase is Phase.BASELINE:
        faulty_subject = "the baseline"
    elif len(last_trials) == MAX_FAULTS and all(trial.is_unmeasured for trial in last_trials):
        faulty_subject = f"{MAX_FAULTS} trials in a row"
    else:
        return
    reason, advice = last_trial.failure, "fix the cause"
    if last_trial.peak is not None:
        bound_text = f"at least {last_trial.peak.peak:.0f} requests/s"
        reason = f"its capacity is {bound_text} (limited by {last_trial.peak.limit})"
        advice = "raise load.max_rate, or add hosts to load.hosts"
    raise AutotuneError(
        f"{faulty_subject} could not be measured: {reason}",
        hint=f"{advice}; then continue with `autotune resume {store.resume_argument}`",
    )
