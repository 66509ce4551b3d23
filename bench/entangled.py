"""Stacks whose parameters have joint effects across tiers, with a search space from the catalogue.

There are three kinds of stacks. In `products`, the effect of a value depends on values in other tiers.
In `cliffs`, most capacity is lost if the sum of two parameters is too large, as when memory or
connections run out. In `moving`, the optimum depends on the load that the stack sustains. Structures
and presets are random, and no effects are additive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import log

import numpy as np
import numpy.typing as npt

from autotune.services.base import Settings
from autotune.space.dimension import Dimension
from autotune.space.repair import InfeasibleRule
from autotune.space.space import SearchSpace
from bench.queueing import Workload, made, presets
from bench.stacks import Parts, Stack, _at, _climb, _unit

Array = npt.NDArray[np.float64]

KINDS = ("products", "cliffs", "moving")
TIERS = ("lb", "web", "cache", "db")
DECISIVE, OTHERS = 3, 1  # important parameters and other parameters per tier
STEEP = 0.35  # share of a tier's rate that is left beyond a cliff
SHARPNESS = 5.0
REACH = 2.0  # maximum log change of the load that moves optima


@dataclass(frozen=True)
class Problem:
    """A problem in which a tier's log rate falls with the distance of parameters from ``optimum``.

    The log rate of a tier is ``base`` minus a quadratic form of these distances. ``moves`` contains the
    shift of each optimum if the load grows by a factor of e. Each cliff consists of a tier, two
    parameters, and the sum of their values beyond which the tier loses most of its rate.
    """

    space: SearchSpace
    deciding: tuple[Dimension, ...]
    base: Array
    forms: Array
    optimum: Array
    moves: Array
    cliffs: tuple[tuple[int, int, int, float], ...]

    def rates(self, settings: Settings) -> Array | None:
        """Return the requests/s that each tier sustains, or ``None`` for infeasible settings."""
        try:
            kept = self.space.build_candidate(settings).settings
        except InfeasibleRule:
            return None
        at = np.array([_unit(d, kept[d.name]) for d in self.deciding])
        load = usual = float(self.base.mean())
        for _ in range(20 if self.moves.any() else 0):
            carried = log(max(_total(self._at_load(at, load)), 1e-9))
            load = float(np.clip(0.5 * (load + carried), usual - REACH, usual + REACH))
        return self._at_load(at, load)

    def _at_load(self, at: Array, load: float) -> Array:
        away = at - (self.optimum + self.moves * (load - float(self.base.mean())))
        losses = np.einsum("i,tij,j->t", away, self.forms, away)
        for tier, one, other, limit in self.cliffs:
            losses[tier] -= log(STEEP) if at[one] + at[other] > limit else 0.0
        return np.exp(self.base - losses)

    def peak(self, settings: Settings) -> float | None:
        rates = self.rates(settings)
        return None if rates is None else _total(rates)

    def advise(self, settings: Settings, _: float) -> tuple[str, ...]:
        """Return the changes that a diagnosis would recommend.

        They are the three best changes of parameters in the narrowest tier, by a tenth of a range.
        """
        rates = self.rates(settings)
        if rates is None:
            return ()
        narrowest, gains = int(rates.argmin()), {}
        for d in self.deciding:
            if d.name.startswith(f"{TIERS[narrowest]}."):
                for sign in (1, -1):
                    there = _at(d, float(np.clip(_unit(d, settings[d.name]) + 0.1 * sign, 0, 1)))
                    moved = self.rates({**settings, d.name: there})
                    gain = -1.0 if moved is None else log(moved[narrowest] / rates[narrowest])
                    gains[f"{d.name}{'+' if sign > 0 else '-'}"] = gain
        ranked = sorted(gains, key=lambda move: -gains[move])
        return tuple(move for move in ranked[:3] if gains[move] > 0.01)

    def parts(self, settings: Settings) -> Parts:
        """Return the log rate of each tier, and the tiers on which it seems to depend.

        A tier seems to depend on itself and on the next tier.
        """
        rates = self.rates(settings)
        if rates is None:
            return {}
        return {
            f"{tier}.cpu": (log(rate), TIERS[i : i + 2])
            for i, (tier, rate) in enumerate(zip(TIERS, rates, strict=True))
        }


def _total(rates: Array) -> float:
    return float(rates.min() * ((rates / rates.min()) ** -SHARPNESS).sum() ** (-1 / SHARPNESS))


@cache
def problem(kind: str, seed: int) -> Problem:
    """Return a random problem in which the best preset is 40 to 75 % below the optimum."""
    space = made(Workload(), np.random.default_rng(seed), effects=False).space
    for attempt in range(500):
        at = _drawn(kind, space, np.random.default_rng((seed, KINDS.index(kind), attempt, 9)))
        top = at.peak(_optimal(at)) or 0.0
        lacking = 1 - max(at.peak(preset) or 0.0 for preset in presets(space)) / max(top, 1e-9)
        if 0.4 <= lacking <= 0.75:
            return at
    raise ValueError(f"no problem of the kind {kind} has presets that are wrong enough")


def _drawn(kind: str, space: SearchSpace, rng: np.random.Generator) -> Problem:
    deciding = _deciding(space, rng)
    size, tiers = len(deciding), [d.name.partition(".")[0] for d in deciding]
    known = np.array([_unit(d, space.preset_settings("recommended")[d.name]) for d in deciding])
    shift = rng.choice([-1, 1], size) * rng.uniform(0.15, 0.5, size)
    optimum = np.where(rng.random(size) < 0.6, known + shift, known)
    optimum = np.where((optimum < 0.05) | (optimum > 0.95), known - shift, optimum).clip(0.05, 0.95)
    forms = []
    for tier in TIERS:
        own = np.array([name == tier for name in tiers])
        weights = np.where(own, rng.gamma(1.0, 1.6, size), 0.0)
        form = np.diag(weights)
        for _ in range(4 if kind == "products" else 1):
            mixed = np.zeros(size)
            mixed[rng.choice(np.flatnonzero(own))] = 1.0
            mixed[rng.choice(np.flatnonzero(~own))] = rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 1)
            form += rng.gamma(2.0, 1.2) * np.outer(mixed, mixed)
        forms.append(form)
    moves = np.where(rng.random(size) < 0.5, rng.normal(0, 0.12, size), 0.0)
    return Problem(
        space, deciding, np.log(rng.uniform(800, 2500, len(TIERS))), np.array(forms), optimum,
        moves if kind == "moving" else np.zeros(size),
        tuple(_cliff(rng, optimum) for _ in range(4 if kind == "cliffs" else 1)),
    )  # fmt: skip


def _cliff(rng: np.random.Generator, optimum: Array) -> tuple[int, int, int, float]:
    """Return a random cliff slightly beyond the optimum."""
    one, other = (int(i) for i in rng.choice(len(optimum), 2, replace=False))
    return int(rng.integers(len(TIERS))), one, other, float(optimum[[one, other]].sum() + 0.08)


def _deciding(space: SearchSpace, rng: np.random.Generator) -> tuple[Dimension, ...]:
    """Return random numeric parameters of each tier, which must not have conditions."""
    chosen: list[Dimension] = []
    for tier in TIERS:
        own = [d for d in space.tunable_dimensions
               if d.name.startswith(f"{tier}.") and not d.choices and not d.conditions]  # fmt: skip
        for count, core in ((DECISIVE, True), (OTHERS, False)):
            some = [d for d in own if d.is_core is core]
            chosen += [some[i] for i in rng.choice(len(some), count, replace=False)]
    return tuple(chosen)


def _optimal(at: Problem) -> dict[str, object]:
    best = {d.name: _at(d, float(o)) for d, o in zip(at.deciding, at.optimum, strict=True)}
    return {**at.space.baseline, **best}


@cache
def stack(name: str, seed: int) -> Stack:
    at = problem(name, seed)
    deciding = frozenset(d.name for d in at.deciding)
    return Stack(f"{name}-{seed}", at.space, at.peak, deciding, at.advise, at.parts)


@cache
def best(at: Stack, known: tuple[str, int]) -> float:
    """Return the highest peak, found by hill climbing from the formula's optimum and from two presets."""
    optimal: Mapping[str, object] = _optimal(problem(*known))
    return max(_climb(at, optimal)[0], *(_climb(at, preset)[0] for preset in presets(at.space)[:2]))
