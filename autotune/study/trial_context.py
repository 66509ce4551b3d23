"""The resources of a trial: the study's store and lock, and the session with its environment."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.config_text import escape_non_utf8, is_utf8
from autotune.deploy import run_directories
from autotune.deploy.backup import BackupStore
from autotune.deploy.private_servers import stop_orphaned
from autotune.environments.base import Environment, Session
from autotune.environments.clock import StudyClock
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.environments.stack_files import compute_template_digests
from autotune.errors import AutotuneError, UsageError
from autotune.loads.registry import compute_request_digests
from autotune.measure.noise import Noise
from autotune.space.space import SearchSpace
from autotune.study import ownership
from autotune.study.directory import StudyLock, is_locked
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.reading_records import load_reading_records
from autotune.study.study_state import APPLY_PURPOSE
from autotune.study.study_store import StudyStore
from autotune.target import runtimes
from autotune.target.beds import find_study_directory
from autotune.target.read_target import TargetFile
from autotune.target.write_target import dump_yaml

KEEP_FIX = "omit --keep; after the study, `autotune export` writes the winner's files"


@dataclass(frozen=True)
class TrialContext:
    """The resources of a trial; all side effects use ``session`` and ``store``.

    If there are several test beds, each bed has its own context, with the bed's name in ``bed``.
    ``wait_for_turn`` returns when the bed may write a record, and raises KeyboardInterrupt if the study
    must stop. ``today_rate`` is the target's ``load.today`` in requests/s.
    """

    space: SearchSpace
    session: Session
    store: StudyStore
    progress: ProgressReporter
    bed: str | None = None
    wait_for_turn: Callable[[], None] = lambda: None
    today_rate: float | None = None

    @property
    def clamped_space(self) -> SearchSpace:
        """Return the space, limited by the memory use and the value limits known from the study
        so far.
        """
        return self.store.state.limit_space(self.space)

    @property
    def clock(self) -> StudyClock:
        return self.session.clock

    @property
    def elapsed_seconds(self) -> float:
        """Return the elapsed seconds of the study, as known in this session."""
        return self.store.state.compute_bed_elapsed_seconds(self.bed) + self.clock.elapsed_seconds

    def record_time_spent(self) -> None:
        """Record the time spent since the last call."""
        self.store.record_time_spent(self.clock.collect_seconds(), self.bed)


@contextmanager
def open_session(
    environment: Environment, directory: Path, progress: ProgressReporter
) -> Iterator[TrialContext]:
    """Hold the study's lock, with its store and environment open, during a ``with`` block.

    Raises LockedError if another tuner holds the lock.
    """
    with (
        open_locked_store(environment, directory, progress) as store,
        environment.open_session(directory, progress.note, read_history(store)) as session,
    ):
        today_rate = environment.file.target.load.today
        yield TrialContext(environment.space, session, store, progress, today_rate=today_rate)


@contextmanager
def open_locked_store(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    create_store: Callable[[Path], StudyStore] = StudyStore,
) -> Iterator[StudyStore]:
    """Hold the study's lock, with its store open, during a ``with`` block. Raises LockedError if the
    lock is held already.

    If a session fails or is interrupted with nothing to resume or restore, the directory that it created
    is removed.
    """
    for recorded_path in (environment.file.path.resolve(), directory.resolve()):
        _check_recordable(recorded_path)
    is_new_directory = not directory.exists()
    if not is_new_directory:
        ownership.check_existing_study(directory)
    for line in environment.excluded:
        progress.note(line)
    for server in stop_orphaned_servers(directory.parent):
        progress.note(f"stopped a server that a killed tuner left running: {server}")
    with StudyLock(directory / "lock"), closing(create_store(directory)) as store:
        try:
            yield store
        except BaseException:
            is_unused = store.state.started is None or store.state.purpose == APPLY_PURPOSE
            if (
                is_new_directory
                and is_unused
                and not store.is_shared
                and not BackupStore(directory).list_hosts()
            ):
                shutil.rmtree(directory)
            raise


def _check_recordable(path: Path) -> None:
    """Raise AutotuneError for a path that is not UTF-8: `restore` compares the path with the record."""
    if not is_utf8(str(path)):
        raise AutotuneError(
            f"{escape_non_utf8(str(path))} is not UTF-8, so a study cannot record it",
            hint="rename that file or directory",
        )


def check_can_keep(
    environment: Environment, refusal: str = "nothing can be kept", fix: str = KEEP_FIX
) -> None:
    """Raise UsageError if no configuration can stay on the hosts of a target.

    The message starts with ``refusal``, and its hint is ``fix``.
    """
    if environment.build_preview().is_installed:
        return
    target = environment.file.target
    if target.simulated:
        reason = "a model has no hosts"
    elif target.command is not None:
        reason = "a benchmark command has no hosts"
    else:
        runtime_names = runtimes.format_runtime_names(installed=True)
        reason = f"private servers stop with the study; only the services of {runtime_names} stay"
    raise UsageError(f"{refusal}: {reason}", hint=fix)


def begin_study(
    environment: Environment,
    context: TrialContext,
    directory: Path,
    purpose: str = "",
    *,
    keeps_winner: bool = False,
) -> None:
    """Record the target, its source and its hosts; ``purpose`` is empty for a search."""
    record_study_start(environment, context.store, directory, purpose, keeps_winner=keeps_winner)


def record_study_start(
    environment: Environment,
    store: StudyStore,
    directory: Path,
    purpose: str = "",
    *,
    keeps_winner: bool = False,
) -> None:
    """Record the start of a study like ``begin_study``, but before any session is open."""
    store.record_study_start(
        directory.name,
        format_target(environment),
        **describe_environment(environment),
        purpose=purpose,
    )
    store.record_session_start(
        collect_versions(), tuple(find_test_beds(environment)), keeps_winner=keeps_winner
    )


def format_target(environment: Environment) -> str:
    """Return the text of the target that is run, with overrides and with the services from the user's
    own files.

    Both the target's file and the files of services may change after they were read.
    """
    file = environment.file
    declared_names = file.document.root.get("services") or {}
    is_complete = not file.overrides and file.target.services.keys() <= declared_names.keys()
    return file.document.text if is_complete else dump_yaml(file.target)


def describe_environment(environment: Environment) -> dict[str, Any]:
    """Return the environment's fields of a study's first record."""
    target_file = environment.file
    return {
        "source": str(target_file.path.resolve()),
        "overrides": target_file.overrides,
        "adopted": target_file.adopted,
        "asked": compute_input_digests(target_file),
        "facts": {
            host_name: dict(facts.to_names()) for host_name, facts in environment.facts.items()
        },
        "beds": {
            bed_name: {"adopted": bed_environment.file.adopted}
            for bed_name, bed_environment in find_test_beds(environment).items()
        },
    }


def compute_input_digests(target_file: TargetFile) -> dict[str, str]:
    """Return digests of the files with requests and templates, by path relative to the target."""
    return {**compute_template_digests(target_file), **compute_request_digests(target_file)}


def list_changed_inputs(recorded_digests: Mapping[str, str], target_file: TargetFile) -> list[str]:
    """Return the files that were changed, removed or added since the ``recorded_digests``.

    An added template may override a shipped template.
    """
    current_digests = compute_input_digests(target_file) if recorded_digests else {}
    return [
        name
        for name in {**recorded_digests, **current_digests}
        if current_digests.get(name) != recorded_digests.get(name)
    ]


def find_test_beds(environment: Environment) -> Mapping[str, Environment]:
    """Return the environments of the test beds by name; empty if there are none."""
    return environment.environments if isinstance(environment, MultiBedEnvironment) else {}


def stop_orphaned_servers(root: Path) -> tuple[str, ...]:
    """Stop servers of studies whose tuner was killed, and remove their run directories.

    Studies with a running tuner are not changed. Return the stopped servers as ``study: server``.
    """
    stopped_servers: list[str] = []
    for run_directory in run_directories.list_run_directories(root):
        study = find_study_directory(run_directory.study)
        if not is_locked(study / "lock"):
            stopped_servers += [
                f"{study.name}: {server_name}" for server_name in stop_orphaned(run_directory)
            ]
            run_directories.remove_run_directory(run_directory.study)
    return tuple(stopped_servers)


def read_history(store: StudyStore, bed: str | None = None) -> MeasurementHistory:
    """Return the measurement history for a session; a test bed gets only its own time and readings."""
    state = store.state
    noise = state.noise
    trial_numbers = {trial.number for trial in state.trials if bed in (None, trial.bed)}
    readings = [
        record
        for record in load_reading_records(store.directory)
        if bed is None or record.trial in trial_numbers
    ]
    return MeasurementHistory(
        elapsed_seconds=state.bed_seconds.get(bed, 0.0) if bed else state.elapsed_seconds,
        reading_count=len(readings),
        noise=Noise(noise.weights, noise.readings, noise.effects) if noise else Noise(),
        answers=tuple(
            (state.find_trial(trial_number).settings, trial_values)
            for trial_number, trial_values in state.values.items()
        ),
    )


def collect_versions() -> dict[str, str]:
    """Return the versions of autotune, Python and the kernel, and the machine type."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
