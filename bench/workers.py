"""Studies of several worker processes with a test bed each, compared with studies on a single bed.

python -m bench workers [STUDIES [BEDS [TRIALS]]]

The processes run the code of `autotune worker`, including the model, with one PostgreSQL. The beds are
simulated stacks in a virtual time that all processes share, so that decisions and records are in the
order of virtual time. The capacities of unequal beds differ by up to a fifth. Configurations are compared
by their capacities without noise. The single bed tries TRIALS configurations. Each bed measures the
baseline first, so several beds save less time in short studies. One study runs per CPU, because usually
only one process of a study is active.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import accumulate
from math import exp, log
from multiprocessing.connection import wait
from multiprocessing.managers import BaseManager
from multiprocessing.process import BaseProcess
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np

from autotune.environments import multi_bed as beds
from autotune.environments import simulated
from autotune.environments.clock import StudyClock
from autotune.simulate.chain import build_chain
from autotune.study.bed_barrier import BedBarrier
from autotune.study.join_study import create_shared_study, join_study, prepare_joining_beds
from autotune.study.proof import decide_verdict
from autotune.study.state_replay import apply_record
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_state import COUNTED_PHASES, State
from autotune.target.read_target import TargetFile, read_target
from bench.beds import MORE, TRIALS, UNEQUAL, Study, between, time_of_one, tried
from bench.shared import opened
from tests.modelled import noisy
from tests.study.simulated import Silent

STUDIES, BEDS = 20, 8
Levels = Callable[[int], list[float]]  # returns the capacity of each bed for a seed
BARS = {"equal": 0.9, "unequal": 0.8}


class Order:
    """The barrier of the beds of all processes. Calls contain the virtual time of the calling bed."""

    def __init__(self, beds: Sequence[str]) -> None:
        self._turns = BedBarrier(beds)

    def turn(self, bed: str, now: float) -> None:
        self._turns.wait_for_turn(bed, _clock([now]))

    def wait(self, bed: str, now: float) -> float:
        at = [now]
        self._turns.wait_for_others(bed, _clock(at))
        return at[0]

    def over(self, bed: str, now: float) -> None:
        self._turns.finish_trial(bed, _clock([now]))

    def leave(self, bed: str) -> None:
        self._turns.remove_bed(bed)


def _clock(at: list[float]) -> StudyClock:
    """Return a clock that shows the time in ``at``, which skips can advance."""

    def skip(seconds: float) -> None:
        at[0] += seconds

    return StudyClock(lambda: at[0], skip)


class Ordering(BaseManager):
    """The manager of the process that contains the common ``Order``."""


Ordering.register("order", Order)


class SharedTurns(BedBarrier):
    """The barrier of a worker, which calls the common ``Order`` in another process."""

    def __init__(self, order: Any) -> None:
        super().__init__(())
        self._order = order

    def wait_for_turn(self, bed: str, clock: StudyClock) -> None:
        self._order.turn(bed, clock.now())

    def wait_for_others(self, bed: str, clock: StudyClock) -> None:
        assert clock.skip is not None
        clock.skip(self._order.wait(bed, clock.now()) - clock.now())

    def finish_trial(self, bed: str, clock: StudyClock) -> None:
        self._order.over(bed, clock.now())

    def remove_bed(self, bed: str) -> None:
        self._order.leave(bed)


def target(directory: Path, levels: Sequence[float], seed: int, trials: int) -> TargetFile:
    """Return the target of a simulated stack, with a bed for each capacity in ``levels``."""
    directory.mkdir()
    lines = [f"  b{n}: {{simulated: {{seed: {1000 * seed + n}, capacity: {level:.4f}}}}}"
             for n, level in enumerate(levels)]  # fmt: skip
    trials = trials if len(levels) == 1 else round(MORE * trials)
    budget = f"budget: {{trials: {trials}, time: 10h}}\nsearch: {{sampler: gp, seed: {seed}}}\n"
    path = directory / "modelled.yaml"
    path.write_text(noisy(budget + "\n".join(["beds:", *lines, ""])))
    return read_target(path)


def work(url: str, study: SharedStudy, target: Path, bed: str, order: Any) -> None:
    """Run a worker of a study with the code of `autotune worker`."""
    silent: Any = Silent()
    with closing(StudyDatabase(url)) as storage:
        environment = prepare_joining_beds(study, storage, read_target(target), bed)
        join_study(environment, target.parent / bed / study.name, silent, study=study, storage=storage,
             barrier=SharedTurns(order))  # fmt: skip


def measured(
    url: str, storage: StudyDatabase, place: Path, levels: Sequence[float], seed: int, trials: int
) -> Study:
    """Run a study with a process for each bed, and remove the study's files at the end."""
    file = target(place, levels, seed, trials)
    study = create_shared_study(
        beds.prepare(file, tuple(file.target.beds)), storage, place / "none"
    )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.workers"])
    with Ordering(ctx=context) as ordering:
        order = ordering.order(tuple(file.target.beds))  # type: ignore[attr-defined]  # registered
        processes = [
            context.Process(target=work, args=(url, study, file.path, bed, order), daemon=True)
            for bed in file.target.beds
        ]
        ended(processes, study.name)
    shutil.rmtree(place)
    return found(storage.read_records(study), simulated.prepare(file))


def ended(processes: Sequence[BaseProcess], name: str) -> None:
    """Wait until all processes have exited.

    Raises ``RuntimeError`` as soon as a process has failed, because the others would wait for it.
    """
    try:
        for process in processes:
            process.start()
        running = list(processes)
        while running:
            wait([process.sentinel for process in running])
            running = [process for process in running if process.is_alive()]
            if any(process.exitcode for process in processes):
                raise RuntimeError(f"a worker of {name} ended with an error")
    finally:
        for process in processes:
            process.terminate()
            process.join()


def found(records: Iterable[Mapping[str, Any]], model: simulated.SimulatedEnvironment) -> Study:
    """Return the recorded study, whose curve contains capacities without noise."""
    state, slo = State(), model.file.target.slo.objective
    tried: list[tuple[float, float]] = []
    for record in records:
        state = apply_record(state, record)
        if record["event"] == "measured":
            trial = state.find_trial(record["trial"])
            if trial.phase in COUNTED_PHASES and trial.bed:
                peak = build_chain(model.topology, trial.settings).compute_peak(slo)
                tried.append((state.compute_bed_elapsed_seconds(trial.bed), peak))
    times, peaks = zip(*sorted(tried), strict=True)
    curve = tuple(zip(times, accumulate(peaks, max), strict=True))
    return Study(state, decide_verdict(state), curve, 0.0)


def unequal(count: int, seed: int) -> list[float]:
    rng = np.random.default_rng((seed, 81))
    return [exp(x) for x in rng.uniform(log(1 - UNEQUAL), log(1 + UNEQUAL), count)]


def each_kind(
    url: str, place: Path, kinds: Mapping[str, Levels], trials: int, seed: int
) -> dict[str, Study]:
    """Run a study of each kind with the same seed."""
    with closing(StudyDatabase(url)) as storage:
        return {
            kind: measured(url, storage, place / f"{seed}-{kind}", levels(seed), seed, trials)
            for kind, levels in kinds.items()
        }


def main(arguments: Sequence[str] = ()) -> None:
    defaults = (STUDIES, BEDS, TRIALS)
    studies, count, trials = (*map(int, arguments), *defaults[len(arguments) :])
    kinds: Mapping[str, Levels] = {
        "alone": lambda _: [1.0],
        "equal": lambda _: [1.0] * count,
        "unequal": lambda seed: unequal(count, seed),
    }
    at_once = cpu_count() or 1
    with opened(count * at_once) as (place, url, _), ThreadPoolExecutor(at_once) as pool:
        of_seed = partial(each_kind, url, place, kinds, trials)
        by_kind: dict[str, list[Study]] = {kind: [] for kind in kinds}
        try:
            for of_kinds in pool.map(of_seed, range(studies)):
                for kind, study in of_kinds.items():
                    by_kind[kind].append(study)
                for kind in BARS:
                    _print(kind, by_kind["alone"], by_kind[kind], count)
        except BaseException:  # stop the processes of other threads, too, for example after SIGTERM
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _print(kind: str, alone: Sequence[Study], several: Sequence[Study], count: int) -> None:
    """Print the results of the finished studies of a kind."""
    seconds = time_of_one(alone)
    share = exp(tried(several, seconds / count) - tried(alone, seconds))
    print(
        f"{count} beds, {kind:7} {len(several)} studies: efficiency {between(alone, several, count)} "
        f"(bar: {BARS[kind]}); after {seconds / count:.0f} s for {seconds:.0f} the best tried carries "
        f"{share:.3f} of one bed's",
        flush=True,
    )
