"""Many workers on one PostgreSQL: how long asking and telling take, and what a trial keeps there.

python -m bench shared [WORKERS [TRIALS [SECONDS]]]

Real stores, database, order of a study, records and rendered files of `targets/lab.yaml`. A worker is
a thread with its own connections, store and journal, and a measurement a wait of SECONDS. The model is
priced apart: no other worker waits for it. Most of the TRIALS are on record when the workers join.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from optuna.storages import InMemoryStorage, RDBStorage
from sqlalchemy import text

from autotune.deploy.deployed import Deployed
from autotune.diagnose.context import Bottleneck
from autotune.environments import simulated
from autotune.environments.peak import Peak
from autotune.estimate import PartCapacity
from autotune.optimize.searcher import Searcher
from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.study.beds import AHEAD
from autotune.study.loop import hear
from autotune.study.optuna_copy import copying
from autotune.study.ranking import drifted
from autotune.study.records import Phase, State, Trial, replay
from autotune.study.schedule import Ask, Conclude, Measure, next_step
from autotune.study.shared import SharedStore
from autotune.study.storage import Storage
from autotune.target.model import Budget
from bench import catalogue
from tests.study.database import OPTIONS, running

WORKERS, TRIALS, SECONDS = 128, 2000, 30.0
# Of the threads, measurements of each, and changes of a configuration.
PROCESSES, TURNS, CHANGES = 2, 3, 4
SWITCHED = 0.0005  # seconds for which one of them has its process to itself
HARDWARE = "lab/even"
FIRST = {"event": "study", "started": "", "shared": True}
TABLES = text(
    "SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY size DESC"
)
T = TypeVar("T")
Times = list[tuple[float, float]]  # wall and the worker's own CPU seconds


class Trials:
    """Configurations, and what is on record of each when it was measured."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng((seed, 7))
        self.stack, self.problem = catalogue.stack(HARDWARE, 0), catalogue.problem(HARDWARE, 0)
        self.files = simulated.prepare(self.problem.file).preview().files

    def settings(self) -> Settings:
        space = self.stack.space
        changed = self.rng.choice(len(space.tunable), CHANGES, replace=False)
        changes = {}
        for dimension in (space.tunable[index] for index in changed):
            low, high = dimension.low or 0, dimension.high or 1
            choices = dimension.choices
            changes[dimension.name] = (
                choices[int(self.rng.integers(len(choices)))] if choices
                else dimension.clip(low + self.rng.random() * (high - low))
            )  # fmt: skip
        return space.candidate({**space.baseline, **changes}).settings

    def begin(self, store: SharedStore, step: Measure | Ask, bed: str) -> Trial:
        if isinstance(step, Ask):
            settings = self.settings()
            searched = {d.name: settings[d.name] for d in self.stack.space.tunable}
            step = Measure(Phase.SEARCH, settings, suggested=searched)
        candidate = self.stack.space.as_given(step.settings)
        return store.begin(
            step.phase, candidate, of=step.of, suggested=step.suggested, bed=bed,
            repeats=step.repeats,
        )  # fmt: skip

    def outcome(self, store: SharedStore, trial: Trial) -> Callable[[], None]:
        """What a worker knows when it has measured, to be recorded."""
        settings = trial.settings
        peak = self.stack.measure(settings, self.rng) or 1.0
        deployed = Deployed(self.files(settings), {}, settings)
        limit = Bottleneck("web", "php-fpm", "web1", Resource.CPU, "all CPUs were busy: 97 %", 0.9)
        known = catalogue.parts(self.problem, settings).items()
        parts = {name: PartCapacity(log, 0.1, tiers) for name, (log, tiers) in known}

        def record() -> None:
            store.deployed(trial, deployed)
            store.bottleneck(trial, limit)
            store.capacities(trial, parts)
            store.spent({"load": 30.0, "deploy": 3.0}, trial.bed)
            store.measured(trial, Peak(peak, peak * 0.95, peak * 1.05, 0.03, "measured", None),
                           readings=8, load_seconds=30.0)  # fmt: skip

        return record


def work(
    url: str, bed: str, trials: int, seconds: float, times: tuple[Times, Times], start: Any
) -> None:
    """One worker's asks and tells: what it reads and claims, and what it records."""
    made = Trials(int(bed) + 1)
    budget = Budget.model_construct(trials=trials, time=1e9)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as directory,
        closing(Storage(url)) as storage,
        closing(SharedStore(Path(directory) / "s", storage, storage.find("bench"))) as store,
    ):
        store.join({bed: {}})

        def decided(*, claim: bool) -> Trial | Ask | Conclude:
            step = next_step(store.state, made.stack.space, budget, 0.0, bed)
            if isinstance(step, Measure) or (isinstance(step, Ask) and claim):
                return made.begin(store, step, bed)
            return step if isinstance(step, Ask) else Conclude()

        def ask() -> Trial | Ask | Conclude:
            # In a study of many beds the model was asked while the bed measured: it is one decision.
            ahead = len(store.state.active_beds) >= AHEAD
            first = store.decide(partial(decided, claim=ahead))
            return store.decide(partial(decided, claim=True)) if first == Ask() else first

        start.wait()
        time.sleep(seconds * made.rng.uniform())
        for _ in range(TURNS):
            trial = timed(ask, times[0])
            if not isinstance(trial, Trial):
                break
            record = made.outcome(store, trial)
            time.sleep(seconds * made.rng.uniform(0.7, 1.3))
            timed(record, times[1])
        store.leave(bed)


def timed(act: Callable[[], T], times: Times) -> T:
    begun, cpu = time.monotonic(), time.thread_time()
    result = act()
    times.append((time.monotonic() - begun, time.thread_time() - cpu))
    return result


def group(
    url: str, beds: Sequence[str], trials: int, seconds: float, start: Any, results: Any
) -> None:
    times: tuple[Times, Times] = ([], [])
    # Each is a machine of its own: who works is not to hold up who waits for an answer.
    sys.setswitchinterval(SWITCHED)
    threads = [threading.Thread(target=work, args=(url, bed, trials, seconds, times, start))
               for bed in beds]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(times)


def fill(url: str, trials: int) -> None:
    """Trials of beds that are gone, as they recorded them."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, closing(Storage(url)) as storage:
        study, made = storage.find("bench"), Trials(0)
        with closing(SharedStore(Path(directory) / "s", storage, study)) as store:
            store.join({"early": {}})
            baseline = Measure(Phase.BASELINE, made.stack.space.baseline)
            for number in range(trials):
                made.outcome(store, made.begin(store, Ask() if number else baseline, "early"))()
            store.leave("early")


def main(arguments: Sequence[str] = ()) -> None:
    workers, trials = (int(a) if a else d for a, d in zip(
        [*arguments[:2], *[""] * (2 - len(arguments[:2]))], (WORKERS, TRIALS), strict=True))  # fmt: skip
    seconds = float(arguments[2]) if len(arguments) > 2 else SECONDS
    options = [o for o in OPTIONS if "max_connections" not in o]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        options = [*options, f"max_connections={2 * workers + 20}"]
        with running(Path(directory) / "pg", options) as base:
            _main(base.url, workers, trials, seconds)


def _main(url: str, workers: int, trials: int, seconds: float) -> None:
    with closing(Storage(url)) as storage:
        storage.create("bench", "name: bench", [FIRST])
        before = size(storage)
        fill(url, trials - workers * TURNS)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["bench.shared"])
        results, start = context.Queue(), context.Barrier(workers)
        beds = [str(number) for number in range(workers)]
        processes = [context.Process(target=group, daemon=True,
                                     args=(url, beds[n::PROCESSES], trials, seconds, start, results))
                     for n in range(PROCESSES)]  # fmt: skip
        for process in processes:
            process.start()
        groups = [results.get() for _ in processes]
        for process in processes:
            process.join()
        print(f"{workers} workers, {trials} trials, a measurement of {seconds:g} s", flush=True)
        for which, name in enumerate(("ask", "tell")):
            _print_times(name, [each for times in groups for each in times[which]])
        _print_size(storage, before, trials)
        _print_model(storage, trials)


def _print_times(name: str, times: Times) -> None:
    wall, cpu = np.array(times).T
    print(
        f"{name:5} {len(times)} times: p50 {np.median(wall):.2f} s, p95 {np.percentile(wall, 95):.2f} s; "
        f"CPU of the worker {1000 * cpu.mean():.0f} ms",
        flush=True,
    )


def size(storage: Storage) -> int:
    """Bytes of the database."""
    query = text("SELECT pg_database_size(current_database())")
    return int(storage.transaction(lambda connection: connection.execute(query).scalar_one()))


def _print_size(storage: Storage, before: int, trials: int) -> None:
    """What is there, Optuna's tables included, once they have all outcomes."""
    study = storage.find("bench")
    space = catalogue.problem(HARDWARE, 0).space

    def search(tables: RDBStorage) -> Searcher:
        return Searcher(tables, "bench", space, "random", 1, condensed=True)

    with copying(storage, study, search):
        pass
    grown = (size(storage) - before) / 1024 / trials
    rows = storage.transaction(lambda connection: connection.execute(TABLES).all())
    parts = ", ".join(f"{row.relname} {row.size / 1024 / trials:.1f}" for row in rows[:5])
    print(f"{grown:.1f} KB a trial of {len(space.tunable)} parameters: {parts}")


def _print_model(storage: Storage, trials: int) -> None:
    """CPU seconds of a worker's own model, which hears of 100 trials since it was asked last."""
    records = storage.records(storage.find("bench"))
    state = replay(records)
    early = State(state.trials[: trials - 100], shared=True)
    space = catalogue.problem(HARDWARE, 0).space
    search = Searcher(InMemoryStorage(), "s", space, "auto", 1, trials, several=True)
    times: Times = []
    timed(lambda: hear(search, early), times)
    timed(lambda: hear(search, state), times)
    timed(lambda: search.ask(drifted(state)), times)
    joining, hearing, asking = (cpu for _, cpu in times)
    print(
        f"model {search.chosen.name}: {joining:.1f} s to join, {hearing:.2f} s to hear of 100 trials, "
        f"{asking:.2f} s to ask"
    )
