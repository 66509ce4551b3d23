"""Regret against trials, cold and warm, of every sampler on stacks with a known answer.

    python -m bench search [SEEDS] [SAMPLER,...] [warm|cold]

Regret is what the configuration a study would choose lacks to the best there is, in percent, as
median/90th percentile over stacks and seeds. It is chosen by the posterior of the model for every
sampler alike. Warm: the current and the recommended configurations come first, and count. "model"
stacks are searched by their peaks alone, as a benchmark command has them; "diagnosed" ones are the
same, with the bottleneck named after each trial. "failed" are trials that cannot be used, after the
first fifteen. None of these seeds was used to develop the samplers, nor were the stacks, but for the
diagnosed ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import optuna

from autotune.diagnose.diagnosis import recommended_moves
from autotune.optimize.gp.surrogate import MOVES
from autotune.optimize.samplers import SAMPLERS
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Settings
from autotune.simulate.chain import bottleneck, chain
from bench.stacks import Stack, best, random_stack, web_stack
from bench.variants import VARIANTS, Variant

AT = (15, 30, 60)
SEEDS = 20
FIRST_SEED = 1000
FREE_FAILURES = 15
FAMILIES = {
    "web": ("thin-lb", "large", "cached", "wide"),
    "random": ("5", "6", "7", "9"),
    "model": ("wide", "thin-lb", "slow-store", "poor-cache"),
    "diagnosed": ("wide", "thin-lb", "slow-store", "poor-cache"),
}


@dataclass(frozen=True)
class Run:
    """One study: regret by number of trials, part that failed, seconds per suggestion."""

    regret: dict[int, float]
    failed: float
    seconds: float


def stack_of(family: str, name: str) -> Stack:
    if family == "web":
        return web_stack(name)
    if family == "random":
        return random_stack(int(name))
    variant = VARIANTS[name]
    stack = Stack(name, variant.space, lambda s: variant.true_peak(s) or None, frozenset())
    return replace(stack, advise=partial(advise, variant)) if family == "diagnosed" else stack


def advise(variant: Variant, settings: Settings, peak: float) -> tuple[str, ...]:
    """The moves that the bottleneck of the modelled stack suggests."""
    made = chain(variant.topology, {**variant.space.baseline, **settings})
    return recommended_moves(asdict(bottleneck(variant.topology, made, peak, variant.slo)))


def searched(kind: str, family: str, name: str, seed: int, warm: bool) -> Run:  # noqa: FBT001  # of a pool
    """One study of ``max(AT)`` trials on one stack."""
    stack = stack_of(family, name)
    rng = np.random.default_rng((seed, 3))
    space = stack.space
    searcher = Searcher(optuna.storages.InMemoryStorage(), "s", space, kind, seed, max(AT))
    known: list[Settings] = stack.presets[: max(AT) // 2] if warm else []
    tried: list[Settings] = []
    failed: list[bool] = []
    regret, spent = {}, 0.0
    while len(tried) < max(AT):
        asked, settings = None, known[len(tried)] if len(tried) < len(known) else None
        if settings is None:
            began = time.process_time()
            suggestion = searcher.ask()
            spent += time.process_time() - began
            asked, settings = suggestion.number, {**space.baseline, **suggestion.values}
        peak = stack.measure(settings, rng)
        told = " ".join(stack.advise(settings, peak)) if peak is not None else ""
        notes = {"trial": len(tried), "phase": _phase(asked), MOVES: told}
        searcher.record(asked, settings, Outcome(peak, notes))
        tried.append(settings)
        failed.append(peak is None)
        if len(tried) in AT:
            regret[len(tried)] = _regret(stack, searcher, tried)
    late = failed[FREE_FAILURES:]
    return Run(regret, sum(late) / len(late), spent / (len(tried) - len(known)))


def _phase(asked: int | None) -> str:
    return "recommended" if asked is None else "search"


def _regret(stack: Stack, searcher: Searcher, tried: Sequence[Settings]) -> float:
    peaks = searcher.posterior().peaks
    chosen = max(peaks, key=lambda number: peaks[number].log_mean, default=None)
    reached = 0.0 if chosen is None else stack.peak(tried[chosen]) or 0.0
    return 100 * (1 - reached / best(stack)[0])


def main(arguments: Sequence[str] = ()) -> None:
    seeds = int(arguments[0]) if arguments else SEEDS
    kinds = arguments[1].split(",") if len(arguments) > 1 else ["auto", *SAMPLERS]
    starts = arguments[2:3] or ["warm", "cold"]
    with ProcessPoolExecutor() as pool:
        for start in starts:
            columns = " ".join(f"{'@' + str(at):>11}" for at in AT)
            print(
                f"{start:5} {'sampler':9} {'stacks':7} {columns} {'failed':>6} {'s/suggestion':>12}"
            )
            for kind in kinds:
                _print(kind, pool, seeds, warm=start == "warm")


def _print(kind: str, pool: ProcessPoolExecutor, seeds: int, *, warm: bool) -> None:
    every: list[Run] = []
    for family, names in FAMILIES.items():
        cases = list(product(names, range(FIRST_SEED, FIRST_SEED + seeds)))
        jobs = [pool.submit(searched, kind, family, name, seed, warm) for name, seed in cases]
        runs = [job.result() for job in jobs]
        every += runs
        _line(kind, family, runs)
    _line(kind, "all", every)


def _line(kind: str, stacks: str, runs: Sequence[Run]) -> None:
    cells = []
    for at in AT:
        values = [run.regret[at] for run in runs]
        cells.append(f"{np.median(values):5.1f}/{np.quantile(values, 0.9):5.1f}")
    failed = np.mean([run.failed for run in runs])
    seconds = np.mean([run.seconds for run in runs])
    print(f"      {kind:9} {stacks:7} {' '.join(cells)} {failed:6.0%} {seconds:12.3f}", flush=True)


if __name__ == "__main__":
    with warnings.catch_warnings():
        main()
