"""The search spaces of the shipped targets `local` and `lab`, with every parameter.

Parameters in the simulated chain have the effect that the model computes. All other parameters get a
random effect, which depends only on the seed. About half of them have no effect. A quarter have a weak
optimum near the default, and a quarter do harm far from the default. A harmful value reduces the
capacity of the parameter's tier.

Effects do not depend on the catalogue's classes, so a parameter that is classed as safe may do harm, and
a parameter that is classed as decisive may have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import exp, log
from pathlib import Path

import numpy as np

from autotune.diagnose.diagnosis import list_recommended_changes
from autotune.environments.simulated import DEFAULT_FACTS
from autotune.services.base import Settings
from autotune.simulate.chain import StationChain, build_chain, find_bottleneck
from autotune.simulate.topology import GIB, ChainTopology, build_topology, is_modelled
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.repair import InfeasibleRule
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import TargetFile, read_target
from autotune.target.slo import Slo
from bench.stacks import Stack, _climb, _unit

TARGETS = Path(__file__).parents[1] / "targets"
INERT, MILD = 0.5, 0.75  # cumulative probabilities of no effect and of a weak effect
# CPUs of the hosts of load balancer, web, cache and store, and memory of each host in bytes.
HARDWARE: Mapping[str, tuple[tuple[float, float, float, float], int]] = {
    "even": ((2, 4, 2, 2), 8 * GIB),
    "thin-lb": ((0.5, 8, 2, 2), 8 * GIB),
    "wide-web": ((4, 8, 1, 2), 4 * GIB),
    "slow-cache": ((4, 8, 0.3, 1), 8 * GIB),
}
TIERS = ("lb", "web", "cache", "store")


@dataclass(frozen=True)
class Problem:
    """A target's search space on the given hardware, with random effects."""

    file: TargetFile
    space: SearchSpace
    topology: ChainTopology
    effects: Mapping[str, Callable[[float], float]]
    slo: Slo

    def chain(self, settings: Settings) -> StationChain:
        """Return the simulated chain, in which random effects reduce the rates of stations."""
        modelled, active = (
            build_chain(self.topology, settings),
            self.space.active_parameters(settings),
        )
        losses = dict.fromkeys(TIERS, 0.0)
        for dimension in self.space.tunable_dimensions:
            effect = self.effects.get(dimension.name)
            if effect is not None and dimension.name in active:
                tier = dimension.name.partition(".")[0]
                losses[tier] += effect(_unit(dimension, settings[dimension.name]))
        stations = [
            replace(station, max_rate=station.max_rate * exp(-losses[tier]))
            for tier, station in zip(TIERS, modelled.stations, strict=True)
        ]
        return replace(modelled, stations=tuple(stations))

    def repaired(self, settings: Settings) -> Settings | None:
        try:
            return self.space.build_candidate(settings).settings
        except InfeasibleRule:
            return None

    def peak(self, settings: Settings) -> float | None:
        kept = self.repaired(settings)
        return (self.chain(kept).compute_peak(self.slo) or None) if kept is not None else None


def _effect(rng: np.random.Generator, dimension: Dimension) -> Callable[[float], float] | None:
    """Return a random function from a parameter's position in its range (0 to 1) to a loss of log
    rate, or ``None`` for a parameter without effect.
    """
    kind, weight, shift = rng.random(), rng.uniform(), rng.normal(0, 0.1)
    now = _unit(dimension, dimension.baseline)
    if kind < INERT:
        return None
    if dimension.choices:
        losses = rng.uniform(0, 0.03 if kind < MILD else 0.3, len(dimension.choices))
        losses[dimension.choices.index(dimension.baseline)] *= 0.3
        return lambda u: float(losses[round(u * (len(losses) - 1))])
    if kind < MILD:
        target = float(np.clip(now + 2 * shift, 0, 1))
        return lambda u: (0.01 + 0.05 * weight) * abs(u - target)
    return lambda u: (0.1 + 0.4 * weight) * max(0.0, abs(u - now) - 0.15)


@cache
def problem(name: str, seed: int) -> Problem:
    """Return the problem called ``name``: `target/hardware`, such as `lab/thin-lb`."""
    target, _, hardware = name.partition("/")
    cpus, memory = HARDWARE[hardware]
    file = read_target(TARGETS / f"{target}.yaml")
    facts: dict[str, HostFacts] = {}
    for tier, count in zip(TIERS, cpus, strict=True):
        for host in file.target.tiers[tier].hosts:
            facts[host] = replace(DEFAULT_FACTS, cpus=count, memory=memory)
    facts = {host: facts.get(host, DEFAULT_FACTS) for host in file.target.hosts}
    if len(set(facts)) < len(TIERS):  # all tiers share one host
        facts = {host: replace(DEFAULT_FACTS, cpus=max(cpus), memory=memory) for host in facts}
    space, model = build_space(file, facts), build_topology(file, facts)
    hosts = {t: replace(getattr(model, t), cpus=c) for t, c in zip(TIERS, cpus, strict=True)}
    model = replace(model, **hosts)
    rng = np.random.default_rng((seed, 11))
    drawn = {
        d.name: _effect(rng, d) for d in space.tunable_dimensions if not is_modelled(model, d.name)
    }
    effects = {name: effect for name, effect in drawn.items() if effect is not None}
    return Problem(file, space, model, effects, file.target.slo.objective)


def parts(at: Problem, settings: Settings) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Return the log capacity of each station, and the tiers on which the capacity depends.

    A station waits for responses from the next tier, so it depends on its own tier and the next tier.
    """
    kept = at.repaired(settings)
    if kept is None:
        return {}
    return {
        f"{tier}.cpu": (log(station.max_rate), TIERS[index : index + 2])
        for index, (tier, station) in enumerate(zip(TIERS, at.chain(kept).stations, strict=True))
    }


@cache
def stack(name: str, seed: int) -> Stack:
    """Return the stack called ``name``: `target/hardware`."""
    at = problem(name, seed)

    def advise(settings: Settings, peak: float) -> tuple[str, ...]:
        kept = at.repaired(settings) or at.space.baseline
        return list_recommended_changes(find_bottleneck(at.topology, at.chain(kept), peak, at.slo))

    active = frozenset(
        d.name for d in at.space.tunable_dimensions if is_modelled(at.topology, d.name)
    )
    return Stack(
        f"{name}-{seed}", at.space, at.peak, active | frozenset(at.effects), advise,
        partial(parts, at),
    )  # fmt: skip


def presets(space: SearchSpace) -> list[Settings]:
    """Return the baseline, and the presets from guides and publications for each deployment."""
    return [space.baseline, *(settings for _, settings in space.iterate_presets())]


@cache
def best(at: Stack) -> float:
    """Return the highest peak, found by hill climbing from the two best presets.

    Hill climbing suffices, because each effect has a single maximum.
    """
    ranked = sorted(presets(at.space), key=lambda settings: -(at.peak(settings) or 0.0))
    return max(_climb(at, settings)[0] for settings in ranked[:2])
