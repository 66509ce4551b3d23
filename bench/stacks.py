"""Stacks for benchmarks of the search, which are formulas with a known optimum.

There are two families, so that the search is not tuned to one formula. A ``web_stack`` consists of a
load balancer, web servers of two kinds, a cache and a database on given hardware. A request needs all
tiers. Numbers of workers can be too low or too high. Configurations that need too much memory or too many
descriptors fail. A ``random_stack`` has the same properties, but a random structure, optimum and failing
region. Both families have parameters without effect, and parameters that are active only with one choice
of another parameter.

A measurement has 5 % noise. In 3 % of the measurements, a disturbance reduces the result to 0.45 to
0.8 of the true value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, log

import numpy as np

from autotune.services.base import Action, Parameter, Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.repair import InfeasibleRule
from autotune.space.space import SearchSpace

NOISE = 0.05
DISTURBED = 0.03


Parts = Mapping[str, tuple[float, tuple[str, ...]]]


@dataclass(frozen=True, eq=False)
class Stack:
    """A stack with a known optimum.

    ``peak`` returns the true peak of settings in requests/s, or ``None`` if the settings fail.
    """

    name: str
    space: SearchSpace
    peak: Callable[[Settings], float | None]
    active: frozenset[str]
    # Returns the changes that a diagnosis would recommend after measuring the given peak.
    advise: Callable[[Settings, float], tuple[str, ...]] = lambda *_: ()
    # Returns the true log capacity of each component that probes would measure, and the tiers on which
    # the capacity depends.
    parts: Callable[[Settings], Parts] = lambda _: {}

    def measure(self, settings: Settings, rng: np.random.Generator) -> float | None:
        """Return a noisy measurement of the peak, or ``None`` for settings that fail."""
        true = self.peak(settings)
        noise, disturbed = rng.normal(0, NOISE), rng.random() < DISTURBED
        share = rng.uniform(0.45, 0.8)
        return None if true is None else true * exp(noise) * (share if disturbed else 1.0)

    @property
    def presets(self) -> list[dict[str, Value]]:
        """Return the baseline, and the recommended settings of every deployment."""
        advised = [self.space.preset_settings("recommended", way) for way in self.space.deployments]
        return [self.space.baseline, *advised]


def number(
    name: str, low: float, high: float, baseline: float, recommended: float | None = None,
    *, log: bool = True, when: tuple[tuple[str, tuple[Value, ...]], ...] = (), whole: bool = True,
    restart: bool = False,
) -> Dimension:  # fmt: skip
    kind: Callable[[float], int | float] = int if whole else float
    return Dimension(
        name, _parameter(name, kind(baseline), restart=restart), kind(baseline), kind(low),
        kind(high), log, recommended=None if recommended is None else kind(recommended), conditions=when,
    )  # fmt: skip


def choice(
    name: str, choices: tuple[Value, ...], recommended: Value | None = None,
    *, when: tuple[tuple[str, tuple[Value, ...]], ...] = (), restart: bool = False,
) -> Dimension:  # fmt: skip
    parameter = _parameter(name, choices[0], restart=restart)
    return Dimension(
        name, parameter, choices[0], choices=choices, recommended=recommended, conditions=when
    )


def _parameter(name: str, stock: Value, *, restart: bool) -> Parameter:
    action = Action.RESTART if restart else Action.RELOAD
    return Parameter(name=name, stock=stock, action=action, meaning="-", source="-")


@dataclass(frozen=True)
class Hardware:
    """The hardware of a stack.

    This is the number of CPUs per tier, the memory of a web host in MB, the number of file descriptors of
    the load balancer, and the latency of a cache miss in seconds.
    """

    lb: float
    web: float
    db: float
    memory: float
    descriptors: float
    miss: float
    dataset: float


HARDWARE = {
    "small": Hardware(1, 2, 1, 2048, 8192, 0.004, 500),
    "wide": Hardware(2, 8, 2, 8192, 16384, 0.002, 1500),
    "thin-lb": Hardware(0.5, 8, 4, 16384, 4096, 0.003, 2000),
    "slow-db": Hardware(2, 4, 0.5, 4096, 32768, 0.015, 4000),
    "large": Hardware(4, 16, 4, 32768, 65536, 0.002, 8000),
    "old": Hardware(1, 1, 1, 1024, 2048, 0.008, 300),
    "cached": Hardware(2, 4, 1, 8192, 16384, 0.006, 1000),
    "dense": Hardware(2, 12, 1, 6144, 8192, 0.005, 3000),
}


def _saturating(value: float, half: float) -> float:
    return value / (value + half)


def _crowding(workers: float, cpus: float, cost: float) -> float:
    """Return the share of capacity that is left if more workers than CPUs compete for them."""
    return 1.0 / (1.0 + cost * max(0.0, log(workers / max(cpus, 0.5)) - 1.0) ** 2)


@cache
def web_stack(name: str) -> Stack:
    hw = HARDWARE[name]
    fpm, prefork = (("web.kind", ("nginx+fpm",)),), (("web.kind", ("apache",)),)
    dynamic = (*fpm, ("web.fpm.pm", ("dynamic",)))
    stock = min(150, (hw.memory - 300) / 32)
    space = SearchSpace(
        (
            choice("lb.kind", ("apache", "nginx", "haproxy"), "nginx", restart=True),
            number("lb.workers", 1, 32, 1, max(1, hw.lb)),
            number("lb.connections", 64, hw.descriptors, 512, 1024),
            number("lb.keepalive", 0, 512, 0, 32),
            choice("lb.sendfile", ("off", "on"), "on"),
            choice("web.kind", ("apache", "nginx+fpm"), "nginx+fpm", restart=True),
            number("web.fpm.children", 2, hw.memory / 16, 5, 8 * hw.web, when=fpm),
            choice("web.fpm.pm", ("dynamic", "static", "ondemand"), "static", when=fpm),
            number("web.fpm.spare", 1, 64, 2, 4, when=dynamic),
            number("web.prefork.workers", 5, hw.memory / 20, stock, 16 * hw.web, when=prefork),
            number("web.buffer", 1, 1024, 8, 16),
            number("cache.memory", 16, hw.memory, 64, hw.dataset / 2, restart=True),
            number("cache.threads", 1, 16, 4, 4, restart=True),
            number("cache.growth", 1.05, 2.0, 1.25, 1.25, log=False, whole=False, restart=True),
            number("db.connections", 5, 2000, 100, 200),
            choice("db.policy", ("noeviction", "lru", "lfu", "ttl"), "lru"),
            number("os.backlog", 128, 65536, 128, 4096),
            choice("os.timestamps", ("on", "off")),
        ),
        (),
        {},
    )  # fmt: skip

    def peak(s: Settings) -> float | None:
        return _web_peak(hw, s)

    def parts(s: Settings) -> Parts:
        return _parts(_web_tiers(hw, s), WEB_PARTS)

    dummies = {"lb.sendfile", "web.buffer", "db.policy", "os.timestamps"}
    active = frozenset(d.name for d in space.dimensions) - dummies
    return Stack(name, space, peak, active, parts=parts)


def _parts(rates: np.ndarray | None, of: Mapping[str, tuple[str, ...]]) -> Parts:
    """Return the log capacity of each component and its tiers, or nothing for settings that fail."""
    if rates is None:
        return {}
    return {p: (log(r), tiers) for (p, tiers), r in zip(of.items(), rates, strict=True)}


WEB_PARTS: Mapping[str, tuple[str, ...]] = {
    "lb.cpu": ("lb",), "web.cpu": ("web",), "web.workers": ("web", "cache"), "cache.cpu": ("cache",),
    "db.cpu": ("db", "cache"),
}  # fmt: skip


def _web_peak(hw: Hardware, s: Mapping[str, Value]) -> float | None:
    tiers = _web_tiers(hw, s)
    burst = 0.72 + 0.28 * _saturating(float(s["os.backlog"]), 300)
    return None if tiers is None else float((tiers**-4.0).sum() ** -0.25 * burst)


def _web_tiers(hw: Hardware, s: Mapping[str, Value]) -> np.ndarray | None:
    f = {name: float(value) for name, value in s.items() if not isinstance(value, str)}
    as_fpm = s["web.kind"] == "nginx+fpm"
    workers = f["web.fpm.children"] if as_fpm else f["web.prefork.workers"]
    cached = f["cache.memory"] * (1 - 0.35 * (f["cache.growth"] - 1.05) ** 0.8)
    cached *= 1 - 0.05 * max(0.0, 1.15 - f["cache.growth"]) / 0.1
    used = workers * (22 if as_fpm else 30) + f["cache.memory"] * 0.5 + 200
    if used > hw.memory * 1.1 or f["lb.connections"] * f["lb.workers"] * 2 > hw.descriptors * 8:
        return None
    hit = min(0.97, (cached / hw.dataset) ** 0.25 * 0.97)
    kind = {"apache": 0.6, "nginx": 1.0, "haproxy": 1.08}[str(s["lb.kind"])]
    keep = 1 + 0.35 * _saturating(f["lb.keepalive"], 24) - 0.0004 * f["lb.keepalive"]
    lb = 9000 * hw.lb * kind * keep
    lb *= min(1.0, (f["lb.workers"] / hw.lb) ** 0.6) * _crowding(f["lb.workers"], hw.lb, 0.1)
    service = 0.0035 + 0.6 * hw.miss * (1 - hit) * 4
    web_cpu = hw.web / 0.0022 * (1.0 if as_fpm else 0.85) * _crowding(workers, hw.web * 3, 0.06)
    pm = {"static": 1.0, "dynamic": 0.82 + 0.03 * log(f["web.fpm.spare"]), "ondemand": 0.7}
    web_cpu *= min(1.0, pm[str(s["web.fpm.pm"])]) if as_fpm else 1.0
    waiting = workers / service
    cache = 30000 * min(f["cache.threads"], 4) ** 0.7 * _crowding(f["cache.threads"], 4, 0.3)
    database = hw.db * 900 * _saturating(f["db.connections"], 60) / (1 - hit + 0.02)
    database *= 1 / (1 + (f["db.connections"] / 900) ** 2)
    held = min(1.0, (f["lb.connections"] * f["lb.workers"] / 1500) ** 0.4)
    return np.array([lb * held, web_cpu, waiting, cache, database])


@cache
def random_stack(seed: int, parameters: int = 16, tiers: int = 4, failing: float = 0.2) -> Stack:
    """Return a random stack, in which a quarter of the parameters have no effect.

    Settings in the share ``failing`` of the search space fail.
    """
    rng = np.random.default_rng(10_000 + seed)
    dimensions, effects = [], []
    optimum, spread = rng.uniform(0.2, 0.8, parameters), rng.uniform(0.35, 1.0, parameters)
    for index in range(parameters):
        name = f"t{index % tiers}.s.p{index}"
        advised = float(np.clip(optimum[index] + rng.normal(0, 0.12), 0, 1))
        today = float(np.clip(optimum[index] + rng.choice([-1, 1]) * rng.uniform(0.2, 0.6), 0, 1))
        when = ()
        if index % 4 == 3:
            count = int(rng.integers(2, 5))
            choices = tuple(f"c{i}" for i in range(count))
            dimension = choice(name, choices, choices[int(rng.integers(count))])
        else:
            gate = dimensions[3] if index % 8 == 6 else None
            when = ((gate.name, gate.choices[:1]),) if gate else ()
            low, high = 1.0, float(10 ** rng.uniform(1.5, 4))
            dimension = number(name, low, high, round(high**today), round(high**advised), when=when)
        dimensions.append(dimension)
        effects.append(_effect(rng, dimension, optimum[index], spread[index]))
    dead = set(rng.choice(parameters, parameters // 4, replace=False)) - {3}
    base, corner = rng.uniform(1.0, 1.5, tiers) * 2000, rng.uniform(0.3, 1.0, 3)
    numeric = [i for i, d in enumerate(dimensions) if not d.choices and not d.conditions]
    risky = rng.choice(numeric, 3, replace=False)

    def units(s: Settings) -> np.ndarray:
        return np.array([_unit(d, s[d.name]) for d in dimensions])

    draws = np.random.default_rng(seed).uniform(size=(4000, 3)) @ corner
    space = SearchSpace(tuple(dimensions), (), {})
    known = [space.baseline, space.preset_settings("recommended")]
    limit = max(
        float(np.quantile(draws, 1 - failing)),
        *(1.05 * float(np.dot(corner, units(settings)[risky])) for settings in known),
    )

    def rates(s: Settings) -> np.ndarray | None:
        at, live = units(s), space.active_parameters(s)
        if float(np.dot(corner, at[risky])) > limit:
            return None
        loss = np.zeros(tiers)
        for index, dimension in enumerate(dimensions):
            if index not in dead and dimension.name in live:
                loss[index % tiers] += effects[index](at[index])
        if not dead & {1, 5}:
            loss[1] += 0.8 * (at[1] - optimum[1]) * (at[5] - optimum[5])
        return np.asarray(base * np.exp(-loss))

    active = frozenset(d.name for i, d in enumerate(dimensions) if i not in dead)
    of = {f"t{tier}.cpu": (f"t{tier}",) for tier in range(tiers)}
    return Stack(
        f"random-{seed}",
        space,
        lambda s: _total(rates(s)),
        active,
        parts=lambda s: _parts(rates(s), of),
    )


def _total(rates: np.ndarray | None) -> float | None:
    return None if rates is None else float((rates**-5.0).sum() ** -0.2)


def _effect(
    rng: np.random.Generator, dimension: Dimension, optimum: float, spread: float
) -> Callable[[float], float]:
    """Return a random function from a parameter's position in its range (0 to 1) to a loss of log peak.

    The function is a valley, a slope that levels off, or a table with a loss for each choice.
    """
    weight = float(rng.choice([0.15, 0.4, 1.0, 2.0], p=[0.3, 0.3, 0.25, 0.15]))
    if dimension.choices:
        losses = rng.uniform(0, 0.5 * min(weight, 1.0), len(dimension.choices))
        losses -= losses.min()
        return lambda u: float(losses[round(u * (len(losses) - 1))])
    if rng.random() < 0.4:
        return lambda u: weight * exp(-u / (0.25 * spread))
    return lambda u: weight * ((u - optimum) / spread) ** 2


def _unit(dimension: Dimension, value: Value) -> float:
    if dimension.choices:
        return dimension.choices.index(value) / max(len(dimension.choices) - 1, 1)
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    if dimension.is_logarithmic and low > 0:
        return log(float(value) / low) / log(high / low)
    return (float(value) - low) / (high - low)


@cache
def best(stack: Stack) -> tuple[float, dict[str, Value]]:
    """Return the highest peak and its settings, found by hill climbing from many points."""
    rng = np.random.default_rng(1)
    starts = [*stack.presets, *(_drawn(stack.space, rng) for _ in range(300))]
    found = sorted(((stack.peak(s) or 0.0, i, s) for i, s in enumerate(starts)), reverse=True)
    return max((_climb(stack, s) for _, _, s in found[:6]), key=lambda pair: pair[0])


def _climb(stack: Stack, start: Settings, least: float = 0.004) -> tuple[float, dict[str, Value]]:
    """Climb from ``start`` by changing one parameter after the other.

    Steps shrink until they are the fraction ``least`` of a range.
    """
    here, height, step = dict(start), stack.peak(start) or 0.0, 0.25
    while step > least:
        before = height
        for dimension in stack.space.tunable_dimensions:
            for value in _neighbours(dimension, here[dimension.name], step):
                trial = {**here, dimension.name: value}
                reached = stack.peak(trial) or 0.0
                if reached > height:
                    here, height = trial, reached
        step = step if height > before * 1.0005 else step / 2
    return height, here


def _neighbours(dimension: Dimension, value: Value, step: float) -> list[Value]:
    if dimension.choices:
        return list(dimension.choices)
    at = _unit(dimension, value)
    return [_at(dimension, float(np.clip(at + d, 0, 1))) for d in (-step, step)]


def _at(dimension: Dimension, unit: float) -> Value:
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    log_scale = dimension.is_logarithmic and low > 0
    return dimension.clip(low * (high / low) ** unit if log_scale else low + unit * (high - low))


def _drawn(space: SearchSpace, rng: np.random.Generator) -> dict[str, Value]:
    return {
        d.name: d.choices[int(rng.integers(len(d.choices)))] if d.choices else _at(d, rng.random())
        for d in space.dimensions
    }


__all__ = ["HARDWARE", "InfeasibleRule", "Stack", "best", "random_stack", "web_stack"]
