"""How the violation fraction rises with load: the family of shapes a server may have.

The wait in a queue near saturation is, whatever its arrivals and services, close to a reflected
Brownian motion with drift ``u - 1`` at utilisation ``u`` (Kingman 1962; Harrison 1985, §1.8). Its
chance to exceed the limit has a closed form that also holds for the first seconds from an empty
queue and in overload, where a backlog grows. One number is left, how steeply the fraction rises at
the peak; some servers add a floor of violations that no load explains, and some do not queue in
overload but fail at once. Which of these a server is, the posterior finds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, lgamma, log, pi, sqrt
from typing import Final

import numpy as np

from autotune.measure.noise import REACH, STEP, Array

OFFSETS: Final[Array] = np.arange(-REACH, REACH + 1, dtype=np.float64) * STEP
"""Log of rate over peak at which the shapes are tabulated."""


@dataclass(frozen=True)
class Shape:
    """``slope``: d log fraction / d log rate at the peak. ``floor``: part of the allowed fraction
    that is there at any load. ``lead``: seconds of load before a reading counts, or ``None`` for a
    server whose overload is not a growing backlog but failure of any extent at once.
    """

    slope: float
    floor: float = 0.0
    lead: float | None = 0.5


SHAPES: Final = (
    Shape(5.0),
    Shape(10.0),
    Shape(22.0),
    Shape(50.0),
    Shape(110.0),
    Shape(300.0, lead=0.0),
    Shape(300.0, lead=1.5),
    Shape(22.0, floor=0.6),
    Shape(90.0, floor=0.6),
    Shape(300.0, floor=0.6),
    Shape(35.0, lead=None),
    Shape(200.0, lead=None),
)
FLAT: Final[Array] = np.array([1.3, 2.0, 4.0, 10.0, 30.0, 100.0])
"""Servers that never meet the objective: their fraction over the allowed one, at any load."""

_GRADES = 3.0  # 1 / variance of a reading's log fraction beyond counting: violations come in bursts
_LAPSE = 0.01  # readings that fit no shape at all
_MOMENTS = 16  # points of a reading at which its fraction is averaged


@lru_cache(maxsize=1)
def _scaled_tail() -> tuple[Array, Array]:
    """``exp(z**2) * erfc(z)`` at points of ``z``; numpy has no error function."""
    z = np.linspace(0.0, 25.0, 2501)
    return z, np.array([exp(v * v) * erfc(v) for v in z])


def _log_normal_tail(z: Array) -> Array:
    """Log of the chance that a standard normal exceeds ``z``."""
    points, scaled = _scaled_tail()
    a = np.abs(z) / sqrt(2.0)
    beyond = 1.0 / (np.maximum(a, 1.0) * sqrt(pi))
    above = np.log(0.5 * np.where(a < 25.0, np.interp(a, points, scaled), beyond)) - a * a
    return np.where(z >= 0, above, np.log1p(-np.exp(np.minimum(above, -1e-12))))


def _late(utilisation: Array, decay: float, limit: float, lead: float, seconds: float) -> Array:
    """Mean chance of a wait above ``limit`` in ``seconds`` of load that follow ``lead`` seconds.

    ``decay`` is the rate, per unit of spare utilisation, at which the steady tail falls to ``limit``.
    """
    drift = (utilisation - 1.0)[:, None]
    t = lead + seconds * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    spread = np.sqrt(2.0 * limit / decay * t)
    free = np.exp(_log_normal_tail((limit - drift * t) / spread))
    reflected = np.exp(
        np.minimum(drift * decay + _log_normal_tail((limit + drift * t) / spread), 0)
    )
    return np.asarray(np.minimum(free + reflected, 1.0).mean(axis=1))


def _fraction(shape: Shape, allowed: float, limit: float, seconds: float) -> Array:
    """Expected violation fraction of ``shape`` over ``OFFSETS``; NaN where it says nothing."""
    floor = shape.floor * allowed
    height = log(1.0 / (allowed - floor))
    decay = shape.slope / (1.0 - shape.floor) + height
    utilisation = (1.0 - height / decay) * np.exp(OFFSETS)
    if shape.lead is not None:
        return floor + (1.0 - floor) * _late(utilisation, decay, limit, shape.lead, seconds)
    steady = floor + (1.0 - floor) * np.exp(decay * np.minimum(utilisation - 1.0, 0.0))
    return np.where(utilisation < 1.0, steady, np.nan)


@lru_cache(maxsize=64)
def fractions(allowed: float, limit: float, seconds: float) -> Array:
    """``[shape, offset]``: expected violation fraction of a reading of ``seconds``."""
    return np.asarray([_fraction(shape, allowed, limit, seconds) for shape in SHAPES])


def chance(violations: float, intended: float, fraction: Array) -> Array:
    """Likelihood of ``fraction`` given the counts, with more spread than coin tosses have.

    Whichever of violations and good answers is rarer is taken as negative binomial. NaN stands for
    "anything may happen".
    """
    anything = 1.0 / (intended + 1.0)
    rare, part = violations, fraction
    if violations > 0.5 * intended:
        rare, part = intended - violations, 1.0 - fraction
    mean = intended * np.clip(part, 1e-9, 1.0)
    with np.errstate(invalid="ignore"):
        counted = (
            lgamma(rare + _GRADES)
            - lgamma(rare + 1.0)
            - lgamma(_GRADES)
            - _GRADES * np.log1p(mean / _GRADES)
            - rare * np.log1p(_GRADES / mean)
        )
        return np.where(
            np.isnan(part), anything, (1.0 - _LAPSE) * np.exp(counted) + _LAPSE * anything
        )


def at_least(violations: float, intended: float, fraction: Array) -> Array:
    """Likelihood of ``fraction`` given that it would have come out no lower than the counts say."""
    seen = min(max(violations / intended, 1e-9), 1.0 - 0.5 / (intended + 1.0))
    part = np.clip(np.where(np.isnan(fraction), 1.0, fraction), 1e-9, 1.0 - 1e-9)
    excess = np.log(part / (1.0 - part)) - log(seen / (1.0 - seen))
    return _LAPSE + (1.0 - _LAPSE) / (1.0 + np.exp(-np.clip(2.0 * excess, -60.0, 60.0)))
