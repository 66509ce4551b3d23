"""One trial: constraints → on record → evaluated → the outcome on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from autotune.deploy.deployed import Deployed
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.evaluation import Evaluation, EvaluationRequest, Failed, Measured
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.measure.benchmark import Answer
from autotune.measure.warmup import WarmUpResult
from autotune.space.space import Infeasible
from autotune.study.context import TrialContext
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.study.schedule import Measure

# Phases in which a configuration that will hardly beat the incumbent is not measured to the end.
PRUNED = COUNTED - {Phase.BASELINE}
REFERENCES = frozenset({Phase.BASELINE, Phase.MEASURE})
MOST_FAULTS = 3  # in a row; then the benchmark itself needs a look


def run(
    step: Measure,
    context: TrialContext,
    expected: Estimate | None,
    incumbent: Estimate | None,
    seconds: float = inf,
) -> Trial:
    """Settings → constraints → evaluation (deploy, warm-up, capacity) → outcome.

    The trial is on record before anything changes, each reading before anything is concluded from
    it. A configuration that cannot be deployed or used is a recorded, infeasible trial. The trial may
    take ``seconds``.
    """
    trial = begin(step, context)
    return trial if trial.over else measure(trial, context, expected, incumbent, seconds)


def begin(step: Measure, context: TrialContext) -> Trial:
    """Put the trial on record; it is over at once where no values keep the rules."""
    store = context.store
    space = context.known_space
    # They may come from a record, which is not sealed.
    space.check(step.settings)
    same: dict[str, Any] = {"asked": step.asked, "suggested": step.suggested,
                            "bed": context.bed, "repeats": step.repeats}  # fmt: skip
    try:
        # What was measured before is measured unchanged, even if more is known of its needs now.
        repeated = step.of is not None or step.phase is Phase.BASELINE
        candidate = (space.as_given if repeated else space.candidate)(step.settings)
    except Infeasible as error:
        candidate = context.space.candidate({})
        trial = store.begin(step.phase, candidate, **same)
        return _over(context, trial, Failed(f"no values keep the rule {error}"))
    trial = store.begin(step.phase, candidate, of=step.of, **same)
    context.progress.trial_begins(trial)
    return trial


def measure(
    trial: Trial,
    context: TrialContext,
    expected: Estimate | None,
    incumbent: Estimate | None,
    seconds: float,
) -> Trial:
    """Evaluate a trial that is on record, and put its outcome there."""
    request = EvaluationRequest(
        trial.number,
        expected,
        incumbent if trial.phase in PRUNED else None,
        reference=trial.phase in REFERENCES,
        seconds=seconds,
        claim=trial.phase not in COUNTED,
    )
    recorder = TrialRecorder(context, trial)
    evaluation = context.session.evaluate(trial.settings, request, recorder)
    context.turn()
    return _over(context, trial, evaluation)


@dataclass(frozen=True)
class TrialRecorder:
    """Puts what an evaluation learns on record as part of ``trial``."""

    context: TrialContext
    trial: Trial

    @property
    def elapsed(self) -> float:
        return self.context.store.state.elapsed

    def deployed(self, deployed: Deployed) -> None:
        self.context.turn()
        self.context.store.deployed(self.trial, deployed)
        self.context.progress.deployed(self.trial, deployed)

    def warmed(self, warm_up: WarmUpResult) -> None:
        self.context.turn()
        self.context.store.warmed(self.trial, warm_up)
        self.context.progress.warm(self.trial, warm_up)

    def reading(self, watched: WatchedReading, purpose: str) -> None:
        self.context.turn()
        self.context.store.reading(self.trial, watched.reading, purpose, watched.hosts)
        self.context.spent()
        self.context.progress.reading(self.trial, watched.reading, purpose)

    def references(self, references: Sequence[Mapping[str, Any]]) -> None:
        self.context.turn()
        self.context.store.answers(references)

    def answer(self, answer: Answer, seconds: float) -> None:
        self.context.store.called(self.trial, answer, seconds)

    def note(self, text: str) -> None:
        self.context.progress.note(text)


def _over(context: TrialContext, trial: Trial, evaluation: Evaluation) -> Trial:
    """Put the outcome on record."""
    store = context.store
    if isinstance(evaluation, Failed):
        store.failed(trial, evaluation.why, fault=evaluation.fault)
    else:
        _record(context, trial, evaluation)
    done = store.state.by_number(trial.number)
    context.progress.trial_ends(done)
    _give_up_on_faults(store.state)
    return done


def _record(context: TrialContext, trial: Trial, measured: Measured) -> None:
    store = context.store
    if measured.bottleneck is not None:
        store.bottleneck(trial, measured.bottleneck)
    store.capacities(trial, measured.capacities)
    store.memory(trial, measured.rss)
    if measured.noise is not None:
        store.noise(measured.noise)
    if measured.values:
        store.answered(trial, measured.values)
    store.measured(
        trial, measured.peak, readings=measured.readings, load_seconds=measured.load_seconds
    )


def _give_up_on_faults(state: State) -> None:
    """Raises AutotuneError where the benchmark, or the load, is what needs mending."""
    last = state.finished()[-MOST_FAULTS:]
    done = last[-1]
    if not done.unmeasured or (done.phase is Phase.MEASURE and not done.fault):
        return
    if done.phase is Phase.BASELINE:
        what = "the baseline"
    elif len(last) == MOST_FAULTS and all(trial.unmeasured for trial in last):
        what = f"{MOST_FAULTS} trials in a row"
    else:
        return
    why, first = done.failure, "mend that"
    if done.peak is not None:
        why = f"its capacity is at least {done.peak.peak:.0f} requests/s (limited by {done.peak.limit})"
        first = "raise load.max_rate, or add hosts to load.hosts"
    raise AutotuneError(
        f"{what} could not be measured: {why}",
        hint=f"{first}; then `autotune resume` goes on with the study",
    )
