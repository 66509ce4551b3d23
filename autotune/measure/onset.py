"""How the violation fraction rises with load: the family of shapes a server may have.

The wait in a queue near saturation is, whatever its arrivals and services, close to a reflected
Brownian motion with drift ``u - 1`` at utilisation ``u`` (Kingman 1962; Harrison 1985, §1.8). Its
chance to exceed the limit has a closed form that also holds for the first seconds from an empty
queue and in overload, where a backlog grows. One number is left, how steeply the fraction rises at
the peak, and the length of the bursts in which violations come follows from it. Some servers do not
make bursts, but show the long run's fraction at once; some add a floor of violations that no load
explains (services with a long tail), and some do not queue in overload but fail at once. Which of
these a server is, the readings tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
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
    ``grades``: 1 / variance of a reading's log fraction beyond that of counting, unless violations
    come in ``bursts``, those of a queue's busy periods, which take their time to appear; without them
    a reading shows the long run's fraction at once. The number says how fast far below saturation
    requests come to be late each by its own service: 0 where services are short beside the limit.
    """

    slope: float
    floor: float = 0.0
    lead: float | None = 1.5
    grades: float = 9.0
    bursts: float | None = None


SHAPES: Final = (
    Shape(2.5, grades=80.0),
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
    Shape(16.0, floor=0.1, grades=24.0),
    Shape(70.0, floor=0.1),
    Shape(10.0, floor=0.4, grades=60.0),
    Shape(40.0, floor=0.4, grades=60.0),
    Shape(4.0, floor=0.75, grades=120.0),
    Shape(7.0, floor=0.75, grades=120.0),
    Shape(12.0, floor=0.75, grades=120.0),
    Shape(75.0, floor=0.75, grades=120.0),
    Shape(60.0, lead=None),
    Shape(250.0, lead=None),
    *(
        Shape(slope, floor, lead=1.0, bursts=bursts)
        for floor, bursts in ((0.0, 0.0), (0.005, 0.2))
        for slope in (2.5, 5.0, 8.0, 12.5, 20.0, 30.0, 45.0, 70.0, 110.0, 180.0, 300.0)
    ),
)
FLAT: Final[Array] = np.array([1.3, 2.0, 4.0, 10.0, 30.0, 100.0])
"""Servers that never meet the objective: their fraction over the allowed one, at any load."""

_UNQUEUED, _ODD = (
    0.1,
    0.3,
)  # weights of failing at once in overload; of a floor, of short busy periods


def _common(shape: Shape) -> float:
    """How common a shape is among servers of its slope, to one that shows the long run at once."""
    if shape.lead is None or shape.bursts == 0.0:
        return _UNQUEUED
    return _ODD if shape.floor else 1.0


_COMMON: Final[Array] = np.array([_common(shape) for shape in SHAPES])
_VARIABLE = 0.9  # of the slope that Poisson arrivals and exponential services would give ...
_LONGER = 2.0  # ... and how much less that is where services vary so that some are late at any load
_SPREAD = 0.45  # of the log of that
_ANY = 0.1  # weight of the shapes however unlike that they are
_MILDEST, _STEEPEST = 2.5, 450.0  # slopes beyond which all look alike
_ROUGH = 3.0  # grades of good answers in overload
# Renewals of a queue in a reading: at saturation, and for each relaxation time below and above it.
# Fitted to counts of queues with 1 to 8 servers, simulated request by request at 0.7 to 1.6 of the peak
# for limits of 50 to 200 ms.
_AT_LEAST, _BELOW, _OVERLOADED = 0.8, 0.5, 0.2
_BURSTY = 5.0  # variance of the log fraction that readings show where busy periods are few
_MOMENTS = 16  # points of a reading at which its fraction is averaged


def expected(log_peaks: Array, limit: float) -> Array:
    """``[shape, log peak]``: weights before any reading; each column sums to 1.

    The tail of the wait decays with spare utilisation at ``2 * capacity * limit / (ca2 + cs2)``,
    where the ``c2`` are squared coefficients of variation of arrivals and services (Kingman 1962).
    The slope at the peak is that times the utilisation there, which makes a rate of the capacity:
    the more requests a limit's length holds, the steeper the onset.
    """
    slopes = np.array([shape.slope / (1.0 - shape.floor) for shape in SHAPES])
    part = np.array([_VARIABLE / (1.0 + _LONGER * shape.floor) for shape in SHAPES])
    centre = np.clip(limit * part[:, None] * np.exp(log_peaks)[None, :], _MILDEST, _STEEPEST)
    score = (np.log(slopes)[:, None] - np.log(centre)) / _SPREAD
    weights = _COMMON[:, None] * (np.exp(-0.5 * score**2) + _ANY)
    return np.asarray(weights / weights.sum(axis=0))


@dataclass(frozen=True)
class Onset:
    """What readings of some length show of each shape, ``[shape, offset]``.

    ``fraction``: expected fraction of violations; NaN in abrupt overload, which leaves it open.
    ``likeness``: correlation of any two requests of a reading.
    """

    fraction: Array
    likeness: Array


@lru_cache(maxsize=64)
def onset(allowed: float, limit: float, seconds: float, *, waits: bool = True) -> Onset:
    """What readings of ``seconds`` show; errors, which are no ``waits``, do not share busy periods."""
    shapes = SHAPES if waits else [replace(shape, bursts=None) for shape in SHAPES]
    rows = [_row(shape, allowed, limit, seconds) for shape in shapes]
    return Onset(*(np.asarray(table) for table in zip(*rows, strict=True)))


def grain(violations: float) -> Array:
    """``[shape]``: sd of the log rate that one reading near the peak is off by, for a server whose
    capacity does not vary, where ``violations`` are expected.
    """
    slopes = np.array([shape.slope for shape in SHAPES])
    rough = np.array(
        [_BURSTY if shape.bursts is not None else 1.0 / shape.grades for shape in SHAPES]
    )
    return np.asarray(np.sqrt(1.0 / max(violations, 0.1) + rough) / slopes)


def _row(shape: Shape, allowed: float, limit: float, seconds: float) -> tuple[Array, Array]:
    floor = shape.floor * allowed
    height = log(1.0 / (allowed - floor))
    decay = shape.slope / (1.0 - shape.floor) + height
    utilisation = (1.0 - height / decay) * np.exp(OFFSETS)
    if shape.lead is None:
        steady = floor + (1.0 - floor) * np.exp(decay * np.minimum(utilisation - 1.0, 0.0))
        fraction = np.where(utilisation < 1.0, steady, np.nan)
    else:
        late = _late(utilisation, decay, limit, shape.lead, seconds)
        if shape.bursts is None:
            late = np.maximum(late, _settled(utilisation, decay, limit, seconds))
        fraction = floor + (1.0 - floor) * late
    if shape.bursts is not None:
        return fraction, _shared(utilisation, decay, limit, shape.bursts, seconds)
    few, many = fraction / (fraction + shape.grades), (1.0 - fraction) / (1.0 - fraction + _ROUGH)
    return fraction, np.where(fraction < 0.5, few, many)


def _late(utilisation: Array, decay: float, limit: float, lead: float, seconds: float) -> Array:
    """Mean chance of a wait above ``limit`` in ``seconds`` of load that follow ``lead`` seconds.

    In the long run a wait exceeds ``limit`` with chance ``exp(-decay * spare utilisation)``.
    """
    from scipy.special import log_ndtr, ndtr  # not loaded by what measures nothing: `check`, `plan`

    drift = (utilisation - 1.0)[:, None]
    t = lead + seconds * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    spread = np.sqrt(2.0 * limit / decay * t)
    free = ndtr((drift * t - limit) / spread)
    image = drift * decay + log_ndtr(-(limit + drift * t) / spread)
    return np.asarray(np.minimum(free + np.exp(np.minimum(image, 0.0)), 1.0).mean(axis=1))


def _settled(utilisation: Array, decay: float, limit: float, seconds: float) -> Array:
    """Chance of a wait above ``limit`` where the long run shows at once, but for utilisations so
    close to 1 that no queue moves that far in ``seconds``.
    """
    spare = np.maximum(1.0 - utilisation, 0.5 * np.sqrt(2.0 * limit / decay / seconds))
    return np.asarray(np.exp(-decay * spare))


def _shared(utilisation: Array, decay: float, limit: float, bursts: float, seconds: float) -> Array:
    """Likeness of the requests of a reading of a queue.

    It falls with the number of relaxation times that the reading lasts: those of the reflected
    Brownian motion, its variance over the square of its drift (Harrison 1985).
    """
    times = (utilisation - 1.0) ** 2 * decay / 2.0 / limit * seconds
    below = times * (_BELOW + bursts * times)
    renewed = np.where(utilisation < 1.0, below, _OVERLOADED * times)
    return np.asarray(1.0 / (1.0 + _AT_LEAST + renewed))
