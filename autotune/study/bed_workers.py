"""Execution of one study on several test beds: a thread for each bed, one search and one journal.

Each bed locks, backs up and restores its own hosts. Beds decide one at a time, based on all recorded
outcomes. No bed waits for a slower one as long as there is something to measure. A bed that fails is
removed from the study, and another bed repeats its trial.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from autotune.deploy.deploy_result import DeployResult
from autotune.environments.base import Environment
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.errors import AutotuneError
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult
from autotune.optimize.bed_differences import estimate_offsets
from autotune.optimize.searcher import Searcher
from autotune.space.space import SearchSpace
from autotune.study import trial as trials
from autotune.study.bed_barrier import BedBarrier
from autotune.study.ranking import list_bed_readings
from autotune.study.schedule import ConcludeStep, MeasureStep, ScheduleStep, SuggestStep
from autotune.study.study_loop import (
    Proposal,
    catch_up_search,
    learn_from_trial,
    prepare_measurement,
    propose_configuration,
    record_verdict,
    resolve_next_step,
)
from autotune.study.study_state import COUNTED_PHASES, Phase, Trial
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import ProgressReporter, TrialContext, read_history
from autotune.target.beds import bed_directory
from autotune.target.model import Budget

COMPARISON_PHASES = (
    Phase.BASELINE,
    Phase.REFERENCE,
    Phase.FINALIST,
)  # trials that show differences between beds
# From this number of active beds in a shared study, a bed requests its next configuration while it is
# still measuring. The model then lacks only one of many outcomes.
PREFETCH_MIN_BEDS = 16
SHARED_POLL_SECONDS = 0.5  # seconds between checks for records of other processes
NextStep = tuple[ScheduleStep, Trial | None]
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

    ``barrier`` replaces the barrier of this process if beds of other processes take part. Raises
    AutotuneError if no bed is usable, with the error from each.
    """
    poll_seconds = SHARED_POLL_SECONDS if store.is_shared else None
    barrier = barrier or BedBarrier(tuple(environment.environments), poll_seconds)
    BedWorkers(environment.environments, store, searcher, budget, progress, barrier).run()


@dataclass
class BedWorkers:
    """The beds of one session and their shared state.

    Only one bed at a time decides the next step, even across all processes of a shared study. Each
    process has its own search.
    """

    environments_by_bed: Mapping[str, Environment]
    store: StudyStore
    searcher: Searcher
    budget: Budget
    progress: ProgressReporter
    barrier: BedBarrier
    errors_by_bed: dict[str, BaseException] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._is_caught_up = False
        self._search_lock = threading.Lock()
        self._prefetcher = ThreadPoolExecutor(1, thread_name_prefix="asked ahead")
        self._proposals: dict[str, Future[Proposal]] = {}
        lock = threading.RLock()
        self._reporters = {
            bed: BedProgress(self.progress, bed, lock) for bed in self.environments_by_bed
        }

    def run(self) -> None:
        """Run every bed until it stops. Raises a KeyboardInterrupt again after all hosts are restored."""
        threads = [threading.Thread(target=self._run_bed, args=(bed,), name=f"bed {bed}")
                   for bed in self.environments_by_bed]  # fmt: skip
        was_interrupted, unstarted = False, list(threads)
        while unstarted or any(thread.is_alive() for thread in threads):
            try:
                while unstarted:
                    unstarted.pop().start()
                next((t for t in threads if t.is_alive()), threads[0]).join(STOP_POLL_SECONDS)
            except KeyboardInterrupt:
                was_interrupted = True
                unstarted.clear()
                self.barrier.stop_all()
        self._prefetcher.shutdown(cancel_futures=True)
        if was_interrupted:
            raise KeyboardInterrupt
        self._raise_errors()

    def _run_bed(self, bed: str) -> None:
        """Run a bed in its thread, and store its errors for the main thread."""
        try:
            self._run_session(bed)
        except AutotuneError as error:
            self.errors_by_bed[bed] = error
            self.store.exclude_bed(bed, error.message)
            self._reporters[bed].note(f"removed from the study: {error.message}")
        except BaseException as error:  # noqa: BLE001  a bug in one bed must stop the other beds
            self.errors_by_bed[bed] = error
            self.barrier.stop_all()
        finally:
            self.store.release_bed(bed)
            self.barrier.remove_bed(bed)

    def _run_session(self, bed: str) -> None:
        environment, directory = (
            self.environments_by_bed[bed],
            bed_directory(self.store.directory, bed),
        )
        progress = self._reporters[bed]
        with environment.open_session(
            directory, progress.note, read_history(self.store, bed)
        ) as session:
            clock = session.clock

            def wait_for_turn() -> None:
                self.barrier.wait_for_turn(bed, clock)

            today_rate = environment.file.target.load.today
            context = TrialContext(
                self._space, session, self.store, progress, bed, wait_for_turn, today_rate
            )
            self._run_trials(context, bed)

    @property
    def _space(self) -> SearchSpace:
        return next(iter(self.environments_by_bed.values())).space

    def _run_trials(self, context: TrialContext, bed: str) -> None:
        """Measure trials one after the other until there are none left."""
        while True:
            context.wait_for_turn()
            step, trial = self._decide_next_step(context)
            if isinstance(step, ConcludeStep):
                return
            if trial is None or not isinstance(step, MeasureStep):
                self.barrier.wait_for_others(bed, context.clock)
                continue
            should_prefetch = (
                self.store.is_shared and len(self.store.state.active_beds) >= PREFETCH_MIN_BEDS
            )
            if should_prefetch and trial.phase in COUNTED_PHASES:
                self._proposals[bed] = self._prefetcher.submit(self._propose_suggestion)
            inputs = prepare_measurement(step, context, self.budget)
            finished_trial = (
                trial if trial.is_finished else trials.measure_trial(trial, context, *inputs)
            )
            self._report_outcome(context, finished_trial)
            self.barrier.finish_trial(bed, context.clock)

    def _decide_next_step(self, context: TrialContext) -> NextStep:
        """Return the next step after recording it. In a shared study, the model runs without holding
        the lock.
        """
        prefetched_proposal = self._proposals.pop(context.bed or "", None)
        with context.clock.time_activity("search"):
            proposal = prefetched_proposal.result() if prefetched_proposal else None
        next_step = self.store.run_decision(partial(self._begin_next_step, context, proposal))
        while isinstance(next_step[0], SuggestStep):
            with context.clock.time_activity("search"):
                proposal = self._propose_suggestion()
            next_step = self.store.run_decision(partial(self._begin_next_step, context, proposal))
        return next_step

    def _propose_suggestion(self) -> Proposal:
        with self._search_lock:
            return propose_configuration(self.store.state, self.searcher, self._space)

    def _begin_next_step(self, context: TrialContext, proposal: Proposal | None) -> NextStep:
        """Return the next step, with the trial that was started for it, if any."""
        if self.store.state.verdict is not None:
            return ConcludeStep(), None
        if not (self._is_caught_up or self.store.is_shared):
            catch_up_search(self.searcher, self.store.state)
            self._is_caught_up = True
        step = resolve_next_step(context, self.searcher, self.budget, proposal)
        if isinstance(step, ConcludeStep):
            record_verdict(context, self.searcher)
        return step, trials.begin_trial(step, context) if isinstance(step, MeasureStep) else None

    def _report_outcome(self, context: TrialContext, trial: Trial) -> None:
        """Report the outcome to the search.

        In a shared study, the search instead reads all outcomes from the records at its next request.
        """
        if not self.store.is_shared:
            self.store.run_decision(partial(self._report_local_outcome, context, trial))
            return
        if trial.phase in COMPARISON_PHASES and trial.peak is not None:
            self.store.run_decision(partial(self._record_bed_offsets, trial))
        context.record_time_spent()

    def _report_local_outcome(self, context: TrialContext, trial: Trial) -> None:
        self._record_bed_offsets(trial)
        learn_from_trial(context, self.searcher, trial)

    def _record_bed_offsets(self, trial: Trial) -> None:
        """Record the differences between beds after a trial that gives more information about them.

        The finals do not change them, because offsets must stay the same while measurements are
        compared.
        """
        if trial.phase in COMPARISON_PHASES and trial.peak is not None:
            state = self.store.state
            self.store.record_offsets(estimate_offsets(list_bed_readings(state), state.beds))

    def _raise_errors(self) -> None:
        unexpected_errors = [
            error for error in self.errors_by_bed.values() if not isinstance(error, AutotuneError)
        ]
        if unexpected_errors:
            raise next(
                (bug for bug in unexpected_errors if not isinstance(bug, KeyboardInterrupt)),
                unexpected_errors[0],
            )
        if self.store.state.verdict is None:
            lines = "\n".join(f"  bed {bed}: {error}" for bed, error in self.errors_by_bed.items())
            raise AutotuneError(
                f"no test bed is usable:\n{lines}",
                hint="fix one of the test beds, then continue with `autotune resume`",
            )


@dataclass(frozen=True)
class BedProgress:
    """The progress of one bed; a lock lets only one bed at a time use the shared reporter."""

    progress: ProgressReporter
    bed: str
    lock: threading.RLock

    def on_trial_start(self, trial: Trial) -> None:
        with self.lock:
            self.progress.on_trial_start(trial)

    def on_deployed(self, trial: Trial, deployed: DeployResult) -> None:
        with self.lock:
            self.progress.on_deployed(trial, deployed)

    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        with self.lock:
            self.progress.on_warm_up(trial, warm_up)

    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        with self.lock:
            self.progress.on_reading(trial, reading, purpose)

    def on_trial_end(self, trial: Trial) -> None:
        with self.lock:
            self.progress.on_trial_end(trial)

    def note(self, text: str) -> None:
        with self.lock:
            self.progress.note(f"bed {self.bed}: {text}")
