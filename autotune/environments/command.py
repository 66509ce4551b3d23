"""Environment of a user's command, which is called for each configuration: see `measure.benchmark`."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Protocol

from autotune.deploy.deployed import Deployed, Fleet
from autotune.environments.base import Checked, Preview, tunable
from autotune.environments.clock import Clock
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    Failed,
    History,
    Measured,
    Recorder,
)
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.measure.benchmark import Answer, Benchmark, Fault, Unusable, Value
from autotune.measure.objective_scale import EXACT_SD, Scale, scatter
from autotune.services.base import Settings
from autotune.space import space as spaces
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.messages import plural
from autotune.target.read import TargetFile

PARAMETERS = "parameters.json"
# Calls for the baseline if the benchmark reports no sd. A good noise estimate helps all later
# trials more than two more trials would.
FIRST_CALLS = 3
ATTEMPTS = 2


@dataclass(frozen=True)
class CommandEnvironment:
    """A target that is a command: see `environments.base.Environment`."""

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    argv: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    def announce(self, *, study: bool = True) -> str:
        budget = self.file.target.budget
        called = f"autotune calls {shlex.join(self.argv)} in {self.directory}"
        if not study:
            return f"{called}."
        return (
            f"{called} for up to {plural(budget.trials, 'configuration')} and about "
            f"{plural(budget.time / 60, 'minute')}. This time includes the calls that verify the best "
            "configuration."
        )

    def software(self) -> dict[str, dict[str, str]]:
        return {}

    def check(self) -> Checked:
        """Check without calling the command, because a benchmark may have side effects."""
        first = len(self.space.try_first)
        return Checked(
            held=(
                f"{self.file.path}: {tunable(self.space)}, {first} to try first",
                f"command: {shlex.join(self.argv)} in {self.directory}",
            ),
            left_out=(),
            not_checked=("the results of the command: `autotune measure` calls it",),
        )

    def headroom(self) -> str:
        raise AutotuneError("--headroom requires a stack; a command generates its own load")

    def preview(self) -> Preview:
        return Preview(shlex.join(self.argv), (), lambda settings: _files(self.space, settings))

    @property
    def directory(self) -> Path:
        """Return the working directory of the command: the directory of the target file."""
        return self.file.path.resolve().parent

    @contextmanager
    def session(
        self, directory: Path, note: Callable[[str], None], history: History
    ) -> Iterator[CommandSession]:
        """Prepare the command for calls. A running call is stopped at the end of the session."""
        target, goal = self.file.target, self.file.target.goal
        assert goal is not None
        with Benchmark(self.argv, self.directory, target.timeout, directory.name) as benchmark:
            yield CommandSession(benchmark, self.space, history, maximize=goal.maximize)


class Asks(Protocol):
    """An object that returns a value for parameters, such as `measure.benchmark.Benchmark`."""

    def ask(self, trial: int, parameters: Settings) -> Answer: ...


@dataclass(frozen=True)
class Parameters(Fleet):
    """Fleet without deployment. It returns the parameters for the command as a file to export."""

    space: Space

    def deploy(self, settings: Settings) -> Deployed:
        return Deployed(_files(self.space, settings), {}, sent(self.space, settings))

    def restore(self) -> None:
        """Do nothing. The command is responsible for the changes it makes."""


class CommandSession:
    """Session that calls a benchmark command. Larger values are better if ``maximize`` is set."""

    def __init__(self, benchmark: Asks, space: Space, history: History, *, maximize: bool) -> None:
        self.fleet, self.clock = Parameters(space), Clock()
        self._benchmark, self._space, self._maximize = benchmark, space, maximize
        self._answers = list(history.answers)

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Call the command and repeat a failed call. Every value is recorded before it is used."""
        record.deployed(self.fleet.deploy(settings))
        answers: list[Value] = []
        began = time.monotonic()
        with self.clock.on("load"):
            for _ in range(self._calls(settings, request)):
                answer = self._ask(settings, request, record)
                if not isinstance(answer, Value):
                    return _failed(answer)
                answers.append(answer)
                if answer.sd is not None:
                    break
        values = tuple(answer.value for answer in answers)
        self._answers.append((settings, values))
        seconds = time.monotonic() - began
        return Measured(self._peak(answers), len(answers), seconds, values=values)

    def _calls(self, settings: Settings, request: EvaluationRequest) -> int:
        repeated = any(earlier == settings for earlier, _ in self._answers)
        return FIRST_CALLS if request.reference and not repeated else 1

    def _ask(self, settings: Settings, request: EvaluationRequest, record: Recorder) -> Answer:
        """Call the command, and once more after a fault."""
        answer: Answer = Fault("the command was not called")
        for _ in range(ATTEMPTS):
            began = time.monotonic()
            answer = self._benchmark.ask(request.trial, sent(self._space, settings))
            record.answer(answer, time.monotonic() - began)
            if not isinstance(answer, Fault):
                break
        return answer

    def _peak(self, answers: list[Value]) -> Peak:
        """Return the mean of the values. Without reported sds, repeated measurements estimate the
        sd.
        """
        scale = Scale(self._maximize, self._answers[0][1][0])
        logs = [scale.log(answer.value) for answer in answers]
        mean = sum(logs) / len(logs)
        stated = [scale.sd(answer.value, answer.sd) for answer in answers if answer.sd is not None]
        each = max(stated) if stated else self._scatter(scale)
        sd = max(each, EXACT_SD) / sqrt(len(logs))
        return Peak.of(Estimate(mean, sd))

    def _scatter(self, scale: Scale) -> float:
        """Return the sd of the log of one value's score, from all repeated measurements."""
        groups: dict[tuple[tuple[str, object], ...], list[float]] = {}
        for settings, values in self._answers:
            configuration = tuple(sorted(settings.items()))
            groups.setdefault(configuration, []).extend(map(scale.log, values))
        return scatter(groups.values())


def prepare(file: TargetFile) -> CommandEnvironment:
    """Build the search space and find the program. Nothing is called.

    Raises TargetError for values that do not fit and for a missing program.
    """
    argv = file.target.command
    assert argv is not None
    space = spaces.build(file, {})
    place = file.path.resolve().parent
    program = str(place / argv[0]) if "/" in argv[0] else argv[0]
    if shutil.which(program) is None:
        there = Path(program).exists()
        hint = f"chmod +x {shlex.quote(program)}" if there else None
        message = f"{argv[0]} is not executable" if there else f"program {argv[0]!r} not found"
        raise file.document.error(["command", 0], message, hint=hint)
    return CommandEnvironment(file, space, {}, argv)


def sent(space: Space, settings: Settings) -> Settings:
    """Return the parameters for the command, without those that are inactive under these settings."""
    active = space.active(settings)
    return {name: value for name, value in settings.items() if name in active}


def _failed(answer: Unusable | Fault) -> Failed:
    if isinstance(answer, Unusable):
        return Failed(f"infeasible: {answer.why}")
    return Failed(f"the command failed: {answer}", fault=True)


def _files(space: Space, settings: Settings) -> dict[str, bytes]:
    parameters = dict(sorted(sent(space, settings).items()))
    return {PARAMETERS: json.dumps(parameters, indent=2, ensure_ascii=False).encode() + b"\n"}
