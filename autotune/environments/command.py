"""A command of the user's own, called once for each trial: see `measure.benchmark`."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy.deployed import Deployed, Fleet
from autotune.environments.base import Checked, Equipment, Preview
from autotune.environments.command_objective import sent
from autotune.errors import AutotuneError
from autotune.measure.answer import Answer
from autotune.measure.benchmark import Benchmark
from autotune.services.base import Settings
from autotune.space import space as spaces
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.progress import Narrator
from autotune.target.read import TargetFile

PARAMETERS = "parameters.json"


@dataclass(frozen=True)
class CommandBed:
    """A target that is a command: see `environments.base.Bed`."""

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    argv: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    def announce(self) -> str:
        budget = self.file.target.budget
        return (
            f"{shlex.join(self.argv)} is called in {self.directory}, for up to {budget.trials} "
            f"configurations and about {budget.time / 60:g} minutes; proving the best of them "
            "takes more calls, in that time."
        )

    def check(self) -> Checked:
        """Nothing is called: a benchmark may do anything."""
        space, known = self.space, len(self.space.known)
        return Checked(
            held=(
                (
                    f"{self.file.path}: {len(space.dimensions)} parameters, {len(space.tunable)} "
                    f"of them tunable, {len(space.constraints)} rules, {known} to try first"
                ),
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
    def opened(self, directory: Path, narrator: Narrator) -> Iterator[Equipment]:
        """The command at hand; whatever it is doing ends when this does."""
        target, goal = self.file.target, self.file.target.goal
        assert goal is not None
        with Benchmark(self.argv, self.directory, target.timeout, directory.name) as benchmark:
            asked = _Asked(benchmark, goal.maximize)
            yield Equipment.calling(asked, self.parameters())

    def parameters(self) -> Parameters:
        """What takes the place of deploying."""
        return Parameters(self.space)


@dataclass(frozen=True)
class _Asked:
    benchmark: Benchmark
    maximize: bool

    def ask(self, trial: int, parameters: Settings) -> Answer:
        return self.benchmark.ask(trial, parameters)


@dataclass(frozen=True)
class Parameters(Fleet):
    """Deploying is telling: what the command will be sent, as a file to look at and export."""

    space: Space

    def deploy(self, settings: Settings) -> Deployed:
        return Deployed(_files(self.space, settings), {}, sent(self.space, settings))

    def restore(self) -> None:
        """The command leaves nothing: what it changes is its own business."""


def prepare(file: TargetFile) -> CommandBed:
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
    return CommandBed(file, space, {}, argv)


def _files(space: Space, settings: Settings) -> dict[str, bytes]:
    told = dict(sorted(sent(space, settings).items()))
    return {PARAMETERS: json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n"}
