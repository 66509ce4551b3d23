"""Interfaces of environments, and of the sessions that evaluate configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from autotune.deploy.changes import HostChanges
from autotune.deploy.deploy_result import Fleet
from autotune.environments.clock import StudyClock
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    MeasurementHistory,
    Recorder,
)
from autotune.services.base import Settings
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.target.messages import format_count
from autotune.target.read_target import TargetFile
from autotune.transports.curl import CurlAnswer


@dataclass(frozen=True)
class CheckResult:
    """Result of `autotune check`: checks that passed (``held``), settings that are not tuned
    (``left_out``), and properties that only a run can verify.
    """

    held: tuple[str, ...]
    left_out: tuple[str, ...]
    not_checked: tuple[str, ...]


def describe_size(file: TargetFile, space: SearchSpace) -> str:
    """Describe the size of a target's search space, for the first line of `autotune check`."""
    return f"{file.path}: {format_count(len(file.target.tiers), 'tier')}, {describe_tunable(space)}"


def describe_tunable(space: SearchSpace) -> str:
    """Return the numbers of parameters, tunable parameters and rules as text."""
    return (
        f"{format_count(len(space.dimensions), 'parameter')}, {len(space.tunable_dimensions)} "
        "of them tunable, "
        f"{format_count(len(space.constraints), 'rule')}"
    )


@dataclass(frozen=True)
class Preview:
    """Preview of a run: its entry, servers and rendered files.

    ``render_files(settings)`` maps ``instance/path`` to content. If ``is_installed`` is true, the
    servers belong to the hosts, and ``host_settings`` (kernel and limits) are set too. For installed
    servers, ``compute_changes(settings)`` returns the changes to each host, and ``request_answers()``
    returns the current response of each entry by URL. ``restarted_units`` contains the units that a
    trial may restart, with their hosts. ``answer_checks`` describes how correct responses are
    recognized.
    """

    entry: str
    servers: tuple[str, ...]
    render_files: Callable[[Settings], Mapping[str, bytes]]
    host_settings: tuple[str, ...] = ()
    is_installed: bool = False
    compute_changes: Callable[[Settings], Mapping[str, HostChanges]] | None = None
    request_answers: Callable[[], Mapping[str, CurlAnswer | str]] = dict
    restarted_units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answer_checks: str = ""


class Session(Protocol):
    """A locked environment that evaluates one configuration after another."""

    @property
    def clock(self) -> StudyClock:
        """Return the clock of the study, with which the used part of the time budget is measured."""
        ...

    @property
    def fleet(self) -> Fleet:
        """Return the fleet, with which a configuration is deployed without a measurement."""
        ...

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Deploy and measure ``settings``. Every reading is recorded before it is used.

        Returns `FailedEvaluation` for a configuration that cannot be deployed or used. Raises
        AutotuneError for faults that the configuration did not cause, such as an unreachable host
        or a broken load generator.
        """
        ...


class Environment(Protocol):
    """A target after its hosts were inspected: its search space, and the sessions that evaluate
    configurations.
    """

    @property
    def file(self) -> TargetFile: ...

    @property
    def space(self) -> SearchSpace: ...

    @property
    def facts(self) -> Mapping[str, HostFacts]:
        """Return the facts of each host, by its name in the target."""
        ...

    @property
    def excluded(self) -> tuple[str, ...]:
        """Return one line for each choice that was removed from the search space because the hosts do
        not support it.
        """
        ...

    def describe_load(self, *, study: bool = True) -> str:
        """Return a description of the load before the first request: destination, rate and, for a
        ``study``, duration.
        """
        ...

    def read_software(self) -> Mapping[str, Mapping[str, str]]:
        """Return the kernel release and a digest of each program, by host. Hosts are compared by these
        values.
        """
        ...

    def check(self) -> CheckResult:
        """Run all checks that change nothing on the hosts, and return the result. Raises
        AutotuneError.
        """
        ...

    def measure_headroom(self) -> str:
        """Send load to a private server, and return a description of the highest rate that the
        generator reached.
        """
        ...

    def build_preview(self) -> Preview:
        """Return a preview of a run, without changing any host."""
        ...

    def open_session(
        self, directory: Path, note: Callable[[str], None], history: MeasurementHistory
    ) -> AbstractContextManager[Session]:
        """Prepare the hosts for the study in ``directory``, and restore them at the end.

        ``note`` receives progress messages. ``history`` contains the study's records.
        """
        ...
