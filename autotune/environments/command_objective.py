"""One trial of a user's own benchmark: asked, asked again where it failed, its answers weighed."""

from __future__ import annotations

import time
from math import sqrt
from typing import Protocol

from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.measure.answer import Answer, Fault, Unusable
from autotune.measure.answer import Value as Measured
from autotune.measure.merit import Scale
from autotune.measure.repeats import EXACT_SD, scatter
from autotune.services.base import Settings, Value
from autotune.space.space import Space
from autotune.study.records import Peak, Phase, State, Trial
from autotune.study.store import Store

# The baseline is asked for this often where the benchmark does not say how exact it is: how much
# its values scatter is worth more to all later trials than what two more of them could find.
FIRST_CALLS = 3
ATTEMPTS = 2
MOST_FAULTS = 3  # in a row; then it is the benchmark that needs a look


class Benchmark(Protocol):
    """What answers; ``maximize`` says whether its values are to be large."""

    @property
    def maximize(self) -> bool: ...

    def ask(self, trial: int, parameters: Settings) -> Answer: ...


def measured(trial: Trial, benchmark: Benchmark, space: Space, store: Store) -> Trial:
    """Ask and record: each answer is on disk before anything is concluded from it."""
    parameters = sent(space, trial.settings)
    answers: list[Measured] = []
    began = time.monotonic()
    for _ in range(_calls(trial, store.state)):
        answer = _ask(trial, benchmark, parameters, store)
        if isinstance(answer, Measured):
            answers.append(answer)
        else:
            why = f"infeasible: {answer.why}" if isinstance(answer, Unusable) else str(answer)
            store.failed(trial, why, fault=isinstance(answer, Fault))
            return store.state.by_number(trial.number)
        if answer.sd is not None:
            break
    store.answered(trial, [answer.value for answer in answers])
    peak = weighed(answers, scale(benchmark.maximize, store.state), store.state)
    store.assessed(trial, peak, readings=len(answers), seconds=time.monotonic() - began)
    return store.state.by_number(trial.number)


def _calls(trial: Trial, state: State) -> int:
    reference = trial.phase in (Phase.BASELINE, Phase.MEASURE)
    again = any(t.settings == trial.settings for t in state.trials if t.number in state.values)
    return FIRST_CALLS if reference and not again else 1


def sent(space: Space, settings: Settings) -> dict[str, Value]:
    """What the command is told: parameters that mean nothing under these settings are left out."""
    active = space.active(settings)
    return {name: value for name, value in settings.items() if name in active}


def scale(maximize: bool, state: State) -> Scale:  # noqa: FBT001  # as the target says it
    """How the values of this study compare: its first one is the reference."""
    return Scale(maximize, next(values[0] for values in state.values.values()))


def weighed(answers: list[Measured], by: Scale, state: State) -> Peak:
    """The mean of the answers as a peak. What they do not say of their sd, repeats have told."""
    logs = [by.log(answer.value) for answer in answers]
    middle = sum(logs) / len(logs)
    said = [by.sd(answer.value, answer.sd) for answer in answers if answer.sd is not None]
    one = max(said, default=0.0) if said else spread(by, state)
    sd = max(one, EXACT_SD) / sqrt(len(logs))
    return Peak.of(Estimate(middle, sd))


def spread(by: Scale, state: State) -> float:
    """The sd of the log of one value's merit, from all that was measured more than once."""
    groups: dict[tuple[tuple[str, Value], ...], list[float]] = {}
    for trial in state.trials:
        configuration = tuple(sorted(trial.settings.items()))
        logs = (by.log(value) for value in state.values.get(trial.number, ()))
        groups.setdefault(configuration, []).extend(logs)
    return scatter(groups.values())


def give_up_on_faults(state: State) -> None:
    """Raises AutotuneError where the benchmark itself is what needs mending."""
    last = state.finished()[-MOST_FAULTS:]
    if not last[-1].fault:
        return
    if last[-1].phase is Phase.BASELINE:
        told = f"the command fails on the baseline: {last[-1].failure}"
    elif len(last) == MOST_FAULTS and all(trial.fault for trial in last):
        told = f"the command failed in {MOST_FAULTS} trials in a row: {last[-1].failure}"
    else:
        return
    raise AutotuneError(told, hint="mend it, then `autotune resume` goes on with the study")


def _ask(trial: Trial, benchmark: Benchmark, parameters: Settings, store: Store) -> Answer:
    """Its answer; a fault is asked about once more."""
    answer: Answer = Fault("it was not asked")
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        answer = benchmark.ask(trial.number, parameters)
        store.called(trial, answer, time.monotonic() - began)
        if not isinstance(answer, Fault):
            break
    return answer
