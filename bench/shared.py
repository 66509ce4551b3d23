"""Many workers with one PostgreSQL: the times to request a trial and to record it, and its size on disk.

python -m bench shared [WORKERS [TRIALS [SECONDS]]]

The workers use autotune's own store, schedule, records and rendered files of `targets/lab.yaml`. A worker
is a thread with its own connections, store and journal. Instead of measuring, a worker waits for SECONDS.
The cost of the model is measured separately, because no other worker waits for it. Most of the TRIALS are
recorded before the workers join, and all workers of a process share the state of these trials. After
SIGTERM, the benchmark removes everything that it created.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from optuna.storages import InMemoryStorage, RDBStorage
from sqlalchemy import text

from autotune.deploy.deploy_result import DeployResult
from autotune.diagnose.bottleneck import Bottleneck
from autotune.environments import simulated
from autotune.environments.clock import StudyClock
from autotune.environments.peak import Peak
from autotune.estimate import InstanceCapacity
from autotune.optimize.searcher import Searcher, Suggestion
from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.study import trial as of_study
from autotune.study.optuna_copy import copy_in_background
from autotune.study.schedule_steps import MeasureStep, ScheduleStep, SuggestStep
from autotune.study.search_history import sync_search
from autotune.study.shared_store import SharedStore
from autotune.study.state_replay import replay_records
from autotune.study.study_database import StudyDatabase
from autotune.study.study_drift import estimate_study_drift
from autotune.study.study_loop import (
    PREFETCH_MIN_BEDS,
    Proposal,
    prepare_measurement,
    resolve_next_step,
)
from autotune.study.study_state import Phase, State, Trial
from autotune.study.trial_context import TrialContext
from autotune.target.model import Budget
from bench import catalogue
from tests.study.database import running
from tests.study.simulated import Silent

WORKERS, TRIALS, SECONDS = 128, 2000, 30.0
# The numbers of processes, of measurements per thread, and of changes per configuration.
PROCESSES, TURNS, CHANGES = 2, 3, 4
SWITCHED = 0.0005  # maximum seconds until Python switches to another thread
HARDWARE = "lab/even"
FIRST = {"event": "study", "started": "", "shared": True}
TABLES = text(
    "SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY size DESC"
)
T = TypeVar("T")
Times = list[tuple[float, float]]  # wall-clock seconds and CPU seconds of each call
Found = tuple[list[tuple[Times, Times]], float]  # times per worker, and MB of a process


class Early:
    """The state of trials before the workers joined, which all workers of a process share.

    On a machine with a single worker, this state takes about 25 MB for 2,000 trials.
    """

    def __init__(self) -> None:
        self._lock, self._state = threading.Lock(), State()

    def open(self, directory: Path, storage: StudyDatabase) -> SharedStore:
        with self._lock:
            store = SharedStore(directory, storage, storage.find_study("bench"))
            if not self._state.trials:
                self._state = store.state
            known = self._state
            assert len(store.state.trials) == len(known.trials)
            store.state = replace(store.state, trials=known.trials, bottlenecks=known.bottlenecks,
                                  capacities=known.capacities)  # fmt: skip
        return store


class Trials:
    """Random configurations, and records of their measurements."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng((seed, 7))
        self.stack, self.problem = catalogue.stack(HARDWARE, 0), catalogue.problem(HARDWARE, 0)
        self.files = simulated.prepare(self.problem.file).build_preview().render_files

    def settings(self) -> Settings:
        space = self.stack.space
        changed = self.rng.choice(len(space.tunable_dimensions), CHANGES, replace=False)
        changes = {}
        for dimension in (space.tunable_dimensions[index] for index in changed):
            low, high = dimension.low or 0, dimension.high or 1
            choices = dimension.choices
            changes[dimension.name] = (
                choices[int(self.rng.integers(len(choices)))] if choices
                else dimension.clip(low + self.rng.random() * (high - low))
            )  # fmt: skip
        return space.build_candidate({**space.baseline, **changes}).settings

    def proposal(self, state: State) -> Proposal:
        settings = self.settings()
        searched = {d.name: settings[d.name] for d in self.stack.space.tunable_dimensions}
        return Proposal(Suggestion(0, searched), len(state.trials))

    def outcome(self, store: SharedStore, trial: Trial) -> Callable[[], None]:
        """Return a function that records the outcome of ``trial``."""
        settings = trial.settings
        peak = self.stack.measure(settings, self.rng) or 1.0
        deployed = DeployResult(self.files(settings), {}, settings)
        limit = Bottleneck("web", "php-fpm", "web1", Resource.CPU, "all CPUs were busy: 97 %", 0.9)
        known = catalogue.parts(self.problem, settings).items()
        parts = {name: InstanceCapacity(log, 0.1, tiers) for name, (log, tiers) in known}

        def record() -> None:
            store.record_deployment(trial, deployed)
            store.record_bottleneck(trial, limit)
            store.record_capacities(trial, parts)
            store.record_time_spent({"load": 30.0, "deploy": 3.0}, trial.bed)
            store.record_peak(trial, Peak(peak, peak * 0.95, peak * 1.05, 0.03, "measured", None),
                           reading_count=8, load_seconds=30.0)  # fmt: skip

        return record


class Worker:
    """A worker that neither measures trials nor computes a model."""

    def __init__(self, store: SharedStore, bed: str, trials: int) -> None:
        self.made, self.store = Trials(int(bed) + 1), store
        space = self.made.stack.space
        session: Any = SimpleNamespace(clock=StudyClock())
        progress: Any = Silent()
        self.context = TrialContext(space, session, store, progress, bed)
        self.searcher = Searcher(InMemoryStorage(), bed, space, "random", 1)
        self.budget = Budget.model_construct(trials=trials, time=1e9)

    def ask(self, proposal: Proposal) -> Trial | None:
        """Record and return the next trial, and prepare its measurement."""
        # With several beds, suggestions are computed during the previous measurements, so a worker
        # needs only one decision.
        ahead = len(self.store.state.active_beds) >= PREFETCH_MIN_BEDS
        step, trial = self.store.run_decision(partial(self._decide, proposal if ahead else None))
        if isinstance(step, SuggestStep):
            step, trial = self.store.run_decision(partial(self._decide, proposal))
        if isinstance(step, MeasureStep):
            prepare_measurement(step, self.context, self.budget)
        return trial

    def _decide(self, proposal: Proposal | None) -> tuple[ScheduleStep, Trial | None]:
        step = resolve_next_step(self.context, self.searcher, self.budget, proposal)
        return step, of_study.begin_trial(step, self.context) if isinstance(
            step, MeasureStep
        ) else None


def work(
    url: str, place: Path, trials: int, seconds: float, bed: str, early: Early, start: Any
) -> tuple[Times, Times]:
    """Run a worker, and return the times of its requests for trials and of its records."""
    asks: Times = []
    tells: Times = []
    with closing(StudyDatabase(url)) as storage, closing(early.open(place / bed, storage)) as store:
        store.join_beds({bed: {}})
        worker = Worker(store, bed, trials)
        made = worker.made
        start.wait()
        time.sleep(seconds * made.rng.uniform())
        for _ in range(TURNS):
            trial = timed(partial(worker.ask, made.proposal(store.state)), asks)
            if trial is None:
                break
            record = made.outcome(store, trial)
            time.sleep(seconds * made.rng.uniform(0.7, 1.3))
            timed(record, tells)
        store.release_bed(bed)
    return asks, tells


def timed(act: Callable[[], T], times: Times) -> T:
    begun, cpu = time.monotonic(), time.thread_time()
    result = act()
    times.append((time.monotonic() - begun, time.thread_time() - cpu))
    return result


def group(
    act: Callable[[str, Early, Any], tuple[Times, Times]],
    beds: Sequence[str],
    start: Any,
    results: Any,
) -> None:
    """Run the workers of a process, and send their times and the memory in MB to ``results``.

    If a worker fails, the error is sent instead.
    """
    early = Early()

    def one(bed: str) -> tuple[Times, Times]:
        try:
            return act(bed, early, start)
        except BaseException:
            start.abort()  # so that no worker waits for the failed worker
            raise

    # Threads represent workers on different machines, so a busy thread must not delay the others.
    sys.setswitchinterval(SWITCHED)
    try:
        with ThreadPoolExecutor(len(beds)) as pool:
            times = list(pool.map(one, beds))
    except Exception as error:  # noqa: BLE001 # the receiver raises it again
        results.put(error)
    else:
        results.put((times, getrusage(RUSAGE_SELF).ru_maxrss / 1024))


def fill(storage: StudyDatabase, trials: int, place: Path) -> None:
    """Record ``trials`` as trials of a bed that has left the study."""
    made, space = Trials(0), catalogue.problem(HARDWARE, 0).space
    with closing(SharedStore(place, storage, storage.find_study("bench"))) as store:
        store.join_beds({"early": {}})
        for number in range(trials):
            searched = made.proposal(store.state).suggestion.values if number else {}
            candidate = space.build_candidate({**space.baseline, **searched})
            phase = Phase.SEARCH if number else Phase.BASELINE
            trial = store.begin_trial(phase, candidate, suggested=searched, bed="early")
            made.outcome(store, trial)()
        store.release_bed("early")


def main(arguments: Sequence[str] = ()) -> None:
    workers, trials = (int(a) if a else d for a, d in zip(
        [*arguments[:2], *[""] * (2 - len(arguments[:2]))], (WORKERS, TRIALS), strict=True))  # fmt: skip
    seconds = float(arguments[2]) if len(arguments) > 2 else SECONDS
    with opened(workers) as (place, url, storage):
        storage.create_study("bench", "name: bench", [FIRST])
        before, begun = size(storage), time.monotonic()
        early = trials - workers * TURNS
        fill(storage, early, place / "early")
        print(f"{early} trials on record after {time.monotonic() - begun:.0f} s", flush=True)
        groups = at_once(url, place, workers, trials, seconds)
        _print(storage, before, groups, workers, trials, seconds)


@contextmanager
def opened(workers: int) -> Iterator[tuple[Path, str, StudyDatabase]]:
    """Yield a directory and a private PostgreSQL, which are removed at the end, even after SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    # With the default durability, each commit waits for the disk.
    options = ("listen_addresses=", f"max_connections={4 * workers + 20}")
    try:
        with tempfile.TemporaryDirectory(prefix="autotune-bench-") as directory:
            place = Path(directory)
            place.chmod(0o755)
            with (
                running(place / "pg", options) as base,
                closing(StudyDatabase(base.url)) as storage,
            ):
                try:
                    yield place, base.url, storage
                finally:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(
    storage: StudyDatabase,
    before: int,
    groups: Sequence[Found],
    workers: int,
    trials: int,
    seconds: float,
) -> None:
    print(f"{workers} workers, {trials} trials, a measurement of {seconds:g} s", flush=True)
    for which, name in enumerate(("ask", "tell")):
        _print_times(name, [each for times, _ in groups for both in times for each in both[which]])
    _print_size(storage, before, trials)
    print(f"memory of {len(groups)} processes: {' + '.join(f'{mb:.0f}' for _, mb in groups)} MB")
    _print_model(storage, trials)


def at_once(url: str, place: Path, workers: int, trials: int, seconds: float) -> list[Found]:
    """Run all workers at the same time, and return the result of each process.

    Raises the first error of a process.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.shared"])
    results, start = context.Queue(), context.Barrier(workers)
    beds = [str(number) for number in range(workers)]
    act = partial(work, url, place, trials, seconds)
    processes = [
        context.Process(target=group, args=(act, beds[n::PROCESSES], start, results), daemon=True)
        for n in range(PROCESSES)
    ]
    try:
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if error := next((each for each in found if isinstance(each, Exception)), None):
        raise error
    return found


def _print_times(name: str, times: Times) -> None:
    wall, cpu = np.array(times).T
    print(
        f"{name:5} {len(times)} times: p50 {np.median(wall):.2f} s, p95 {np.percentile(wall, 95):.2f} s "
        f"(bar: 1 s); CPU of the worker {1000 * cpu.mean():.0f} ms",
        flush=True,
    )


def size(storage: StudyDatabase) -> int:
    """Return the size of the database in bytes."""
    query = text("SELECT pg_database_size(current_database())")
    return int(storage.run_transaction(lambda connection: connection.execute(query).scalar_one()))


def _print_size(storage: StudyDatabase, before: int, trials: int) -> None:
    """Print the disk space per trial of autotune's records, and of Optuna's tables with outcomes."""
    study = storage.find_study("bench")
    space = catalogue.problem(HARDWARE, 0).space

    def search(tables: RDBStorage) -> Searcher:
        return Searcher(tables, "bench", space, "random", 1, is_condensed=True)

    with copy_in_background(storage, study, search):
        pass
    grown = (size(storage) - before) / 1024 / trials
    rows = storage.run_transaction(lambda connection: connection.execute(TABLES).all())
    parts = ", ".join(f"{row.relname} {row.size / 1024 / trials:.1f}" for row in rows[:5])
    print(
        f"{grown:.1f} KB a trial (bar: 20) of {len(space.tunable_dimensions)} parameters: {parts}"
    )


def _print_model(storage: StudyDatabase, trials: int) -> None:
    """Print the CPU seconds of a suggestion if 100 trials were added since the previous suggestion."""
    records = storage.read_records(storage.find_study("bench"))
    state = replay_records(records)
    early = State(state.trials[: trials - 100], is_shared=True)
    space = catalogue.problem(HARDWARE, 0).space
    search = Searcher(InMemoryStorage(), "s", space, "auto", 1, trials, has_several_beds=True)
    times: Times = []
    timed(lambda: sync_search(search, early), times)
    timed(lambda: sync_search(search, state), times)
    timed(lambda: search.suggest(estimate_study_drift(state)), times)
    joining, hearing, asking = (cpu for _, cpu in times)
    print(
        f"model {search.chosen.name}: {joining:.1f} s to join, {hearing:.2f} s to hear of 100 trials, "
        f"{asking:.2f} s to ask"
    )
