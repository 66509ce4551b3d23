"""What trials work with: the study's store and lock, and the session of its environment."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autotune import __version__
from autotune.deploy import run_directories
from autotune.deploy.backup import BackupStore
from autotune.deploy.deploy_result import DeployResult
from autotune.deploy.private_servers import stop_orphaned
from autotune.environments.base import Environment, Session
from autotune.environments.clock import StudyClock
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.errors import AutotuneError
from autotune.loads.registry import compute_request_digests
from autotune.measure.noise import Noise
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult
from autotune.space.space import SearchSpace
from autotune.study import ownership
from autotune.study.directory import StudyLock, is_locked
from autotune.study.study_state import APPLY_PURPOSE, Trial
from autotune.study.study_store import StudyStore, load_readings
from autotune.target import runtimes
from autotune.target.beds import find_study_directory
from autotune.target.write_target import dump_yaml


@dataclass(frozen=True)
class TrialContext:
    """All that a trial works with; all side effects go through ``session`` and ``store``.

    On several test beds each bed has a context of its own, with its name in ``bed``. ``wait_for_turn``
    returns
    when the bed may put something on record. It raises KeyboardInterrupt where the study is to stop.
    """

    space: SearchSpace
    session: Session
    store: StudyStore
    progress: ProgressReporter
    bed: str | None = None
    wait_for_turn: Callable[[], None] = lambda: None

    @property
    def clamped_space(self) -> SearchSpace:
        """The space with what the study has learned: the memory of processes, and which values take no
        effect."""
        state = self.store.state
        return self.space.with_measured_memory(state.rss).with_clamps(state.clamps)

    @property
    def clock(self) -> StudyClock:
        return self.session.clock

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that the study has taken so far, as far as this session knows."""
        state = self.store.state
        return (
            state.bed_elapsed_seconds(self.bed) if self.bed else state.elapsed_seconds
        ) + self.clock.elapsed_seconds

    def record_time_spent(self) -> None:
        """Put on record the time since the last call."""
        self.store.record_time_spent(self.clock.collect_seconds(), self.bed)


@contextmanager
def open_session(
    environment: Environment, directory: Path, progress: ProgressReporter
) -> Iterator[TrialContext]:
    """The study's lock held, its store open and its environment ready; all released at the end.

    Raises LockedError when another tuner has the study.
    """
    with (
        open_locked_store(environment, directory, progress) as store,
        environment.open_session(directory, progress.note, read_history(store)) as session,
    ):
        yield TrialContext(environment.space, session, store, progress)


@contextmanager
def open_locked_store(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    create_store: Callable[[Path], StudyStore] = StudyStore,
) -> Iterator[StudyStore]:
    """The study's lock held and its store open. Raises LockedError when another tuner has it.

    A session that made the directory removes it if it fails with nothing to resume or restore.
    """
    new = not directory.exists()
    if not new:
        ownership.check_existing_study(directory)
    for line in environment.excluded:
        progress.note(line)
    for server in stop_orphaned_servers(directory.parent):
        progress.note(f"ended a server that a killed tuner had left: {server}")
    with StudyLock(directory / "lock"), closing(create_store(directory)) as store:
        try:
            yield store
        except Exception:
            unused = store.state.started is None or store.state.purpose == APPLY_PURPOSE
            if new and unused and not store.is_shared and not BackupStore(directory).list_hosts():
                shutil.rmtree(directory)
            raise


def check_can_keep(environment: Environment) -> None:
    """Raises AutotuneError where no configuration can stay after the study."""
    if environment.build_preview().is_installed:
        return
    target = environment.file.target
    ending = "a model has no hosts" if target.simulated else "private servers end with their study"
    raise AutotuneError(
        f"{ending}: there is nothing that could stay",
        hint=f"that is for targets with `runtime: {runtimes.format_runtime_names(installed=True)}`; "
        "`autotune export` writes the files",
    )


def begin_study(
    environment: Environment, context: TrialContext, directory: Path, purpose: str = ""
) -> None:
    """Put on record what is run, from where and on what; ``purpose`` where nothing is searched."""
    record_study_start(environment, context.store, directory, purpose)


def record_study_start(
    environment: Environment, store: StudyStore, directory: Path, purpose: str = ""
) -> None:
    """The same as ``begin_study``, before any session is open."""
    store.record_study_start(
        directory.name,
        format_target(environment),
        **describe_environment(environment),
        purpose=purpose,
    )
    store.record_session_start(collect_versions(), tuple(find_test_beds(environment)))


def format_target(environment: Environment) -> str:
    """The target as it is run."""
    file = environment.file
    return dump_yaml(file.target) if file.overrides else file.path.read_text(encoding="utf-8")


def describe_environment(environment: Environment) -> dict[str, Any]:
    """What a study's first record says about its environment."""
    file = environment.file
    return {
        "source": str(file.path.resolve()),
        "overrides": file.overrides,
        "adopted": file.adopted,
        "asked": compute_request_digests(file),
        "facts": {name: dict(facts.to_names()) for name, facts in environment.facts.items()},
        "beds": {
            name: {"adopted": each.file.adopted}
            for name, each in find_test_beds(environment).items()
        },
    }


def find_test_beds(environment: Environment) -> Mapping[str, Environment]:
    """The test beds of an environment that has several."""
    return environment.environments if isinstance(environment, MultiBedEnvironment) else {}


def stop_orphaned_servers(root: Path) -> tuple[str, ...]:
    """End servers of studies whose tuner was killed, and remove their run directories.

    Studies that a living tuner holds are not changed. Returns what was ended, as ``study: server``.
    """
    ended: list[str] = []
    for run in run_directories.list_run_directories(root):
        study = find_study_directory(run.study)
        if not is_locked(study / "lock"):
            ended += [f"{study.name}: {name}" for name in stop_orphaned(run)]
            run_directories.remove_run_directory(run.study)
    return tuple(ended)


def read_history(store: StudyStore, bed: str | None = None) -> MeasurementHistory:
    """What a session goes on from; that of a test bed has only its own time and readings."""
    state = store.state
    noise = state.noise
    there = {trial.number for trial in state.trials if bed in (None, trial.bed)}
    readings = [r for r in load_readings(store.directory) if bed is None or r["trial"] in there]
    return MeasurementHistory(
        elapsed_seconds=state.bed_seconds.get(bed, 0.0) if bed else state.elapsed_seconds,
        reading_count=len(readings),
        noise=Noise(
            tuple(noise["weights"]), int(noise["readings"]), tuple(noise.get("effects", ()))
        )
        if noise
        else Noise(),
        answers=tuple(
            (state.find_trial(number).settings, values) for number, values in state.values.items()
        ),
    )


def collect_versions() -> dict[str, str]:
    """What the study's numbers depend on beside the settings."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }


class ProgressReporter(Protocol):
    def on_trial_start(self, trial: Trial) -> None: ...

    def on_deployed(self, trial: Trial, deployed: DeployResult) -> None: ...

    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None: ...

    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None: ...

    def on_trial_end(self, trial: Trial) -> None: ...

    def note(self, text: str) -> None: ...
