"""Regret over time of autotune's complete study, and of TPE with bisection or autotune's measurements.

    python -m bench spending [--seeds 20] [--minutes 30] [--jobs N]

All methods measure the simulated stacks of ``autotune.simulate`` with the same noise (5 %, and 3 % of the
readings disturbed). The time includes ramps, warm-ups and deployments. A deployment takes as long as in a
study of lab hosts. All methods warm up the stack after each deployment.

The method "ours" is ``autotune run`` without configuration files, including screening, drift references,
finalists and the proof. "TPE + ours" is a study with Optuna's TPE as the sampler. "TPE + bisection" uses
Optuna alone: each trial is a bisection with readings of 5 s, and the best trial is chosen. The bracket
spans a factor of 4 on either side of the best peak so far, or at first of the baseline's true peak.

"ours, all precise" measures every configuration as precisely as close rivals. The presets of ``io-wait``
stacks are wrong by large factors. For these stacks, the time until the choice is within 10 % of the
optimum is compared.

Regret is the distance between the choice at a given time and the optimum, in percent, as the median over
seeds. "ours" starts with the current and the recommended configurations, as does "TPE + bisection, told".
"ours, cold" starts without recommended configurations, and "TPE + bisection" with random ones.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from autotune.deploy.deploy_result import DeployFailed, DeployResult, Fleet
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.clock import StudyClock
from autotune.environments.load_session import LoadSession, build_search_limits
from autotune.environments.simulated import ModelMeter
from autotune.estimate import InstanceCapacity
from autotune.measure.reading import Reading
from autotune.measure.warm_up import run_warm_up
from autotune.optimize.base import build_distributions, strip_numpy_types
from autotune.optimize.searcher import Searcher
from autotune.services.base import Action, Settings
from autotune.simulate.chain import diagnose_search
from autotune.simulate.noise import NoiseModel
from autotune.simulate.stack import SimulatedStack
from autotune.space.space import SearchSpace
from autotune.study import journal, ranking, study_drift
from autotune.study.search_history import catch_up_search
from autotune.study.state_replay import apply_record
from autotune.study.study_loop import run_study_loop
from autotune.study.study_state import COUNTED_PHASES, State
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import TrialContext, read_history
from autotune.target.model import Budget
from bench.answering import stack_of
from bench.methods import bisection
from bench.stacks import DISTURBED, NOISE, Stack, best
from bench.variants import VARIANTS, Variant

STACKS = ("wide", "thin-lb", "slow-store", "poor-cache", "io-wait", "io-wait-short")
FIRST_SEED = 2000
TENTHS = 10
TRIALS = 300  # more trials than the time allows, so that only time is limited
MAX_RATE = 1e5  # requests/s
HALF = 0.5
CLOSE_REGRET = 10.0  # percent
# Seconds per measurement without load, for files, reloads and other work. A study of the shipped lab
# needed 453 s for 71 measurements.
DEPLOYING = 6.4
CACHE = "cache."  # parameters with this prefix need a restart


@dataclass(frozen=True)
class Course:
    """The regrets of a study at each tenth of its time, in percent, and the number of configurations.

    After ``reached_seconds``, the choice stays within 10 % of the optimum. If it does not, the value is
    the time of the study.
    """

    regrets: tuple[float, ...]
    tried: int
    reached_seconds: float = float("nan")


Chosen = list[tuple[float, Settings]]
"""Times in seconds, each with the settings that are chosen from then on, in order."""


class Silent:
    """A progress reporter that shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@dataclass
class Model(Fleet):
    """A simulated stack as a fleet and a meter. It refuses the settings that real software refuses."""

    stack: SimulatedStack
    variant: Variant
    in_place: Settings | None = None

    def deploy(self, settings: Settings) -> DeployResult:
        refused = self.stack.deploy(settings)
        self.stack.advance_clock(DEPLOYING)
        if refused is not None:
            raise DeployFailed(refused)
        before, self.in_place = self.in_place or {}, settings
        changed = any(before.get(n) != settings[n] for n in settings if n.startswith(CACHE))
        return DeployResult(
            {}, {f"{CACHE}mc1.memcached": Action.RESTART if changed else Action.NONE}
        )

    def restore(self) -> None:
        """Restore nothing, because the model changes no host."""

    def begin_measurement(self, *, is_deployed: bool) -> tuple[()]:
        return ()

    def end_warm_up(self, windows: int) -> None:
        """Discard nothing, because a model sends no responses."""

    def count_cache_lookups(self) -> tuple[int, int]:
        return self.stack.cache_hits, self.stack.cache_misses

    def probe_latency(self) -> float | None:
        return ModelMeter(self.stack).probe_latency()

    def take_reading(self, rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        return ModelMeter(self.stack).take_reading(rate, seconds, ramp_seconds=ramp_seconds)

    def find_bottleneck(
        self, settings: Settings, watched: Sequence[WatchedReading]
    ) -> Bottleneck | None:
        """Return the bottleneck that a diagnosis of a real stack would find."""
        settings = {**self.variant.space.baseline, **settings}
        readings = [one.reading for one in watched]
        return diagnose_search(self.variant.topology, settings, readings, self.variant.slo)

    def estimate_capacities(
        self, settings: Settings, watched: Sequence[WatchedReading]
    ) -> dict[str, InstanceCapacity]:
        return ModelMeter(self.stack).estimate_capacities(settings, watched)

    def wait_until_drained(self) -> None:
        """Return immediately, because the model has no backlog."""


def modelled(name: str, seed: int) -> Model:
    """Return the variant ``name`` of the simulated stack, with noise from ``seed``."""
    variant = VARIANTS[name]
    noise = NoiseModel(seed, NOISE, 0.0, DISTURBED)
    return Model(SimulatedStack(variant.topology, variant.slo, noise), variant)


def space_of(name: str, *, warm: bool) -> SearchSpace:
    """Return the search space of a variant, without recommended values unless ``warm`` is true."""
    space = VARIANTS[name].space
    bare = (replace(d, recommended=None) for d in space.dimensions)
    return space if warm else replace(space, dimensions=tuple(bare))


def ours(
    name: str,
    seed: int,
    seconds: float,
    *,
    warm: bool,
    sampler: str = "auto",
    precise: bool = False,
) -> Course:
    """Run a study with ``autotune.study.study_loop``, and compute its regrets from its journal."""
    model, space = modelled(name, seed), space_of(name, warm=warm)
    budget = Budget.model_construct(trials=TRIALS, time=seconds)
    limits = build_search_limits(MAX_RATE)
    if precise:
        limits = replace(limits, rough_sd=0.0, min_length_share=1.0)
    with tempfile.TemporaryDirectory(prefix="autotune-bench-") as place:
        with closing(StudyStore(Path(place))) as store:
            progress: Any = Silent()
            session = LoadSession(
                model,
                model,
                model.stack.slo,
                limits,
                read_history(store),
                StudyClock(lambda: model.stack.virtual_seconds),
            )
            searcher = _searcher(space, seed, sampler)
            run_study_loop(TrialContext(space, session, store, progress), searcher, budget)
            tried = len(store.state.list_finished_trials(*COUNTED_PHASES))
        records = list(journal.read_records(Path(place) / "events.jsonl"))
    picks = [_pick(state, space, seed) for state in _states(records, seconds)]
    reached = _reached_seconds(records, name, space, seed, seconds)
    return Course(tuple(_regret(name, pick) for pick in picks), tried, reached)


def _reached_seconds(
    records: Sequence[Any], name: str, space: SearchSpace, seed: int, seconds: float
) -> float:
    """Return the seconds after which the choice stays within 10 % of the optimum."""
    state, reached = State(), seconds
    for record in records:
        state = apply_record(state, record)
        finished = state.list_finished_trials(*COUNTED_PHASES)
        if record["event"] != "measured" or not finished or state.posterior is not None:
            continue
        regret = _regret(name, _pick(state, space, seed))
        if regret > CLOSE_REGRET:
            reached = seconds
        elif reached == seconds:
            reached = min(state.elapsed_seconds, seconds)
    return reached


def _searcher(space: SearchSpace, seed: int, sampler: str = "auto") -> Searcher:
    return Searcher(optuna.storages.InMemoryStorage(), "s", space, sampler, seed, TRIALS)


def _states(records: Any, seconds: float) -> list[State]:
    """Return the state of the study at each tenth of the time."""
    state, found = State(), list[State]()
    for record in records:
        later = apply_record(state, record)
        while len(found) < TENTHS and later.elapsed_seconds > seconds * (len(found) + 1) / TENTHS:
            found.append(state)
        state = later
    return [*found, *[state] * (TENTHS - len(found))]


def _pick(state: State, space: SearchSpace, seed: int) -> Settings:
    """Return the settings that a study would choose if it ended in this state.

    The choice depends on the finals if they have started, or else on the model. The best preset is
    chosen in case of doubt.
    """
    if state.posterior is None and study_drift.find_reference(state) is not None:
        searcher = _searcher(space, seed)
        catch_up_search(searcher, state)
        posterior = searcher.compute_posterior_peaks(study_drift.estimate_study_drift(state))
        state = replace(state, posterior=posterior)
    leader = ranking.find_best_trial(state) if state.posterior else None
    return space.baseline if leader is None else state.find_trial(leader).settings


def tpe(name: str, seed: int, seconds: float, *, warm: bool) -> Course:
    """Run Optuna's TPE with bisections. The peak of a configuration that fails is 0."""
    model, space = modelled(name, seed), space_of(name, warm=warm)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    if warm:
        searched = {d.name for d in space.tunable_dimensions}
        advised = [space.preset_settings("recommended", way) for way in space.deployments]
        for settings in (space.baseline, *advised):
            known = {n: v for n, v in settings.items() if n in searched}
            study.enqueue_trial(known, skip_if_exists=True)
    guess = VARIANTS[name].true_peak(space.baseline)
    chosen: Chosen = [(0.0, space.baseline)]
    leader = 0.0
    while model.stack.virtual_seconds < seconds:
        trial = study.ask(build_distributions(space.tunable_dimensions))
        settings = {**space.baseline, **strip_numpy_types(trial.params)}
        peak = _bisected(model, settings, max(leader, guess if not leader else 0.0))
        study.tell(trial, peak)
        if peak > leader:
            leader = peak
            chosen.append((model.stack.virtual_seconds, settings))
    return Course(tuple(_regret(name, pick) for pick in _at(chosen, seconds)), len(study.trials))


def _bisected(model: Model, settings: Settings, guess: float) -> float:
    def probe(rate: float, length: float) -> Reading:
        return model.stack.take_reading(rate, length)[0]

    try:
        deployed = model.deploy(settings)
    except DeployFailed:
        return 0.0
    # As in a study, the warm-up waits for a stable hit rate only if the cache was restarted.
    lookups = model.count_cache_lookups if deployed.restarted_instances else lambda: None
    run_warm_up(probe, lookups, guess, max_rate=MAX_RATE)
    return bisection(probe, model.stack.slo, guess)


def _at(chosen: Chosen, seconds: float) -> list[Settings]:
    """Return the settings that are chosen at each tenth of the time."""
    times = [seconds * (tenth + 1) / TENTHS for tenth in range(TENTHS)]
    return [[settings for since, settings in chosen if since <= at][-1] for at in times]


def _regret(name: str, settings: Settings) -> float:
    stack = _stack(name)
    return 100 * (1 - (stack.peak(settings) or 0.0) / best(stack)[0])


@cache
def _stack(name: str) -> Stack:
    """Return the stack of a variant. It is cached, so that its optimum is computed only once."""
    return stack_of("model", name)


OURS, OURS_COLD, TPE_OURS = "ours", "ours, cold", "TPE + ours"
PRECISE = "ours, all precise"
PLAIN, TOLD = "TPE + bisection", "TPE + bisection, told"
METHODS: Mapping[str, Callable[[str, int, float], Course]] = {
    OURS: partial(ours, warm=True),
    PRECISE: partial(ours, warm=True, precise=True),
    OURS_COLD: partial(ours, warm=False),
    TPE_OURS: partial(ours, warm=True, sampler="tpe"),
    PLAIN: partial(tpe, warm=False),
    TOLD: partial(tpe, warm=True),
}
RATIOS = ((OURS, PRECISE), (OURS, TPE_OURS), (OURS, PLAIN), (OURS, TOLD), (OURS_COLD, PLAIN))


def main(arguments: Sequence[str] = ()) -> None:
    """Print the regrets of all methods at each tenth of the time, and ratios of methods."""
    parser = argparse.ArgumentParser(description="Regret against load-time.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load, in virtual time")
    parser.add_argument("--stacks", default=",".join(STACKS), help="variants of the modelled stack")
    parser.add_argument("--methods", default=";".join(METHODS), help="divided by semicolons")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes to share it")
    options = parser.parse_args(arguments)
    names, methods = options.stacks.split(","), options.methods.split(";")
    seeds, seconds = range(FIRST_SEED, FIRST_SEED + options.seeds), 60.0 * options.minutes
    print(f"regret in % at each tenth of {options.minutes:g} minutes of load, "
          f"median of {options.seeds} seeds; then the number tried, and seconds to 10 %")  # fmt: skip
    every: dict[str, list[Course]] = {method: [] for method in methods}
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in names:
            jobs = {method: [pool.submit(METHODS[method], name, seed, seconds) for seed in seeds]
                    for method in methods}  # fmt: skip
            found = {method: [job.result() for job in each] for method, each in jobs.items()}
            for method, each in found.items():
                every[method] += each
            _table(name, found)
    _table("all", every)


def _table(name: str, courses: Mapping[str, Sequence[Course]]) -> None:
    medians = {
        method: np.median([course.regrets for course in each], axis=0)
        for method, each in courses.items()
    }
    for method, each in courses.items():
        cells = " ".join(f"{regret:6.1f}" for regret in medians[method])
        reached = np.median([course.reached_seconds for course in each])
        print(
            f"{name:13} {method:30} {cells}  {np.mean([c.tried for c in each]):5.1f} {reached:6.0f}"
        )
    for one, other in RATIOS:
        if one in medians and other in medians:
            ratios = medians[one] / np.maximum(medians[other], 1e-9)
            cells = " ".join(f"{ratio:6.2f}" for ratio in ratios)
            held = f"{(ratios <= HALF).sum()} of {TENTHS} within a half"
            print(f"{name:13} {one + ' / ' + other:30} {cells}  {held}", flush=True)
