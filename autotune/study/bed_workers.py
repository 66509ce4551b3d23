"""Run one study on several test beds, with a thread for each bed, one search and one journal.

Each bed locks, backs up and restores its own hosts. Beds select their next steps one at a time, based
on all recorded outcomes. No bed waits for a slower bed as long as there is something to measure. A bed
that fails is removed from the study, and another bed repeats its trial.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.environments.base import Environment
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.errors import AutotuneError, NotRestoredError
from autotune.optimize.searcher import Searcher
from autotune.space.space import SearchSpace
from autotune.study.bed_barrier import BedBarrier
from autotune.study.progress_reporter import ForwardingReporter, ProgressReporter
from autotune.study.study_loop import StudyLoop
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import TrialContext, read_history
from autotune.target.beds import find_bed_directory
from autotune.target.model import Budget

SHARED_POLL_SECONDS = 0.5  # seconds between checks for records of other processes
STOP_POLL_SECONDS = 0.2  # seconds between checks for a stop request


def run_bed_workers(
    environment: MultiBedEnvironment,
    store: StudyStore,
    searcher: Searcher,
    budget: Budget,
    progress: ProgressReporter,
    barrier: BedBarrier | None = None,
) -> None:
    """Run or continue the study on every usable bed until it is complete.

    ``barrier`` replaces the default barrier, which covers only the beds of this process. Raises
    AutotuneError, with the error from each bed, if no bed is usable.
    """
    poll_seconds = SHARED_POLL_SECONDS if store.is_shared else None
    barrier = barrier or BedBarrier(tuple(environment.environments), poll_seconds)
    BedWorkers(
        environment.environments, environment.space, store, searcher, budget, progress, barrier
    ).run()


@dataclass
class BedWorkers:
    """The beds of one session, their threads and their errors."""

    environments_by_bed: Mapping[str, Environment]
    space: SearchSpace
    store: StudyStore
    searcher: Searcher
    budget: Budget
    progress: ProgressReporter
    barrier: BedBarrier
    errors_by_bed: dict[str, BaseException] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._loop = StudyLoop(self.space, self.store, self.searcher, self.budget, self.barrier)
        lock = threading.RLock()
        self._reporters = {
            bed: BedProgress(self.progress, bed, lock) for bed in self.environments_by_bed
        }

    def run(self) -> None:
        """Run every bed until it stops. After a KeyboardInterrupt, restore all hosts, then raise the
        KeyboardInterrupt again.
        """
        threads = [
            threading.Thread(target=self._run_bed, args=(bed,), name=f"bed {bed}")
            for bed in self.environments_by_bed
        ]
        was_interrupted, unstarted_threads = False, list(threads)
        while unstarted_threads or any(thread.is_alive() for thread in threads):
            try:
                while unstarted_threads:
                    unstarted_threads.pop().start()
                next((t for t in threads if t.is_alive()), threads[0]).join(STOP_POLL_SECONDS)
            except KeyboardInterrupt:
                was_interrupted = True
                unstarted_threads.clear()
                self.barrier.stop_all_beds()
        self._loop.close()
        if was_interrupted:
            self._raise_restore_errors()
            raise KeyboardInterrupt
        self._raise_bed_errors()

    def _run_bed(self, bed: str) -> None:
        """Run a bed in its thread, and store its errors for the main thread."""
        try:
            self._run_or_exclude(bed)
        # If a bed fails unexpectedly, or cannot be excluded, the other beds must stop.
        except BaseException as error:  # noqa: BLE001
            self.errors_by_bed.setdefault(bed, error)
            self.barrier.stop_all_beds()
        finally:
            self.barrier.remove_bed(bed)

    def _run_or_exclude(self, bed: str) -> None:
        try:
            self._run_session(bed)
        except AutotuneError as error:
            self.errors_by_bed[bed] = error
            self.store.exclude_bed(bed, error.message)
            self._reporters[bed].note(f"removed from the study: {error.message}")
        finally:
            self.store.release_bed(bed)

    def _run_session(self, bed: str) -> None:
        environment, directory = (
            self.environments_by_bed[bed],
            find_bed_directory(self.store.directory, bed),
        )
        progress = self._reporters[bed]
        with environment.open_session(
            directory, progress.note, read_history(self.store, bed)
        ) as session:
            clock = session.clock

            def wait_for_turn() -> None:
                self.barrier.wait_for_turn(bed, clock)

            today_rate = environment.file.target.load.today
            self._loop.run(
                TrialContext(
                    self.space, session, self.store, progress, bed, wait_for_turn, today_rate
                )
            )

    def _raise_bed_errors(self) -> None:
        unexpected_errors = [
            error for error in self.errors_by_bed.values() if not isinstance(error, AutotuneError)
        ]
        for error in unexpected_errors:
            if not isinstance(error, KeyboardInterrupt):
                raise error
        self._raise_restore_errors()
        if unexpected_errors:
            raise unexpected_errors[0]
        if self.store.state.verdict is None:
            error_lines = "\n".join(
                f"  bed {bed}: {error}" for bed, error in self.errors_by_bed.items()
            )
            raise AutotuneError(
                f"no test bed is usable:\n{error_lines}",
                hint="fix one of the test beds, then continue with `autotune resume "
                f"{self.store.resume_argument}`",
            )

    def _raise_restore_errors(self) -> None:
        """Raise NotRestoredError if the hosts of a bed could not be restored."""
        errors = {
            bed: error
            for bed, error in self.errors_by_bed.items()
            if isinstance(error, NotRestoredError)
        }
        if errors:
            raise NotRestoredError(
                "\n".join(f"bed {bed}: {error.message}" for bed, error in errors.items()),
                hint=next((error.hint for error in errors.values() if error.hint), None),
            )


@dataclass(frozen=True)
class BedProgress(ForwardingReporter):
    """The progress of one bed; a lock lets only one bed at a time use the shared reporter."""

    progress: ProgressReporter
    bed: str
    lock: threading.RLock

    def forward(self, call: Callable[[ProgressReporter], None]) -> None:
        with self.lock:
            call(self.progress)

    def note(self, text: str) -> None:
        super().note(f"bed {self.bed}: {text}")
