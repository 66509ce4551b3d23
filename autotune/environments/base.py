"""The interface of an environment, a target resolved on its hosts, and which one a target has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol

from autotune.deploy.changes import HostChanges
from autotune.deploy.deployed import Fleet
from autotune.environments import names
from autotune.environments.clock import Clock
from autotune.environments.evaluation import Evaluation, EvaluationRequest, History, Recorder
from autotune.services.base import Settings
from autotune.services.registry import declare
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.messages import plural
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.transports.curl import Answer


@dataclass(frozen=True)
class Checked:
    """What held, and what cannot be known before a run."""

    held: tuple[str, ...]
    left_out: tuple[str, ...]
    not_checked: tuple[str, ...]


def size(file: TargetFile, space: Space) -> str:
    """How much there is to tune in a target: the first line of what `check` reports as held."""
    return f"{file.path}: {plural(len(file.target.tiers), 'tier')}, {tunable(space)}"


def tunable(space: Space) -> str:
    """How much there is to tune."""
    return (
        f"{plural(len(space.dimensions), 'parameter')}, {len(space.tunable)} of them tunable, "
        f"{plural(len(space.constraints), 'rule')}"
    )


@dataclass(frozen=True)
class Preview:
    """What would run: where requests enter, the servers, and the files of any settings.

    ``files(settings)`` maps ``part/path`` to content. ``installed``: the servers are those of the
    hosts, not private ones of the study, and ``host_settings`` (kernel, limits) are set too. Then
    ``changes(settings)`` gives the changes to each host as it is now, ``answers()`` what each entry
    answers now to one request, by URL; ``restarts``: the hosts of each unit that a trial may restart.
    ``right_answers`` says how right answers are told from wrong ones.
    """

    entry: str
    servers: tuple[str, ...]
    files: Callable[[Settings], Mapping[str, bytes]]
    host_settings: tuple[str, ...] = ()
    installed: bool = False
    changes: Callable[[Settings], Mapping[str, HostChanges]] | None = None
    answers: Callable[[], Mapping[str, Answer | str]] = dict
    restarts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    right_answers: str = ""


class Session(Protocol):
    """An environment locked and ready: configurations are evaluated one after the other."""

    @property
    def clock(self) -> Clock:
        """What the budget of a study is counted with."""
        ...

    @property
    def fleet(self) -> Fleet:
        """What deploys a configuration without measuring it."""
        ...

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Deploy and measure ``settings``; every reading is on record before it is used.

        A configuration that cannot be deployed or used is `Failed`. Raises AutotuneError for what
        says nothing about the configuration: an unreachable host, a broken load generator.
        """
        ...


class Environment(Protocol):
    """A target resolved on its hosts: what may be tried, and where it would run."""

    @property
    def file(self) -> TargetFile: ...

    @property
    def space(self) -> Space: ...

    @property
    def facts(self) -> Mapping[str, HostFacts]:
        """Facts of each host, by its name in the target."""
        ...

    @property
    def dropped(self) -> tuple[str, ...]:
        """What was taken out of the space because these hosts cannot do it, a line each."""
        ...

    def announce(self, *, study: bool = True) -> str:
        """One sentence before the first request: where load goes, how much of it, and, for a
        ``study``, for how long (only measuring does not take that time)."""
        ...

    def software(self) -> Mapping[str, Mapping[str, str]]:
        """What runs on each host, to compare it with another: the kernel's release, and a digest of
        each program."""
        ...

    def check(self) -> Checked:
        """Everything that can be found out without changing anything. Raises AutotuneError."""
        ...

    def headroom(self) -> str:
        """What load the generator can make, in words; sends load to a private server."""
        ...

    def preview(self) -> Preview:
        """What would run; read-only."""
        ...

    def session(
        self, directory: Path, note: Callable[[str], None], history: History
    ) -> AbstractContextManager[Session]:
        """The hosts ready for the study in ``directory``, restored at the end.

        ``note`` is called with progress, a line at a time; ``history`` is what the study has on record.
        """
        ...


def kind(target: Target) -> str:
    """What a target runs on, by the name of the module: a command, a model, or a stack of servers."""
    if target.command is not None:
        return "command"
    return "stack" if target.simulated is None else "simulated"


def prepare(file: TargetFile) -> Environment:
    """Look at the hosts and work out the space; read-only.

    Raises TargetError for a target that does not fit its hosts, AutotuneError for missing programs.
    """
    declare(file.target.services)
    names.check(file)
    runtimes = {name: tier.runtime for name, tier in file.target.tiers.items()}
    for name, runtime in runtimes.items():
        if file.target.simulated is None and runtime != next(iter(runtimes.values())):
            raise file.document.error(
                ["tiers", name], f"tier {name}: all tiers of a target must have the same `runtime:`"
            )
    # Each is imported when it is needed: a command or a model need not wait for the libraries of
    # stacks.
    environment: Environment = import_module(f"{__package__}.{kind(file.target)}").prepare(file)
    return environment
