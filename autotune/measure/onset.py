"""How the violation fraction rises with load: the family of shapes a server may have.

The wait in a queue near saturation is, whatever its arrivals and services, close to a reflected
Brownian motion with drift ``u - 1`` at utilisation ``u`` (Kingman 1962; Harrison 1985, §1.8). Its
chance to exceed the limit has a closed form that also holds for the first seconds from an empty
queue and in overload, where a backlog grows. One number is left, how steeply the fraction rises at
the peak. Some servers add a floor of violations that no load explains (services with a long tail),
and some do not queue in overload but fail at once. Which of these a server is, the readings tell.
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
    """One way for violations to set in.

    ``slope``: d log fraction / d log rate at the peak. ``floor``: part of the allowed fraction that
    is there at any load. ``lead``: seconds of load before a reading counts (its warm-up), or
    ``None`` for a server whose overload is no growing backlog but the failure of most requests.
    ``grades``: 1 / variance of a reading's log fraction beyond that of counting. Violations come in
    bursts, which last the longer the steeper the onset is.
    """

    slope: float
    floor: float = 0.0
    lead: float | None = 1.5
    grades: float = 9.0


SHAPES: Final = (
    Shape(5.0, grades=60.0),
    Shape(9.0, grades=36.0),
    Shape(16.0, grades=24.0),
    Shape(28.0, grades=15.0),
    Shape(45.0),
    Shape(70.0),
    Shape(110.0),
    Shape(180.0),
    Shape(500.0, lead=0.0),
    Shape(500.0),
    Shape(10.0, floor=0.4, grades=60.0),
    Shape(40.0, floor=0.4, grades=60.0),
    Shape(4.0, floor=0.75, grades=120.0),
    Shape(12.0, floor=0.75, grades=120.0),
    Shape(75.0, floor=0.75, grades=120.0),
    Shape(60.0, lead=None),
    Shape(250.0, lead=None),
)
FLAT: Final[Array] = np.array([1.3, 2.0, 4.0, 10.0, 30.0, 100.0])
"""Servers that never meet the objective: their fraction over the allowed one, at any load."""

_GRADES: Final[Array] = np.array([[shape.grades] for shape in SHAPES])
_COMMON: Final[Array] = np.array(
    [0.3 if shape.floor or shape.lead is None else 1.0 for shape in SHAPES]
)
_VARIABLE = 0.9  # of the decay that Poisson arrivals and exponential services would give
_SPREAD = 0.45  # of the log of that
_ANY = 0.1  # weight of the shapes however unlike that they are
_MILDEST, _STEEPEST = 3.0, 450.0  # decay beyond the least possible, and beyond which all look alike
_ROUGH = 3.0  # grades of good answers in overload, and of servers without a peak
_LAPSE = 0.01  # readings that fit no shape at all
_LOOSE = 0.8  # how far overload, the more of it fails, may look unlike any of the shapes
_MOMENTS = 16  # points of a reading at which its fraction is averaged


def expected(log_peaks: Array, allowed: float, limit: float) -> Array:
    """``[shape, log peak]``: weights before any reading; each column sums to 1.

    The tail of the wait decays with spare utilisation at ``2 * rate * limit / (ca2 + cs2)``, where
    the ``c2`` are squared coefficients of variation of arrivals and services (Kingman 1962): the
    more requests a limit's length holds, the steeper the onset.
    """
    height = log(1.0 / allowed)
    decay = np.array([shape.slope / (1.0 - shape.floor) + height for shape in SHAPES])
    centre = np.clip(_VARIABLE * limit * np.exp(log_peaks), height + _MILDEST, _STEEPEST)
    score = (np.log(decay)[:, None] - np.log(centre)[None, :]) / _SPREAD
    weights = _COMMON[:, None] * (np.exp(-0.5 * score**2) + _ANY)
    return np.asarray(weights / weights.sum(axis=0))


@lru_cache(maxsize=64)
def fractions(allowed: float, limit: float, seconds: float) -> Array:
    """``[shape, offset]``: expected violation fraction of a reading of ``seconds``; NaN in abrupt
    overload, which leaves it open.
    """
    return np.asarray([_fraction(shape, allowed, limit, seconds) for shape in SHAPES])


def chance(violations: float, intended: float, fraction: Array) -> Array:
    """Likelihood of ``fraction[shape, offset]`` given the counts."""
    anything = 1.0 / (intended + 1.0)
    failing = 2.5 * anything * ((violations + 0.5) * anything) ** 1.5  # density 2.5 f**1.5
    open_ended = np.where(np.isnan(fraction), 1.0, _LOOSE * fraction)
    fitted = _counted(violations, intended, np.nan_to_num(fraction, nan=0.5), _GRADES)
    fitted = (1.0 - open_ended) * fitted + open_ended * failing
    return np.asarray((1.0 - _LAPSE) * fitted + _LAPSE * anything)


def grain(violations: float) -> Array:
    """``[shape]``: sd of the log rate that one reading near the peak is off by, for a server whose
    capacity does not vary, where ``violations`` are expected.
    """
    slopes = np.array([shape.slope for shape in SHAPES])
    return np.asarray(np.sqrt(1.0 / max(violations, 0.1) + 1.0 / _GRADES[:, 0]) / slopes)


def flat_chance(violations: float, intended: float, allowed: float) -> Array:
    """Likelihood of the servers ``FLAT`` given the counts."""
    share = np.minimum(FLAT * allowed, 1.0 - 1e-4)
    return _counted(violations, intended, share[None, :], np.full((1, 1), _ROUGH))[0, :]


def at_least(violations: float, intended: float, fraction: Array) -> Array:
    """Likelihood of ``fraction`` given only that it would not have come out below the counts."""
    seen = min(max(violations / intended, 1e-9), 1.0 - 0.5 / (intended + 1.0))
    part = np.clip(np.where(np.isnan(fraction), 1.0, fraction), 1e-9, 1.0 - 1e-9)
    excess = np.log(part / (1.0 - part)) - log(seen / (1.0 - seen))
    return _LAPSE + (1.0 - _LAPSE) / (1.0 + np.exp(-np.clip(2.0 * excess, -60.0, 60.0)))


def _counted(violations: float, intended: float, fraction: Array, grades: Array) -> Array:
    """Chance of the counts; whichever of violations and good answers is rarer is scattered."""
    few = _scattered(violations, intended * fraction, grades)
    rough = np.full_like(grades, _ROUGH)
    many = _scattered(intended - violations, intended * (1.0 - fraction), rough)
    return np.where(fraction < 0.5, few, many)


def _scattered(count: float, mean: Array, grades: Array) -> Array:
    """Negative binomial chance of ``count``: variance ``mean + mean**2 / grades``."""
    mean = np.maximum(mean, 1e-6)
    constant = [[lgamma(count + g) - lgamma(count + 1.0) - lgamma(g)] for g in grades[:, 0]]
    logs = constant - grades * np.log1p(mean / grades) - count * np.log1p(grades / mean)
    return np.asarray(np.exp(np.maximum(logs, -600.0)))


def _fraction(shape: Shape, allowed: float, limit: float, seconds: float) -> Array:
    floor = shape.floor * allowed
    height = log(1.0 / (allowed - floor))
    decay = shape.slope / (1.0 - shape.floor) + height
    utilisation = (1.0 - height / decay) * np.exp(OFFSETS)
    if shape.lead is not None:
        return floor + (1.0 - floor) * _late(utilisation, decay, limit, shape.lead, seconds)
    steady = floor + (1.0 - floor) * np.exp(decay * np.minimum(utilisation - 1.0, 0.0))
    return np.where(utilisation < 1.0, steady, np.nan)


def _late(utilisation: Array, decay: float, limit: float, lead: float, seconds: float) -> Array:
    """Mean chance of a wait above ``limit`` in ``seconds`` of load that follow ``lead`` seconds.

    In the long run a wait exceeds ``limit`` with chance ``exp(-decay * spare utilisation)``.
    """
    drift = (utilisation - 1.0)[:, None]
    t = lead + seconds * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    spread = np.sqrt(2.0 * limit / decay * t)
    free = np.exp(_log_normal_tail((limit - drift * t) / spread))
    image = drift * decay + _log_normal_tail((limit + drift * t) / spread)
    return np.asarray(np.minimum(free + np.exp(np.minimum(image, 0.0)), 1.0).mean(axis=1))


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
