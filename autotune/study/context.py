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
from autotune.deploy.deployed import Deployed
from autotune.deploy.private_servers import end_left_behind
from autotune.environments.base import Environment, Session
from autotune.environments.beds import Beds
from autotune.environments.clock import Clock
from autotune.environments.evaluation import History
from autotune.errors import AutotuneError
from autotune.loads.registry import digests
from autotune.measure.noise import Noise
from autotune.measure.reading import Reading
from autotune.measure.warmup import WarmUpResult
from autotune.space.space import Space
from autotune.study import origin
from autotune.study.directory import Lock, is_held
from autotune.study.records import APPLIED, Trial
from autotune.study.store import Store, readings_of
from autotune.target import runtimes
from autotune.target.beds import study_of
from autotune.target.write import dump


@dataclass(frozen=True)
class TrialContext:
    """All that a trial works with; all side effects go through ``session`` and ``store``.

    On several test beds each bed has a context of its own, with its name in ``bed``. ``turn`` returns
    when the bed may put something on record. It raises KeyboardInterrupt where the study is to stop.
    """

    space: Space
    session: Session
    store: Store
    progress: ProgressReporter
    bed: str | None = None
    turn: Callable[[], None] = lambda: None

    @property
    def known_space(self) -> Space:
        """The space with what the study has learned: the memory of processes, and which values take no
        effect."""
        state = self.store.state
        return self.space.knowing(state.rss).clamped(state.clamps)

    @property
    def clock(self) -> Clock:
        return self.session.clock

    @property
    def elapsed(self) -> float:
        """Seconds that the study has taken so far, as far as this session knows."""
        state = self.store.state
        return (state.elapsed_on(self.bed) if self.bed else state.elapsed) + self.clock.running

    def spent(self) -> None:
        """Put on record the time since the last call."""
        self.store.spent(self.clock.collect(), self.bed)


@contextmanager
def opened(
    environment: Environment, directory: Path, progress: ProgressReporter
) -> Iterator[TrialContext]:
    """The study's lock held, its store open and its environment ready; all released at the end.

    Raises LockedError when another tuner has the study.
    """
    with (
        held(environment, directory, progress) as store,
        environment.session(directory, progress.note, history(store)) as session,
    ):
        yield TrialContext(environment.space, session, store, progress)


@contextmanager
def held(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    store_in: Callable[[Path], Store] = Store,
) -> Iterator[Store]:
    """The study's lock held and its store open. Raises LockedError when another tuner has it.

    A session that made the directory removes it if it fails with nothing to resume or restore.
    """
    new = not directory.exists()
    if not new:
        origin.check_unchanged(directory)
    for line in environment.dropped:
        progress.note(line)
    for server in clear_left_behind(directory.parent):
        progress.note(f"ended a server that a killed tuner had left: {server}")
    with Lock(directory / "lock"), closing(store_in(directory)) as store:
        try:
            yield store
        except Exception:
            unused = store.state.started is None or store.state.purpose == APPLIED
            if new and unused and not store.shared and not BackupStore(directory).hosts():
                shutil.rmtree(directory)
            raise


def check_stays(environment: Environment) -> None:
    """Raises AutotuneError where no configuration can stay after the study."""
    if environment.preview().installed:
        return
    target = environment.file.target
    ending = "a model has no hosts" if target.simulated else "private servers end with their study"
    raise AutotuneError(
        f"{ending}: there is nothing that could stay",
        hint=f"that is for targets with `runtime: {runtimes.names(installed=True)}`; "
        "`autotune export` writes the files",
    )


def open_study(
    environment: Environment, context: TrialContext, directory: Path, purpose: str = ""
) -> None:
    """Put on record what is run, from where and on what; ``purpose`` where nothing is searched."""
    record_study(environment, context.store, directory, purpose)


def record_study(
    environment: Environment, store: Store, directory: Path, purpose: str = ""
) -> None:
    """The same as ``open_study``, before any session is open."""
    store.open_study(
        directory.name, target_text(environment), **described(environment), purpose=purpose
    )
    store.open_session(versions(), tuple(beds_of(environment)))


def target_text(environment: Environment) -> str:
    """The target as it is run."""
    file = environment.file
    return dump(file.target) if file.overrides else file.path.read_text(encoding="utf-8")


def described(environment: Environment) -> dict[str, Any]:
    """What a study's first record says about its environment."""
    file = environment.file
    return {
        "source": str(file.path.resolve()),
        "overrides": file.overrides,
        "adopted": file.adopted,
        "asked": digests(file),
        "facts": {name: dict(facts.names()) for name, facts in environment.facts.items()},
        "beds": {
            name: {"adopted": each.file.adopted} for name, each in beds_of(environment).items()
        },
    }


def beds_of(environment: Environment) -> Mapping[str, Environment]:
    """The test beds of an environment that has several."""
    return environment.environments if isinstance(environment, Beds) else {}


def clear_left_behind(root: Path) -> tuple[str, ...]:
    """End servers of studies whose tuner was killed, and remove their run directories.

    Studies that a living tuner holds are not changed. Returns what was ended, as ``study: server``.
    """
    ended: list[str] = []
    for run in run_directories.below(root):
        study = study_of(run.study)
        if not is_held(study / "lock"):
            ended += [f"{study.name}: {name}" for name in end_left_behind(run)]
            run_directories.remove(run.study)
    return tuple(ended)


def history(store: Store, bed: str | None = None) -> History:
    """What a session goes on from; that of a test bed has only its own time and readings."""
    state = store.state
    noise = state.noise
    there = {trial.number for trial in state.trials if bed in (None, trial.bed)}
    readings = [r for r in readings_of(store.directory) if bed is None or r["trial"] in there]
    return History(
        elapsed=state.bed_seconds.get(bed, 0.0) if bed else state.elapsed,
        readings=len(readings),
        noise=Noise(
            tuple(noise["weights"]), int(noise["readings"]), tuple(noise.get("effects", ()))
        )
        if noise
        else Noise(),
        answers=tuple(
            (state.by_number(number).settings, values) for number, values in state.values.items()
        ),
    )


def versions() -> dict[str, str]:
    """What the study's numbers depend on beside the settings."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }


class ProgressReporter(Protocol):
    def trial_begins(self, trial: Trial) -> None: ...

    def deployed(self, trial: Trial, deployed: Deployed) -> None: ...

    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None: ...

    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None: ...

    def trial_ends(self, trial: Trial) -> None: ...

    def note(self, text: str) -> None: ...
