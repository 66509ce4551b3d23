"""Regret against trials of every sampler on stacks with a known answer.

    python -m bench search [--seeds 20] [--samplers auto,tpe,…] [--families web,…] [--parts seen,…]

Regret is by how much the configuration that a study would choose falls short of the best there is, in
percent: mean, median and 90th percentile over stacks and seeds. All samplers have the same calls and
the same final choice: the leaders of a model of all trials are measured once more, and the best preset
is kept unless another one is likely to be better. ``with pairs`` is the mean regret if the first two of
them are then measured in turn, as long as it is undecided which is better, as a study does before it
proves anything. The presets come first and count as trials, except on `catalogue`, where only
suggestions count. ``tried`` is the mean regret of the best configuration that was tried by then: the
difference between it and the regret of the choice was lost by choosing, the rest by searching. ``over
preset`` is the median gain over the best preset, ``worse`` the share of studies whose choice is over a
point worse than that preset.

Families: `web` (formulas), `random` (drawn), `model` (the modelled chain), 16 to 19 parameters each;
`catalogue` (`bench.catalogue`): the spaces of the shipped targets, 49 and 125. ``--parts`` says what a
trial tells of the parts of a stack: `none`, as with a command; `seen`, with 15 % noise; `spoilt`, a third
missing, each with an error of its own, one in ten wild, and 30 % of the diagnoses wrong.

`ofat` changes one parameter after the other from the best preset and keeps what helps, as an engineer
does; `near` changes one to four at random. `flaml` needs FLAML to be installed. Seeds below 1000 were
used to develop the samplers, those of this benchmark were not.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import count, islice, product
from math import log
from typing import Any

import numpy as np
import optuna

from autotune.diagnose.diagnosis import recommended_moves
from autotune.estimate import Estimate
from autotune.optimize.gp.surrogate import CAPACITIES, MOVES
from autotune.optimize.ranking import PosteriorPeaks, pooled, rivals, undecided, winner
from autotune.optimize.samplers import SAMPLERS
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Settings, Value
from autotune.simulate.chain import bottleneck, chain
from autotune.study.schedule import RUNNER_UP_PAIRS
from bench import catalogue
from bench.stacks import Stack, _drawn, _neighbours, best, random_stack, web_stack
from bench.variants import VARIANTS, Variant

SEEDS = 20
FIRST_SEED = 1000
FREE_FAILURES = 15
HARDWARE = tuple(f"{target}/{kind}" for target in ("local", "lab") for kind in catalogue.HARDWARE)
FAMILIES = {
    "web": ("thin-lb", "large", "cached", "wide"),
    "random": ("5", "6", "7", "9"),
    "model": ("wide", "thin-lb", "slow-store", "poor-cache"),
    "catalogue": HARDWARE,
}
AT = {family: (12, 20, 30) if family == "catalogue" else (15, 30, 60) for family in FAMILIES}
NONE, SEEN, SPOILT = PARTS = ("none", "seen", "spoilt")
NOISE_OF_PARTS, MISSING, WRONG, WILD = 0.15, 1 / 3, 0.3, 0.1
FINALISTS, PLAUSIBLE = 4, 2.0
ASKED_AGAIN = 100  # how often FLAML is asked for a configuration that is new


@dataclass(frozen=True)
class Case:
    """A stack to search, what a trial tells of its parts, and the seed of all chance."""

    family: str
    name: str
    seed: int
    parts: str = NONE

    @property
    def stack(self) -> Stack:
        if self.family == "catalogue":
            return catalogue.stack(self.name, self.seed)
        return stack_of(self.family, self.name)

    @property
    def presets(self) -> list[Settings]:
        space = self.stack.space
        return catalogue.presets(space) if self.family == "catalogue" else [*self.stack.presets]

    @property
    def best(self) -> float:
        return catalogue.best(self.stack) if self.family == "catalogue" else best(self.stack)[0]

    @property
    def at(self) -> tuple[int, ...]:
        """The numbers of trials after which the choice is looked at."""
        more = len(self.presets) if self.family == "catalogue" else 0
        return tuple(more + count for count in AT[self.family])


@dataclass(frozen=True)
class Run:
    """One study: at each look the regret of the choice, of the choice with pairs and of the best tried;
    the regret of the best preset, the part of trials that failed, and seconds per suggestion."""

    regrets: tuple[float, ...]
    paired: tuple[float, ...]
    tried: tuple[float, ...]
    preset: float
    failed: float
    seconds: float


@cache
def stack_of(family: str, name: str) -> Stack:
    if family == "web":
        return web_stack(name)
    if family == "random":
        return random_stack(int(name))
    variant = VARIANTS[name]
    return Stack(
        name, variant.space, lambda s: variant.true_peak(s) or None, frozenset(),
        partial(advise, variant), partial(_stations, variant),
    )  # fmt: skip


def advise(variant: Variant, settings: Settings, peak: float) -> tuple[str, ...]:
    """The moves that the bottleneck of the modelled stack suggests."""
    made = chain(variant.topology, {**variant.space.baseline, **settings})
    return recommended_moves(asdict(bottleneck(variant.topology, made, peak, variant.slo)))


def _stations(variant: Variant, settings: Settings) -> dict[str, tuple[float, tuple[str, ...]]]:
    made = chain(variant.topology, {**variant.space.baseline, **settings})
    tiers = [station.tier for station in made.stations]
    return {
        f"{tier}.cpu": (log(station.rate), tuple(tiers[i : i + 2]))
        for i, (tier, station) in enumerate(zip(tiers, made.stations, strict=True))
    }


@dataclass
class Probes:
    """What each trial tells beside its peak, as notes of an outcome."""

    case: Case
    rng: np.random.Generator = field(init=False)
    bias: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng((self.case.seed, 13))

    def notes(self, settings: Settings, peak: float) -> dict[str, str]:
        if self.case.parts == NONE:
            return {}
        return {
            MOVES: " ".join(self._moves(settings, peak)),
            CAPACITIES: json.dumps(dict(self._capacities(settings))),
        }

    def _moves(self, settings: Settings, peak: float) -> tuple[str, ...]:
        moves = self.case.stack.advise(settings, peak)
        if self.case.parts == SEEN or self.rng.random() >= WRONG:
            return moves
        numbers = [d.name for d in self.case.stack.space.tunable if not d.choices]
        return (f"{self.rng.choice(numbers)}{self.rng.choice(['+', '-'])}",)

    def _capacities(
        self, settings: Settings
    ) -> Iterator[tuple[str, tuple[float, float, tuple[str, ...]]]]:
        spoilt = self.case.parts == SPOILT
        for part, (true, tiers) in self.case.stack.parts(settings).items():
            bias = self.bias.setdefault(part, self.rng.normal(0, 0.15) if spoilt else 0.0)
            missing, wild = self.rng.random() < MISSING, self.rng.random() < WILD
            value = true + bias + self.rng.normal(0, NOISE_OF_PARTS)
            if spoilt:
                value += self.rng.uniform(-1, 1) if wild else 0.0
            if not (spoilt and missing):
                yield part, (value, NOISE_OF_PARTS, tiers)


Suggest = Callable[[Sequence[Settings], Sequence[float | None]], Settings]


def searched(kind: str, case: Case) -> Run:
    """One study on one stack."""
    stack, space, known = case.stack, case.stack.space, case.presets
    rng, probes = np.random.default_rng((case.seed, 3)), Probes(case)
    other = OTHERS[kind](case) if kind in OTHERS else None
    sampler = "random" if other else kind
    storage = optuna.storages.InMemoryStorage()
    searcher = Searcher(storage, "s", space, sampler, case.seed, max(case.at))
    tried: list[Settings] = []
    peaks: list[float | None] = []
    choices: list[Choice] = []
    lowest, spent = [], 0.0
    while len(tried) < max(case.at):
        asked, settings = None, known[len(tried)] if len(tried) < len(known) else None
        if settings is None:
            began = time.process_time()
            if other:
                settings = other(tried, peaks)
            else:
                suggestion = searcher.ask()
                asked, settings = suggestion.number, {**space.baseline, **suggestion.values}
            spent += time.process_time() - began
        peak = stack.measure(settings, rng)
        phase = "recommended" if len(tried) < len(known) else "search"
        told = probes.notes(settings, peak) if peak is not None else {}
        searcher.record(
            asked, settings, Outcome(peak, {"trial": len(tried), "phase": phase, **told})
        )
        tried.append(settings)
        peaks.append(peak)
        if len(tried) in case.at:
            choices.append(_chosen(case, searcher.posterior(), tried))
            lowest.append(min(_regret(case, settings) for settings in tried))
    late = [peak is None for peak in peaks[FREE_FAILURES:]]
    preset = min(_regret(case, settings) for settings in known)
    regrets, paired = zip(*(map(partial(_regret, case), each) for each in choices), strict=True)
    return Run(
        regrets, paired, tuple(lowest), preset, sum(late) / len(late),
        spent / (len(tried) - len(known)),
    )  # fmt: skip


def _regret(case: Case, settings: Settings) -> float:
    """By how much these settings truly fall short of the best there is, in percent."""
    return 100 * (1 - (case.stack.peak(settings) or 0.0) / case.best)


Choice = tuple[Settings, Settings]
"""What is chosen after the leaders were measured again, and after the first two were in pairs, too."""


def _chosen(case: Case, posterior: PosteriorPeaks, tried: Sequence[Settings]) -> Choice:
    """Choose as a study does: measure leaders and best preset once more, keep the preset in doubt."""
    peaks = {number: peak for number, peak in posterior.peaks.items() if number > 0}
    if not peaks:
        return tried[0], tried[0]
    ranked = sorted(peaks, key=lambda number: -peaks[number].log_mean)
    leads = {number: peaks[ranked[0]].ratio(peaks[number]) for number in ranked}
    plausible = [n for n in ranked if leads[n].log_mean < PLAUSIBLE * leads[n].sd or n == ranked[0]]
    presets = range(1, len(case.presets))
    advised = next((n for n in plausible if n in presets), None)
    finalists = [n for n in ranked if n in plausible or n in ranked[:2]][:FINALISTS]
    if advised is not None and advised not in finalists:
        finalists[-1] = advised
    rng = np.random.default_rng((case.seed, 5, len(tried)))
    again: dict[int, list[Estimate]] = {number: [] for number in finalists}

    def measure(number: int) -> None:
        peak = case.stack.measure(tried[number], rng)
        again[number] += [Estimate.of(peak, posterior.reading_noise)] if peak else []

    for number in finalists:
        measure(number)
    first = winner(peaks, again, presets) or 0
    pair = rivals(pooled(peaks, again), presets) or ()
    for _ in range(RUNNER_UP_PAIRS if pair else 0):
        estimates = pooled(peaks, again)
        if not undecided(*(estimates[number] for number in pair)):
            break
        for number in pair:
            measure(number)
    return tried[first], tried[winner(peaks, again, presets) or 0]


# -- what an engineer does, and others ---------------------------------------------------------


def ofat(case: Case) -> Suggest:
    """One factor at a time from the best so far: half the range up or down, or another choice."""
    rng = np.random.default_rng((case.seed, 7))
    space = case.stack.space
    queue: list[tuple[str, Value]] = []

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        leader = tried[max(range(len(tried)), key=lambda i: peaks[i] or 0.0)]
        while True:
            if not queue:
                order = rng.permutation(len(space.tunable))
                for d in (space.tunable[i] for i in order):
                    values = [
                        v for v in _neighbours(d, leader[d.name], 0.25) if v != leader[d.name]
                    ]
                    queue.extend((d.name, value) for value in values)
            name, value = queue.pop(0)
            if name in space.active(leader) and leader[name] != value:
                return {**leader, name: value}

    return suggest


def near(case: Case) -> Suggest:
    """The best so far, with one to four parameters moved anywhere in their ranges."""
    rng = np.random.default_rng((case.seed, 8))
    space = case.stack.space

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        leader = tried[max(range(len(tried)), key=lambda i: peaks[i] or 0.0)]
        active = sorted(space.active(leader) & {d.name for d in space.tunable})
        names = rng.choice(active, int(rng.integers(1, 5)), replace=False)
        drawn = _drawn(replace(space, dimensions=space.tunable), rng)
        return {**leader, **{name: drawn[name] for name in names}}

    return suggest


def flaml(case: Case) -> Suggest:
    """FLAML's CFO from the best preset: local search with random directions and restarts."""
    from flaml import CFO, tune  # type: ignore[import-not-found]

    space = case.stack.space
    domains = {
        d.name: tune.choice(list(d.choices)) if d.choices
        else (tune.lograndint if d.log and d.bounds[0] > 0 else tune.randint)(
            int(d.bounds[0]), int(d.bounds[1]) + 1
        ) if d.integer
        else tune.uniform(*map(float, d.bounds))
        for d in space.tunable
    }  # fmt: skip
    cfo: Any = None
    names = count()
    waiting: tuple[str, dict[str, Any]] | None = None

    def complete(peak: float) -> None:
        if waiting:
            name, config = waiting
            cfo.on_trial_complete(
                name, {"loss": -peak, **{f"config/{key}": value for key, value in config.items()}}
            )

    def suggested() -> tuple[str, dict[str, Any]] | None:
        """CFO returns none where it would repeat itself; FLAML's own loop asks again, too."""
        for name in map(str, islice(names, ASKED_AGAIN)):
            if config := cfo.suggest(name):
                return name, config
        return None

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        nonlocal cfo, waiting
        leader = tried[max(range(len(tried)), key=lambda i: peaks[i] or 0.0)]
        if cfo is None:
            start = {name: leader[name] for name in domains}
            cfo = CFO(metric="loss", mode="min", space=domains, low_cost_partial_config={},
                      points_to_evaluate=[start], seed=case.seed)  # fmt: skip
            waiting = suggested()
            complete(max(peak or 0.0 for peak in peaks))
        else:
            complete(peaks[-1] or 0.0)
        waiting = suggested()
        values = waiting[1] if waiting else {}
        clipped = {d.name: d.clip(values[d.name]) for d in space.tunable if d.name in values}
        return {**(space.baseline if clipped else leader), **clipped}

    return suggest


OTHERS: dict[str, Callable[[Case], Suggest]] = {"ofat": ofat, "near": near, "flaml": flaml}


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="Regret against trials.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first of them")
    parser.add_argument("--samplers", default=",".join(("auto", *SAMPLERS, "ofat", "near")))
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--stacks", help="of the families, by their names")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--jobs", type=int, default=None, help="processes to share it")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    print(
        f"{'sampler':9} {'stacks':10} {'parts':7} {'preset':>7}  regret: mean (median/p90) at each look"
    )
    with ProcessPoolExecutor(options.jobs) as pool:
        chosen = product(
            options.samplers.split(","), options.families.split(","), options.parts.split(",")
        )
        for kind, family, parts in chosen:
            names = options.stacks.split(",") if options.stacks else FAMILIES[family]
            cases = [Case(family, name, seed, parts) for name in names for seed in seeds]
            jobs = [pool.submit(searched, kind, case) for case in cases]
            _line(kind, family, parts, [job.result() for job in jobs])


def _line(kind: str, family: str, parts: str, runs: Sequence[Run]) -> None:
    regrets, preset = np.array([run.regrets for run in runs]), np.array([r.preset for r in runs])
    cells = " ".join(
        f"@{at} {values.mean():5.1f} ({np.median(values):4.1f}/{np.quantile(values, 0.9):4.1f})"
        for at, values in zip(AT[family], regrets.T, strict=True)
    )
    tried = "/".join(f"{mean:.1f}" for mean in np.mean([run.tried for run in runs], axis=0))
    paired = "/".join(f"{mean:.1f}" for mean in np.mean([run.paired for run in runs], axis=0))
    gained = 100 * np.median((100 - regrets[:, -1]) / np.maximum(100 - preset, 1.0) - 1)
    worse = (regrets[:, -1] > preset + 1).mean()
    failed, seconds = (np.mean([getattr(run, n) for run in runs]) for n in ("failed", "seconds"))
    print(
        f"{kind:9} {family:10} {parts:7} {preset.mean():7.1f}  {cells}  with pairs {paired}  "
        f"tried {tried}  "
        f"over preset {gained:+5.1f} % worse {worse:3.0%} failed {failed:3.0%} "
        f"{seconds:.3f} s a suggestion, {len(runs)} studies",
        flush=True,
    )


if __name__ == "__main__":
    with warnings.catch_warnings():
        main()
