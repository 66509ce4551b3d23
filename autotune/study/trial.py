"""One trial: constraints → on record → evaluated → the outcome on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

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
from autotune.space.space import InfeasibleRule
from autotune.study.ranking import is_exploring
from autotune.study.schedule import MeasureStep
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.trial_context import TrialContext

# Phases in which a configuration that will hardly beat the incumbent is not measured to the end.
PRUNABLE_PHASES = COUNTED_PHASES - {Phase.BASELINE}
REFERENCE_PHASES = frozenset({Phase.BASELINE, Phase.MEASURE})
MAX_FAULTS = 3  # in a row; then the benchmark itself needs a look


def run_trial(
    step: MeasureStep,
    context: TrialContext,
    expected_peak: Estimate | None,
    incumbent: Estimate | None,
    max_seconds: float = inf,
) -> Trial:
    """Settings → constraints → evaluation (deploy, warm-up, capacity) → outcome.

    The trial is on record before anything changes, each reading before anything is concluded from
    it. A configuration that cannot be deployed or used is a recorded, infeasible trial. The trial may
    take ``max_seconds``.
    """
    trial = begin_trial(step, context)
    return (
        trial
        if trial.is_finished
        else measure_trial(trial, context, expected_peak, incumbent, max_seconds)
    )


def begin_trial(step: MeasureStep, context: TrialContext) -> Trial:
    """Put the trial on record; it is over at once where no values keep the rules."""
    store = context.store
    space = context.clamped_space
    # They may come from a record, which is not sealed.
    space.validate_settings(step.settings)
    same: dict[str, Any] = {"asked": step.suggestion_number, "suggested": step.suggested,
                            "bed": context.bed, "repeats": step.replaced_trial}  # fmt: skip
    try:
        # What was measured before is measured unchanged, even if more is known of its needs now.
        repeated = step.source_trial is not None or step.phase is Phase.BASELINE
        candidate = (space.complete_unrepaired if repeated else space.build_candidate)(
            step.settings
        )
    except InfeasibleRule as error:
        candidate = context.space.build_candidate({})
        trial = store.begin_trial(step.phase, candidate, **same)
        return _finish_trial(context, trial, FailedEvaluation(f"no values keep the rule {error}"))
    trial = store.begin_trial(step.phase, candidate, source_trial=step.source_trial, **same)
    context.progress.on_trial_start(trial)
    return trial


def measure_trial(
    trial: Trial,
    context: TrialContext,
    expected_peak: Estimate | None,
    incumbent: Estimate | None,
    max_seconds: float,
) -> Trial:
    """Evaluate a trial that is on record, and put its outcome there."""
    request = EvaluationRequest(
        trial.number,
        expected_peak,
        incumbent if trial.phase in PRUNABLE_PHASES else None,
        is_reference=trial.phase in REFERENCE_PHASES,
        max_seconds=max_seconds,
        is_claim=trial.phase not in COUNTED_PHASES,
        is_exploration=trial.phase in PRUNABLE_PHASES and is_exploring(context.store.state),
    )
    recorder = TrialRecorder(context, trial)
    evaluation = context.session.evaluate(trial.settings, request, recorder)
    context.wait_for_turn()
    return _finish_trial(context, trial, evaluation)


@dataclass(frozen=True)
class TrialRecorder:
    """Puts what an evaluation learns on record as part of ``trial``."""

    context: TrialContext
    trial: Trial

    @property
    def elapsed(self) -> float:
        return self.context.store.state.elapsed_seconds

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
        self.context.store.record_reading(self.trial, watched.reading, purpose, watched.hosts)
        self.context.record_time_spent()
        self.context.progress.on_reading(self.trial, watched.reading, purpose)

    def on_references(self, references: Sequence[Mapping[str, Any]]) -> None:
        self.context.wait_for_turn()
        self.context.store.record_reference_answers(references)

    def on_answer(self, answer: BenchmarkAnswer, seconds: float) -> None:
        self.context.store.record_call(self.trial, answer, seconds)

    def note(self, text: str) -> None:
        self.context.progress.note(text)


def _finish_trial(context: TrialContext, trial: Trial, evaluation: Evaluation) -> Trial:
    """Put the outcome on record."""
    store = context.store
    if isinstance(evaluation, FailedEvaluation):
        store.record_failure(trial, evaluation.reason, is_fault=evaluation.is_fault)
    else:
        _record_measurement(context, trial, evaluation)
    done = store.state.find_trial(trial.number)
    context.progress.on_trial_end(done)
    _check_repeated_faults(store.state)
    return done


def _record_measurement(context: TrialContext, trial: Trial, measured: Measurement) -> None:
    store = context.store
    if measured.bottleneck is not None:
        store.record_bottleneck(trial, measured.bottleneck)
    store.record_capacities(trial, measured.capacities)
    store.record_memory(trial, measured.rss)
    if measured.noise is not None:
        store.record_noise(measured.noise)
    if measured.values:
        store.record_command_values(trial, measured.values)
    store.record_peak(
        trial, measured.peak, readings=measured.reading_count, load_seconds=measured.load_seconds
    )


def _check_repeated_faults(state: State) -> None:
    """Raises AutotuneError where the benchmark, or the load, is what needs mending."""
    last = state.list_finished()[-MAX_FAULTS:]
    done = last[-1]
    if not done.is_unmeasured or (done.phase is Phase.MEASURE and not done.fault):
        return
    if done.phase is Phase.BASELINE:
        what = "the baseline"
    elif len(last) == MAX_FAULTS and all(trial.is_unmeasured for trial in last):
        what = f"{MAX_FAULTS} trials in a row"
    else:
        return
    reason, first = done.failure, "mend that"
    if done.peak is not None:
        at_least = f"its capacity is at least {done.peak.peak:.0f} requests/s"
        reason = f"{at_least} (limited by {done.peak.limit})"
        first = "raise load.max_rate, or add hosts to load.hosts"
    raise AutotuneError(
        f"{what} could not be measured: {reason}",
        hint=f"{first}; then `autotune resume` goes on with the study",
    )
