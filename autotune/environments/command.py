"""Environment that calls a user's command for each configuration: see `measure.benchmark`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Protocol

from autotune.deploy.deploy_result import DeployResult, Fleet
from autotune.environments.base import CheckResult, Preview, describe_tunable
from autotune.environments.clock import StudyClock
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    FailedEvaluation,
    Measurement,
    MeasurementHistory,
    Recorder,
)
from autotune.environments.peak import Peak
from autotune.errors import TargetError, UsageError
from autotune.estimate import Estimate
from autotune.measure.benchmark import (
    Benchmark,
    BenchmarkAnswer,
    BenchmarkFault,
    BenchmarkValue,
    UnusableConfiguration,
)
from autotune.measure.objective_scale import EXACT_SD, MAX_SD, ObjectiveScale, pool_sd
from autotune.services.base import Settings
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.messages import format_count
from autotune.target.read_target import TargetFile
from autotune.target.value_hints import split_words

PARAMETERS_FILE = "parameters.json"
SHELL_BUILTINS = ("cd", "export", "source", ".", "set", "ulimit", "alias", "if", "for")
# Number of calls for the baseline if the benchmark reports no sd. A good noise estimate improves all
# later trials, which is worth more than two additional trials.
REFERENCE_CALLS = 3
MAX_ATTEMPTS = 2
MAX_FIRST_LINE_BYTES = 256  # Linux ignores the rest of the first line of a script


@dataclass(frozen=True)
class CommandEnvironment:
    """Environment of a target whose configurations are evaluated by a user's command: see
    `environments.base.Environment`.
    """

    file: TargetFile
    space: SearchSpace
    facts: Mapping[str, HostFacts]
    argv: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def describe_load(self, *, study: bool = True) -> str:
        budget = self.file.target.budget
        call_text = f"autotune calls {shlex.join(self.argv)} in {self.directory}"
        if not study:
            return f"{call_text}."
        return (
            f"{call_text} for up to {format_count(budget.trials, 'configuration')} and about "
            f"{format_count(budget.time / 60, 'minute')}. This time includes the calls that "
            "verify the best configuration."
        )

    def read_software(self) -> dict[str, dict[str, str]]:
        return {}

    def check(self) -> CheckResult:
        """Run checks without calling the command, which may have side effects. Return the result."""
        try_first_count = len(self.space.try_first)
        return CheckResult(
            held=(
                f"{self.file.path}: {describe_tunable(self.space)}, {try_first_count} to try first",
                f"command: {shlex.join(self.argv)} in {self.directory}",
            ),
            left_out=(),
            not_checked=("the results of the command: `autotune measure` calls it",),
        )

    def measure_headroom(self) -> str:
        raise UsageError(
            "--headroom needs a stack, and the target is a command with its own load",
            hint="omit --headroom",
        )

    def build_preview(self) -> Preview:
        return Preview(
            shlex.join(self.argv), (), lambda settings: _render_files(self.space, settings)
        )

    @property
    def directory(self) -> Path:
        """Return the command's working directory, which is the directory of the target file."""
        return self.file.directory

    @contextmanager
    def open_session(
        self, directory: Path, note: Callable[[str], None], history: MeasurementHistory
    ) -> Iterator[CommandSession]:
        """Yield a session that calls the command. A call that is still running at the end is stopped."""
        target, goal = self.file.target, self.file.target.command_goal
        assert goal is not None
        with Benchmark(self.argv, self.directory, target.timeout, directory.name) as benchmark:
            yield CommandSession(benchmark, self.space, history, maximize=goal.maximize)


class BenchmarkClient(Protocol):
    """An object that returns a benchmark value for given parameters, such as
    `measure.benchmark.Benchmark`.
    """

    def call_program(self, trial: int, parameters: Settings) -> BenchmarkAnswer: ...


@dataclass(frozen=True)
class ParameterFleet(Fleet):
    """A fleet without hosts, which returns the command's parameters as a file for exports."""

    space: SearchSpace

    def deploy(self, settings: Settings) -> DeployResult:
        return DeployResult(
            _render_files(self.space, settings), {}, self.space.select_active_settings(settings)
        )

    def restore(self) -> None:
        """Restore nothing, because the command itself must revert its changes."""


class CommandSession:
    """Session that calls a benchmark command. Larger values are better if ``maximize`` is true."""

    def __init__(
        self,
        benchmark: BenchmarkClient,
        space: SearchSpace,
        history: MeasurementHistory,
        *,
        maximize: bool,
    ) -> None:
        self.fleet, self.clock = ParameterFleet(space), StudyClock()
        self._benchmark, self._space, self._maximize = benchmark, space, maximize
        self._answers = list(history.answers)

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Run the command, retry it if it fails, and return the evaluation. Every value is recorded
        before the search uses it.
        """
        record.on_deployed(self.fleet.deploy(settings))
        benchmark_values: list[BenchmarkValue] = []
        start_time = time.monotonic()
        with self.clock.time_activity("load"):
            for _ in range(self._choose_call_count(settings, request)):
                benchmark_answer = self._call_with_retry(settings, request, record)
                if not isinstance(benchmark_answer, BenchmarkValue):
                    return _build_failure(benchmark_answer)
                benchmark_values.append(benchmark_answer)
                if benchmark_answer.sd is not None:
                    break
        measured_values = tuple(benchmark_answer.value for benchmark_answer in benchmark_values)
        self._answers.append((settings, measured_values))
        seconds = time.monotonic() - start_time
        return Measurement(
            self._build_peak(benchmark_values),
            len(benchmark_values),
            seconds,
            values=measured_values,
        )

    def _choose_call_count(self, settings: Settings, request: EvaluationRequest) -> int:
        is_repeated = any(earlier_settings == settings for earlier_settings, _ in self._answers)
        return REFERENCE_CALLS if request.is_reference and not is_repeated else 1

    def _call_with_retry(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> BenchmarkAnswer:
        """Call the command, and call it once more after a failure."""
        benchmark_answer: BenchmarkAnswer = BenchmarkFault("the command was not called")
        for _ in range(MAX_ATTEMPTS):
            start_time = time.monotonic()
            benchmark_answer = self._benchmark.call_program(
                request.trial, self._space.select_active_settings(settings)
            )
            record.on_answer(benchmark_answer, time.monotonic() - start_time)
            if not isinstance(benchmark_answer, BenchmarkFault):
                break
        return benchmark_answer

    def _build_peak(self, benchmark_values: list[BenchmarkValue]) -> Peak:
        """Return the mean of the values as a peak. If the command reports no standard deviation, it is
        estimated from repeated measurements.
        """
        scale = ObjectiveScale(self._maximize, self._answers[0][1][0])
        log_scores = [scale.log_score(answer.value) for answer in benchmark_values]
        mean = sum(log_scores) / len(log_scores)
        stated_sds = [
            scale.log_score_sd(answer.value, answer.sd)
            for answer in benchmark_values
            if answer.sd is not None
        ]
        answer_sd = max(stated_sds) if stated_sds else self._estimate_measurement_sd(scale)
        peak_sd = min(max(answer_sd, EXACT_SD), MAX_SD) / sqrt(len(log_scores))
        return Peak.from_estimate(Estimate(mean, peak_sd))

    def _estimate_measurement_sd(self, scale: ObjectiveScale) -> float:
        """Return the standard deviation of the logarithm of a single value's score, estimated from
        all repeated measurements.
        """
        scores_by_configuration: dict[tuple[tuple[str, object], ...], list[float]] = {}
        for settings, values in self._answers:
            configuration = tuple(sorted(settings.items()))
            scores_by_configuration.setdefault(configuration, []).extend(
                map(scale.log_score, values)
            )
        return pool_sd(scores_by_configuration.values())


def prepare(file: TargetFile) -> CommandEnvironment:
    """Build the search space, find the program, and return the environment. The command is not
    called.

    Raises TargetError if the target's values do not fit its parameters, or if the program is missing.
    """
    argv = file.target.command
    assert argv is not None
    space = build_space(file, {})
    directory = file.directory
    program = str(directory / argv[0]) if "/" in argv[0] else argv[0]
    program_path = shutil.which(program)
    if program_path is None:
        raise _build_program_error(file, argv[0], Path(program))
    if mistake := _find_script_mistake(Path(program_path)):
        message, hint = mistake
        raise file.document.build_error(("command", 0), f"{argv[0]} {message}", hint=hint)
    return CommandEnvironment(file, space, {}, argv)


def _build_program_error(file: TargetFile, name: str, program: Path) -> TargetError:
    """Return the error for a program that does not exist or is not executable."""
    location, directory = ("command", 0), file.directory
    if (directory / name).is_dir():
        message, hint = f"{name} is a directory", "name a program in it"
        return file.document.build_error(location, message, hint=hint)
    if "/" in name and program.exists():
        hint = f"chmod +x {shlex.quote(str(program))}"
        return file.document.build_error(location, f"{name} is not executable", hint=hint)
    hint = f"install it, or write its path: `./{Path(name).name}` is next to the target file"
    if (directory / name).is_file() and "/" not in name:
        hint = f"write `./{name}` for the file next to the target file"
    elif " " in name:
        hint = f"write `[{', '.join(split_words(name))}]`: each argument is an item of the list"
    elif name.startswith("~"):
        hint = "write the whole path: autotune does not expand '~'"
    elif name in SHELL_BUILTINS:
        hint = f'{name} is a command of the shell: write `[sh, -c, "{name} …"]`'
    elif "/" in name:
        hint = f"the path is relative to {directory}, the directory of the target file"
    return file.document.build_error(location, f"program {name!r} not found", hint=hint)


def _find_script_mistake(program: Path) -> tuple[str, str] | None:
    """Return why the kernel cannot start a script, and a hint; ``None`` for other programs."""
    try:
        with program.open("rb") as script:
            first_line = script.readline(MAX_FIRST_LINE_BYTES)
    except OSError:  # programs may be executable, but not readable
        return None
    if not first_line.startswith(b"#!"):
        # The start of other formats, such as the `PK\3\4\n` of a JAR file, may be ASCII as well.
        line_text = first_line.strip().replace(b"\t", b" ").decode("latin-1")
        is_text = line_text.isascii() and line_text.isprintable()
        hint = "start it with a line such as `#!/bin/sh`, or write its interpreter before it"
        return ("does not start with `#!` and an interpreter", hint) if is_text else None
    words = first_line[2:].split()
    interpreter = os.fsdecode(b"".join(words[:1]))
    # With an argument, the carriage return is part of the argument, where `env -S` and Perl ignore it.
    if first_line.endswith(b"\r\n") and not _ignores_carriage_return(interpreter, words[1:]):
        hint = f"convert it: `sed -i 's/\\r$//' {shlex.quote(str(program))}`"
        return "ends its lines with CR LF, as on Windows, so its interpreter is not found", hint
    if interpreter.startswith("/") and not Path(interpreter).exists():
        hint = f"install {interpreter}, or correct the first line of the file"
        return f"needs the interpreter {interpreter!r}, which does not exist", hint
    return None


def _ignores_carriage_return(interpreter: str, arguments: Sequence[bytes]) -> bool:
    splits_argument = b"".join(arguments[:1]).startswith((b"-S", b"-vS", b"--split-string"))
    return splits_argument or (bool(arguments) and Path(interpreter).name.startswith("perl"))


def _build_failure(benchmark_answer: UnusableConfiguration | BenchmarkFault) -> FailedEvaluation:
    if isinstance(benchmark_answer, UnusableConfiguration):
        return FailedEvaluation(f"infeasible: {benchmark_answer.why}")
    return FailedEvaluation(f"the command failed: {benchmark_answer}", is_fault=True)


def _render_files(space: SearchSpace, settings: Settings) -> dict[str, bytes]:
    parameters = dict(sorted(space.select_active_settings(settings).items()))
    return {PARAMETERS_FILE: json.dumps(parameters, indent=2, ensure_ascii=False).encode() + b"\n"}
