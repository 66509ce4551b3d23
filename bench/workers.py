"""Studies of several processes on one PostgreSQL, each with a test bed, against a bed that is alone.

python -m bench workers [STUDIES [BEDS]]

All is what `autotune worker` runs, its model included; the beds are models of a stack, in virtual time.
Unequal ones carry up to a fifth more or less. Good is what the stack carries without noise.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import accumulate
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from autotune.environments import beds, simulated
from autotune.simulate.chain import chain
from autotune.study.joining import begin, join, joining
from autotune.study.ranking import conclude
from autotune.study.records import COUNTED, State, after
from autotune.study.storage import SharedStudy, Storage
from autotune.target.read import TargetFile, read
from bench.beds import TRIALS, UNEQUAL, Study, efficiency
from bench.shared import opened
from tests.modelled import noisy
from tests.study.simulated import Silent

STUDIES, BEDS = 20, 8
BARS = {"equal": 0.9, "unequal": 0.8}


def target(directory: Path, levels: Sequence[float], seed: int) -> TargetFile:
    """A model of a stack with a bed for each level of what it carries."""
    directory.mkdir()
    lines = [f"  b{n}: {{simulated: {{seed: {1000 * seed + n}, capacity: {level:.4f}}}}}"
             for n, level in enumerate(levels)]  # fmt: skip
    budget = f"budget: {{trials: {TRIALS}, time: 10h}}\nsearch: {{sampler: gp, seed: {seed}}}\n"
    path = directory / "modelled.yaml"
    path.write_text(noisy(budget + "\n".join(["beds:", *lines, ""])))
    return read(path)


def work(url: str, study: SharedStudy, target: Path, bed: str) -> None:
    """What `autotune worker` does."""
    silent: Any = Silent()
    with closing(Storage(url)) as storage:
        environment = joining(study, storage, read(target), bed)
        join(environment, target.parent / bed / study.name, silent, study=study, storage=storage)


def measured(url: str, storage: Storage, place: Path, levels: Sequence[float], seed: int) -> Study:
    """A study with a process for each bed."""
    file = target(place, levels, seed)
    study = begin(beds.prepare(file, tuple(file.target.beds)), storage, place / "none")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.workers"])
    processes = [context.Process(target=work, args=(url, study, file.path, bed), daemon=True)
                 for bed in file.target.beds]  # fmt: skip
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"workers of {study.name} ended with an error")
    return found(storage.records(study), simulated.prepare(file))


def found(records: Iterable[Mapping[str, Any]], model: simulated.SimulatedEnvironment) -> Study:
    """What was tried, by the virtual time of the bed that measured it."""
    state, slo = State(), model.file.target.slo.slo
    tried: list[tuple[float, float]] = []
    for record in records:
        state = after(state, record)
        if record["event"] == "measured":
            trial = state.by_number(record["trial"])
            if trial.phase in COUNTED and trial.bed:
                peak = chain(model.topology, trial.settings).peak(slo)
                tried.append((state.elapsed_on(trial.bed), peak))
    times, peaks = zip(*sorted(tried), strict=True)
    curve = tuple(zip(times, accumulate(peaks, max), strict=True))
    return Study(state, conclude(state), curve, 0.0)


def unequal(count: int, seed: int) -> list[float]:
    rng = np.random.default_rng((seed, 81))
    return [exp(x) for x in rng.uniform(log(1 - UNEQUAL), log(1 + UNEQUAL), count)]


def main(arguments: Sequence[str] = ()) -> None:
    studies, count = (int(a) for a in (*arguments, *(str(STUDIES), str(BEDS))[len(arguments) :]))
    kinds: Mapping[str, Callable[[int], list[float]]] = {
        "equal": lambda _: [1.0] * count,
        "unequal": lambda seed: unequal(count, seed),
    }
    with opened(count) as (place, url, storage):
        alone: list[Study] = []
        several: dict[str, list[Study]] = {kind: [] for kind in kinds}
        for seed in range(studies):
            alone.append(measured(url, storage, place / f"{seed}-alone", [1.0], seed))
            for kind, levels in kinds.items():
                at = place / f"{seed}-{kind}"
                several[kind].append(measured(url, storage, at, levels(seed), seed))
                _print(kind, alone, several[kind], count)


def _print(kind: str, alone: Sequence[Study], several: Sequence[Study], count: int) -> None:
    """Of the studies so far."""
    gains = [exp(np.mean([log(s.curve[-1][1]) for s in some])) for some in (alone, several)]
    seconds = [np.mean([s.curve[-1][0] for s in some]) for some in (alone, several)]
    print(
        f"{count} beds, {kind:7} {len(several)} studies: efficiency "
        f"{efficiency(alone, several, count):.2f} (bar: {BARS[kind]}); the best tried carries "
        f"{gains[1] / gains[0]:.3f} of one bed's; {seconds[1]:.0f} s of the search for {seconds[0]:.0f}",
        flush=True,
    )
