"""The regret of samplers after a number of trials, on stacks with a known optimum.

    python -m bench search [--seeds 20] [--samplers auto,tpe,…] [--families web,…] [--parts seen,…]
                           [--at 15,30]

Regret is the distance between the configuration that a study would choose and the optimum, in percent:
mean, median and 90th percentile over stacks and seeds. All samplers have the same number of trials and
the same final choice: a model of all trials selects leaders, which are measured once more. The best
preset is chosen unless another configuration is probably better. For ``with pairs``, the two best
configurations are then measured alternately until one of them is clearly better, as in a study before its
proof. Presets are tried first and count as trials, except on `catalogue`, where only suggestions count.
``tried`` is the mean regret of the best configuration that was tried. The rest of the regret is due to
the choice. ``over preset`` is the median gain over the best preset. ``worse`` is the share of studies
whose choice is worse than the best preset by more than a point.

The families `web` (formulas), `random` (random structure) and `model` (the simulated chain) have 16 to 19
parameters. The family `catalogue` (`bench.catalogue`) has the spaces of shipped targets, with 49 and 125
parameters. ``--parts`` selects what a trial reveals about the components of a stack. `none` is nothing,
as with a benchmark command. `seen` are the capacities with 15 % noise. With `spoilt`, a third of the
capacities are missing, a tenth are completely wrong, each component has an additional error, and 30 % of
the diagnoses are wrong.

In the family `presets-wrong` (`bench.queueing`), the best preset is 35 to 70 % below the optimum. In
`misclassified`, the three most important parameters are also classed as unimportant. The family
`entangled` (`bench.entangled`) has joint effects across tiers, cliffs, and optima that depend on the
load. In these families, presets count as trials. ``half`` is the median number of trials after which half
of the gap between the best preset and the optimum is closed. ``80 %`` is the share of studies that close
80 % of the gap.

The sampler `engineer` changes settings that the diagnosis points to, in steps of a quarter of a range,
and then changes one parameter at a time. `ofat` always changes one parameter at a time. `near` changes
one to four random parameters. `tpe-own` is TPE, but chooses the configuration with the best measurement.
`flaml` requires FLAML. Each row except the first ends with the mean difference to the regrets of the
first row, paired by study, and half the width of a 90 % interval. The samplers were developed with seeds
below 1000, so the benchmark uses other seeds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from math import inf, log, sqrt

import numpy as np
import optuna

from autotune.diagnose.diagnosis import list_recommended_changes
from autotune.estimate import Estimate
from autotune.optimize.gp.surrogate import CAPACITIES_KEY, CHANGES_KEY
from autotune.optimize.ranking import (
    PosteriorPeaks,
    find_rivals,
    find_winner,
    is_undecided,
    pool_peaks,
)
from autotune.optimize.samplers import SAMPLERS
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Settings
from autotune.simulate.chain import build_chain, find_bottleneck
from autotune.study.alternation import MAX_RUNNER_UP_PAIRS
from bench import catalogue, entangled, queueing
from bench.by_hand import OTHERS
from bench.stacks import Stack, best, random_stack, web_stack
from bench.variants import VARIANTS, Variant

SEEDS = 20
FIRST_SEED = 1000
FREE_FAILURES = 15
HARDWARE = tuple(f"{target}/{kind}" for target in ("local", "lab") for kind in catalogue.HARDWARE)
PRESETS_WRONG, MISCLASSIFIED, ENTANGLED = "presets-wrong", "misclassified", "entangled"
FAMILIES = {
    "web": ("thin-lb", "large", "cached", "wide"),
    "random": ("5", "6", "7", "9"),
    "model": ("wide", "thin-lb", "slow-store", "poor-cache"),
    "catalogue": HARDWARE,
    PRESETS_WRONG: queueing.KINDS,
    MISCLASSIFIED: tuple(f"{kind}/wrong" for kind in queueing.KINDS),
    ENTANGLED: entangled.KINDS,
}
WITH_GAP = (PRESETS_WRONG, MISCLASSIFIED, ENTANGLED)
AT = dict.fromkeys(FAMILIES, (15, 30, 60))
AT |= {"catalogue": (12, 20, 30), **dict.fromkeys(WITH_GAP, (10, 15, 20, 30))}
OWN_CHOICE = "-own"  # suffix of samplers that choose the configuration with the best measurement
CLOSED = (0.5, 0.8)  # shares of the gap between best preset and optimum for ``half`` and ``80 %``
NONE, SEEN, SPOILT = PARTS = ("none", "seen", "spoilt")
NOISE_OF_PARTS, MISSING, WRONG, WILD = 0.15, 1 / 3, 0.3, 0.1
FINALISTS, PLAUSIBLE = 4, 2.0


@dataclass(frozen=True)
class Case:
    """A stack to search, what a trial reveals about its components, and the seed of random numbers."""

    family: str
    name: str
    seed: int
    parts: str = NONE

    @property
    def stack(self) -> Stack:
        if self.family == "catalogue":
            return catalogue.stack(self.name, self.seed)
        if self.family in (PRESETS_WRONG, MISCLASSIFIED):
            return queueing.stack(self.name, self.seed)
        if self.family == ENTANGLED:
            return entangled.stack(self.name, self.seed)
        return stack_of(self.family, self.name)

    @property
    def presets(self) -> list[Settings]:
        space = self.stack.space
        real = self.family == "catalogue" or self.family in WITH_GAP
        return catalogue.presets(space) if real else [*self.stack.presets]

    @property
    def best(self) -> float:
        if self.family == "catalogue":
            return catalogue.best(self.stack)
        if self.family == ENTANGLED:
            return entangled.best(self.stack, (self.name, self.seed))
        if self.family == MISCLASSIFIED:
            return queueing.best(queueing.stack(self.name.partition("/")[0], self.seed))
        return queueing.best(self.stack) if self.family == PRESETS_WRONG else best(self.stack)[0]

    @property
    def at(self) -> tuple[int, ...]:
        """Return the numbers of trials after which the regret is computed."""
        more = len(self.presets) if self.family == "catalogue" else 0
        return tuple(more + count for count in AT[self.family])


@dataclass(frozen=True)
class Run:
    """The result of one study.

    Regrets are in percent and computed after the trials ``Case.at``: ``regrets`` for the choice,
    ``paired`` for the choice with pairs, and ``tried`` for the best configuration that was tried.
    ``preset`` is the regret of the best preset, ``failed`` the share of failed trials, and ``seconds``
    the time per suggestion. ``closed`` contains the numbers of trials after which the shares ``CLOSED``
    of the gap were closed.
    """

    regrets: tuple[float, ...]
    paired: tuple[float, ...]
    tried: tuple[float, ...]
    preset: float
    failed: float
    seconds: float
    closed: tuple[float, ...] = ()


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
    """Return the changes that a diagnosis of the simulated stack recommends."""
    made = build_chain(variant.topology, {**variant.space.baseline, **settings})
    return list_recommended_changes(find_bottleneck(variant.topology, made, peak, variant.slo))


def _stations(variant: Variant, settings: Settings) -> dict[str, tuple[float, tuple[str, ...]]]:
    made = build_chain(variant.topology, {**variant.space.baseline, **settings})
    tiers = [station.tier for station in made.stations]
    return {
        f"{tier}.cpu": (log(station.max_rate), tuple(tiers[i : i + 2]))
        for i, (tier, station) in enumerate(zip(tiers, made.stations, strict=True))
    }


@dataclass
class Probes:
    """Notes that a trial has in addition to its peak: capacities of components, and a diagnosis."""

    case: Case
    rng: np.random.Generator = field(init=False)
    bias: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng((self.case.seed, 13))

    def notes(self, settings: Settings, peak: float) -> dict[str, str]:
        if self.case.parts == NONE:
            return {}
        return {
            CHANGES_KEY: " ".join(self._moves(settings, peak)),
            CAPACITIES_KEY: json.dumps(dict(self._capacities(settings))),
        }

    def _moves(self, settings: Settings, peak: float) -> tuple[str, ...]:
        moves = self.case.stack.advise(settings, peak)
        if self.case.parts == SEEN or self.rng.random() >= WRONG:
            return moves
        numbers = [d.name for d in self.case.stack.space.tunable_dimensions if not d.choices]
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


def searched(kind: str, case: Case) -> Run:
    """Run the study ``case`` with the sampler ``kind``."""
    stack, space, known = case.stack, case.stack.space, case.presets
    rng, probes = np.random.default_rng((case.seed, 3)), Probes(case)
    other = OTHERS[kind](stack, case.seed) if kind in OTHERS else None
    sampler = "random" if other else kind.removesuffix(OWN_CHOICE)
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
                suggestion = searcher.suggest()
                asked, settings = suggestion.number, {**space.baseline, **suggestion.values}
            spent += time.process_time() - began
        peak = stack.measure(settings, rng)
        phase = "recommended" if len(tried) < len(known) else "search"
        told = probes.notes(settings, peak) if peak is not None else {}
        searcher.record_outcome(
            asked, settings, Outcome(peak, {"trial": len(tried), "phase": phase, **told})
        )
        tried.append(settings)
        peaks.append(peak)
        if len(tried) in case.at:
            own = tried[max(range(len(tried)), key=lambda i: peaks[i] or 0.0)]
            choices.append((own, own) if kind.endswith(OWN_CHOICE)
                           else _chosen(case, searcher.compute_posterior_peaks(), tried))  # fmt: skip
            lowest.append(min(_regret(case, settings) for settings in tried))
    late = [peak is None for peak in peaks[FREE_FAILURES:]]
    preset = min(_regret(case, settings) for settings in known)
    regrets, paired = zip(*(map(partial(_regret, case), each) for each in choices), strict=True)
    return Run(
        regrets, paired, tuple(lowest), preset, sum(late) / len(late),
        spent / (len(tried) - len(known)), _closed(case, tried, preset),
    )  # fmt: skip


def _closed(case: Case, tried: Sequence[Settings], preset: float) -> tuple[float, ...]:
    """Return the numbers of trials after which each share of the gap was closed."""
    if case.family not in WITH_GAP:
        return ()
    best = np.minimum.accumulate([_regret(case, settings) for settings in tried])
    reached = [np.flatnonzero(best <= (1 - share) * preset) for share in CLOSED]
    return tuple(float(places[0]) + 1 if len(places) else inf for places in reached)


def _regret(case: Case, settings: Settings) -> float:
    """Return the true distance between the peak of ``settings`` and the optimum, in percent."""
    return 100 * (1 - (case.stack.peak(settings) or 0.0) / case.best)


Choice = tuple[Settings, Settings]
"""The choices after the leaders were measured again, and after the first two were also measured in
pairs.
"""


def _chosen(case: Case, posterior: PosteriorPeaks, tried: Sequence[Settings]) -> Choice:
    """Choose a configuration as in a study.

    The leaders and the best preset are measured once more. The preset is chosen in case of doubt.
    """
    peaks = {number: peak for number, peak in posterior.peaks.items() if number > 0}
    if not peaks:
        return tried[0], tried[0]
    ranked = sorted(peaks, key=lambda number: -peaks[number].log_mean)
    leads = {number: peaks[ranked[0]].ratio_to(peaks[number]) for number in ranked}
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
        again[number] += [Estimate.from_value(peak, posterior.reading_noise)] if peak else []

    for number in finalists:
        measure(number)
    first = find_winner(peaks, again, presets) or 0
    pair = find_rivals(pool_peaks(peaks, again), presets) or ()
    for _ in range(MAX_RUNNER_UP_PAIRS if pair else 0):
        estimates = pool_peaks(peaks, again)
        if not is_undecided(*(estimates[number] for number in pair)):
            break
        for number in pair:
            measure(number)
    return tried[first], tried[find_winner(peaks, again, presets) or 0]


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="Regret against trials.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first of them")
    parser.add_argument("--samplers", default=",".join(("auto", *SAMPLERS, "ofat", "near")))
    parser.add_argument("--families", default=",".join(FAMILIES), help=", ".join(FAMILIES))
    parser.add_argument("--stacks", help="of the families, by their names")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--at", help="trials after which the choice is looked at: fewer cost less")
    parser.add_argument("--jobs", type=int, default=None, help="processes to share it")
    options = parser.parse_args(arguments)
    if options.at:
        AT.update(dict.fromkeys(FAMILIES, tuple(map(int, options.at.split(",")))))
    seeds = range(options.first, options.first + options.seeds)
    print(
        f"{'sampler':9} {'stacks':10} {'parts':7} {'preset':>7}  regret: mean (median/p90) at each look"
    )
    with ProcessPoolExecutor(options.jobs) as pool:
        for family, parts in product(options.families.split(","), options.parts.split(",")):
            names = options.stacks.split(",") if options.stacks else FAMILIES[family]
            cases = [Case(family, name, seed, parts) for name in names for seed in seeds]
            first: Sequence[Run] = ()
            for kind in options.samplers.split(","):
                jobs = [pool.submit(searched, kind, case) for case in cases]
                runs = [job.result() for job in jobs]
                _line(kind, family, parts, runs, first)
                first = first or runs


def _line(
    kind: str, family: str, parts: str, runs: Sequence[Run], first: Sequence[Run] = ()
) -> None:
    """Print a row of the table. ``first`` contains the results of the first row for the same cases."""
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
        f"{kind:9} {family:13} {parts:7} {preset.mean():7.1f}  {cells}  with pairs {paired}  "
        f"tried {tried}  {_gap(runs)}"
        f"over preset {gained:+5.1f} % worse {worse:3.0%} failed {failed:3.0%} "
        f"{seconds:.3f} s a suggestion, {len(runs)} studies{_difference(regrets, first)}",
        flush=True,
    )


def _gap(runs: Sequence[Run]) -> str:
    """Return the columns ``half`` and ``80 %`` as text."""
    if not runs[0].closed:
        return ""
    half, most = np.array([run.closed for run in runs]).T
    within = "/".join(f"{(most <= at).mean():.0%}" for at in AT[PRESETS_WRONG])
    return f"half {np.median(half):g}  80 % {within} (median {np.median(most):g})  "


def _difference(regrets: np.ndarray, first: Sequence[Run]) -> str:
    if not first:
        return ""
    more = regrets - np.array([run.regrets for run in first])
    widths = 1.645 * more.std(axis=0, ddof=1) / sqrt(len(more)) if len(more) > 1 else more[0] * inf
    cells = (
        f"{mean:+.1f} ± {width:.1f}" for mean, width in zip(more.mean(axis=0), widths, strict=True)
    )
    return f"; against the first {', '.join(cells)}"


if __name__ == "__main__":
    with warnings.catch_warnings():
        main()
