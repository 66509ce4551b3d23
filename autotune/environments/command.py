"""A command of the user's own, called for each configuration: see `measure.benchmark`."""

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
# The baseline is measured this often where the benchmark does not state its sd: knowing how much its
# values scatter is worth more to all later trials than what two more trials could find.
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
        called = f"{shlex.join(self.argv)} is called in {self.directory}"
        if not study:
            return f"{called}."
        return (
            f"{called}, for up to {plural(budget.trials, 'configuration')} and about "
            f"{plural(budget.time / 60, 'minute')}; proving the best of them takes more calls, in that "
            "time."
        )

    def software(self) -> dict[str, dict[str, str]]:
        return {}

    def check(self) -> Checked:
        """Nothing is called: a benchmark may do anything."""
        first = len(self.space.try_first)
        return Checked(
            held=(
                f"{self.file.path}: {tunable(self.space)}, {first} to try first",
                f"command: {shlex.join(self.argv)} in {self.directory}",
            ),
            left_out=(),
            not_checked=("what the command answers: `autotune measure` asks it",),
        )

    def headroom(self) -> str:
        raise AutotuneError("a command makes its own load: --headroom is for stacks")

    def preview(self) -> Preview:
        return Preview(shlex.join(self.argv), (), lambda settings: _files(self.space, settings))

    @property
    def directory(self) -> Path:
        """Where the command runs: the target file's own directory."""
        return self.file.path.resolve().parent

    @contextmanager
    def session(
        self, directory: Path, note: Callable[[str], None], history: History
    ) -> Iterator[CommandSession]:
        """The command, ready to be called; whatever it is doing ends with the session."""
        target, goal = self.file.target, self.file.target.goal
        assert goal is not None
        with Benchmark(self.argv, self.directory, target.timeout, directory.name) as benchmark:
            yield CommandSession(benchmark, self.space, history, maximize=goal.maximize)


class Asks(Protocol):
    """What answers with a value, such as `measure.benchmark.Benchmark`."""

    def ask(self, trial: int, parameters: Settings) -> Answer: ...


@dataclass(frozen=True)
class Parameters(Fleet):
    """Deploying changes nothing: it shows what the command will be sent, as a file to export."""

    space: Space

    def deploy(self, settings: Settings) -> Deployed:
        return Deployed(_files(self.space, settings), {}, sent(self.space, settings))

    def restore(self) -> None:
        """There is nothing to restore: what the command changes is left to the command."""


class CommandSession:
    """A benchmark command ready to be called. Good values are large if ``maximize`` is set, else
    small."""

    def __init__(self, benchmark: Asks, space: Space, history: History, *, maximize: bool) -> None:
        self.fleet, self.clock = Parameters(space), Clock()
        self._benchmark, self._space, self._maximize = benchmark, space, maximize
        self._answers = list(history.answers)

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Call the command, again where it failed; every answer is on record before it is used."""
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
        """The command's answer; after a fault it is called once more."""
        answer: Answer = Fault("it was not asked")
        for _ in range(ATTEMPTS):
            began = time.monotonic()
            answer = self._benchmark.ask(request.trial, sent(self._space, settings))
            record.answer(answer, time.monotonic() - began)
            if not isinstance(answer, Fault):
                break
        return answer

    def _peak(self, answers: list[Value]) -> Peak:
        """The mean of the answers. Where they state no sd, it is that of repeated measurements."""
        scale = Scale(self._maximize, self._answers[0][1][0])
        logs = [scale.log(answer.value) for answer in answers]
        mean = sum(logs) / len(logs)
        stated = [scale.sd(answer.value, answer.sd) for answer in answers if answer.sd is not None]
        each = max(stated) if stated else self._scatter(scale)
        sd = max(each, EXACT_SD) / sqrt(len(logs))
        return Peak.of(Estimate(mean, sd))

    def _scatter(self, scale: Scale) -> float:
        """The sd of the log of one value's score, from all that was measured more than once."""
        groups: dict[tuple[tuple[str, object], ...], list[float]] = {}
        for settings, values in self._answers:
            configuration = tuple(sorted(settings.items()))
            groups.setdefault(configuration, []).extend(map(scale.log, values))
        return scatter(groups.values())


def prepare(file: TargetFile) -> CommandEnvironment:
    """Work out the space and find the program; nothing is called.

    Raises TargetError for values that do not fit and for a program that is not there.
    """
    argv = file.target.command
    assert argv is not None
    space = spaces.build(file, {})
    place = file.path.resolve().parent
    program = str(place / argv[0]) if "/" in argv[0] else argv[0]
    if shutil.which(program) is None:
        there = Path(program).exists()
        hint = f"chmod +x {shlex.quote(program)}" if there else None
        message = f"{argv[0]} cannot be run" if there else f"there is no program {argv[0]!r}"
        raise file.document.error(["command", 0], message, hint=hint)
    return CommandEnvironment(file, space, {}, argv)


def sent(space: Space, settings: Settings) -> Settings:
    """What the command is told: parameters that mean nothing under these settings are left out."""
    active = space.active(settings)
    return {name: value for name, value in settings.items() if name in active}


def _failed(answer: Unusable | Fault) -> Failed:
    if isinstance(answer, Unusable):
        return Failed(f"infeasible: {answer.why}")
    return Failed(f"the command failed: {answer}", fault=True)


def _files(space: Space, settings: Settings) -> dict[str, bytes]:
    parameters = dict(sorted(sent(space, settings).items()))
    return {PARAMETERS: json.dumps(parameters, indent=2, ensure_ascii=False).encode() + b"\n"}
