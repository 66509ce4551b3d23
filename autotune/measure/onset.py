"""The rise of the violation fraction with load: the family of shapes that a server may have.

Near saturation, the wait in a queue is close to a reflected Brownian motion with drift ``u - 1`` at
utilisation ``u``, for any arrivals and services (Kingman 1962; Harrison 1985, §1.8). The chance that it
exceeds the limit, or the rest of the limit after a request's service, has a closed form. The form also
holds for the first seconds from an empty queue and in overload, where a backlog grows. One number remains
open: how steeply the fraction rises at the peak. It determines the length of the bursts of violations.

Some servers make no bursts, but show the long-run fraction immediately. Some add a floor of violations
at any load (services with a long tail). Some do not queue in overload but fail immediately. The readings
show which kind a server is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.measure import logit_normal
from autotune.measure.noise import REACH, STEP, Array

OFFSETS: Final[Array] = np.arange(-REACH, REACH + 1, dtype=np.float64) * STEP
"""Log of rate over peak at which the shapes are tabulated."""


@dataclass(frozen=True)
class Shape:
    """One way in which violations start.

    - ``slope``: d log fraction / d log rate at the peak.
    - ``floor``: part of the allowed fraction that occurs at any load.
    - ``lead``: seconds of load before a reading counts (its warm-up). ``None`` is a server that grows no
      backlog in overload but fails most requests.
    - ``bursts``: violations come in a queue's busy periods, which take time to appear. Without bursts, a
      reading shows the long-run fraction immediately.
    - ``grades``: without bursts, 1 / variance of the log fraction beyond the counting noise.

    With bursts, ``floor`` is the part that is late only because of long services. A request that waited
    almost up to the limit may be late by its service, so violations rise gradually. With bursts and no
    floor, services are short compared with the limit.
    """

    slope: float
    floor: float = 0.0
    lead: float | None = 1.5
    grades: float = 9.0
    bursts: bool = False


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
        Shape(slope, floor, lead=1.0, bursts=True)
        for floor in (0.0, 0.005)
        for slope in (2.5, 5.0, 8.0, 12.5, 20.0, 30.0, 45.0, 70.0, 110.0, 180.0, 300.0)
    ),
)
FLAT: Final[Array] = np.array([1.3, 2.0, 4.0, 10.0, 30.0, 100.0])
"""Servers that never meet the objective: their fraction over the allowed fraction, at any load."""

# Frequency of a shape among servers of its slope, relative to a queue whose services matter.
# The order is: a queue with short services, no queue, no queue with a floor.
_SHORT, _UNQUEUED, _ODD = 0.1, 0.3, 0.1


def _common(shape: Shape) -> float:
    if shape.bursts:
        return 1.0 if shape.floor else _SHORT
    return _ODD if shape.floor else _UNQUEUED


_COMMON: Final[Array] = np.array([_common(shape) for shape in SHAPES])
_VARIABLE = 0.9  # expected slope over the slope of Poisson arrivals and exponential services ...
_LONGER = 2.0  # ... divided by 1 + this * floor: a floor means more variable services
_SPREAD = 0.45  # sd of the log slope around the expected one
_ANY = 0.1  # minimum weight of a shape, however unlikely its slope
_MILDEST, _STEEPEST = 2.5, 450.0  # beyond these slopes all shapes look alike
_ROUGH = 3.0  # grades of correct answers in overload
# Renewals of a queue in a reading: at saturation, and for each relaxation time below and above it.
# They are fitted to queues with 1 to 8 servers, simulated request by request.
# Rates were 0.7 to 1.6 of the peak, limits 50 to 200 ms.
_AT_LEAST, _BELOW, _OVERLOADED = 0.8, 0.5, 0.2
# Soft onset: sd of the logit of a reading's fraction for 60 limits of length and a decay of 30.
# It falls with the length, grows with the decay and falls with spare utilisation.
# All are fitted by likelihood to queues with 1 to 8 servers, simulated request by request.
# Services took a tenth of the limit, at 0.9 to 1.1 of the peak.
_SPREAD_OUT, _AVERAGED, _SLOWER, _SPARED = 2.0, 0.34, 0.14, 0.03
_LEVELS = 5  # points of the distribution of service times
_BURSTY = 5.0  # variance of the log fraction in readings with few busy periods
_NONE: Final[Array] = np.full(OFFSETS.size, np.nan)
_NEVER, _ALWAYS = 36.0, 8.5  # beyond this exponent, and beyond these sds, a chance is 0 or 1
_MOMENTS = 16  # points of a reading at which its fraction is averaged


def expected(log_peaks: Array, limit: float) -> Array:
    """Return ``[shape, log peak]``: weights before any reading; each column sums to 1.

    The tail of the wait decays with spare utilisation at ``2 * capacity * limit / (ca2 + cs2)``.
    ``c2`` are the squared coefficients of variation of arrivals and services (Kingman 1962). The slope at
    the peak is this decay times the utilisation there. Capacity times utilisation is the rate, so the
    onset is steeper if more requests arrive within the limit.
    """
    slopes = np.array([shape.slope / (1.0 - shape.floor) for shape in SHAPES])
    part = np.array([_VARIABLE / (1.0 + _LONGER * shape.floor) for shape in SHAPES])
    centre = np.clip(limit * part[:, None] * np.exp(log_peaks)[None, :], _MILDEST, _STEEPEST)
    score = (np.log(slopes)[:, None] - np.log(centre)) / _SPREAD
    weights = _COMMON[:, None] * (np.exp(-0.5 * score**2) + _ANY)
    return np.asarray(weights / weights.sum(axis=0))


@dataclass(frozen=True, eq=False)  # compared by identity, as a cache key
class Onset:
    """The expected readings of one length for each shape, ``[shape, offset]``.

    ``fraction`` is the expected fraction of violations, and NaN in abrupt overload, which leaves it open.
    ``likeness`` is the correlation of any two requests of a reading, and NaN for the shapes in ``soft``.
    """

    fraction: Array
    likeness: Array
    soft: Soft | None = None


@dataclass(frozen=True)
class Soft:
    """Soft onset: the logit of a reading's fraction is normal with mean ``centre`` and sd ``spread``.

    Both are ``[shape, offset]``, for the shapes that ``shapes`` marks.
    """

    shapes: NDArray[np.bool_]
    centre: Array
    spread: Array


@lru_cache(maxsize=64)
def onset(allowed: float, limit: float, seconds: float, *, waits: bool = True) -> Onset:
    """Return the expected readings of ``seconds``. Errors (not ``waits``) share no busy periods."""
    shapes = SHAPES if waits else [replace(shape, bursts=False) for shape in SHAPES]
    rows = [_row(shape, allowed, limit, seconds) for shape in shapes]
    fraction, likeness, spread = (np.asarray(table) for table in zip(*rows, strict=True))
    soft = ~np.isnan(spread[:, 0])
    if not soft.any():
        return Onset(fraction, likeness)
    inside = np.clip(fraction[soft], 1e-9, 1.0 - 1e-9)
    centre = logit_normal.centre(inside, spread[soft])
    return Onset(fraction, likeness, Soft(soft, centre, spread[soft]))


def grain(violations: float) -> Array:
    """Return ``[shape]``: the error of one reading near the peak, as the sd of its log rate.

    The capacity of the server does not vary, and ``violations`` are expected.
    """
    slopes = np.array([shape.slope for shape in SHAPES])
    rough = np.array([_BURSTY if shape.bursts else 1.0 / shape.grades for shape in SHAPES])
    return np.asarray(np.sqrt(1.0 / max(violations, 0.1) + rough) / slopes)


class _Row(NamedTuple):
    """The fields of `Onset` for one shape, and the spread of `Soft`."""

    fraction: Array
    likeness: Array = _NONE
    spread: Array = _NONE


def _row(shape: Shape, allowed: float, limit: float, seconds: float) -> _Row:
    if shape.bursts:
        return _queued(shape, allowed, limit, seconds)
    floor = shape.floor * allowed
    height = log(1.0 / (allowed - floor))
    decay = shape.slope / (1.0 - shape.floor) + height
    utilisation = (1.0 - height / decay) * np.exp(OFFSETS)
    if shape.lead is None:
        steady = floor + (1.0 - floor) * np.exp(decay * np.minimum(utilisation - 1.0, 0.0))
        fraction = np.where(utilisation < 1.0, steady, np.nan)
    else:
        late = _late(utilisation, decay, limit, shape.lead, seconds)
        late = np.maximum(late, _settled(utilisation, decay, limit, seconds))
        fraction = floor + (1.0 - floor) * late
    few, many = fraction / (fraction + shape.grades), (1.0 - fraction) / (1.0 - fraction + _ROUGH)
    return _Row(fraction, np.where(fraction < 0.5, few, many))


def _queued(shape: Shape, allowed: float, limit: float, seconds: float) -> _Row:
    """Return a queue's row: a request is late if wait plus exponential service exceeds the limit."""
    assert shape.lead is not None
    services = log(1.0 / (shape.floor * allowed)) if shape.floor else inf
    spare, steepness = _at_peak(allowed, services)
    decay = shape.slope / steepness + spare
    utilisation = (1.0 - spare / decay) * np.exp(OFFSETS)
    if services == inf:
        fraction = _late(utilisation, decay, limit, shape.lead, seconds)
        return _Row(fraction, _shared(utilisation, decay, limit, seconds))
    nodes, weights = np.polynomial.legendre.leggauss(_LEVELS)
    served = (nodes + 1.0) / 2.0  # share of the limit
    weights = weights / 2.0 * services * np.exp(-services * served)
    waits = [_late(utilisation, decay, limit, shape.lead, seconds, 1.0 - part) for part in served]
    fraction = np.minimum(np.exp(-services) + weights @ np.array(waits), 1.0)
    below = np.clip(decay * (1.0 - utilisation), 0.0, 14.0)
    spread = _SPREAD_OUT * (60.0 * limit / seconds) ** _AVERAGED * (decay / 30.0) ** _SLOWER
    spread = np.minimum(spread * np.exp(-_SPARED * (below - spare)), logit_normal.WIDEST)
    return _Row(fraction, spread=spread)


def _at_peak(allowed: float, services: float) -> tuple[float, float]:
    """Return spare utilisation at the peak times the decay of waits, and its effect on log fraction.

    Per limit's length, waits decay at ``spare`` and services at ``services``. Their sum exceeds the limit
    with chance ``(services exp(-spare) - spare exp(-services)) / (services - spare)``.
    """
    if services == inf:
        return log(1.0 / allowed), 1.0
    own = exp(-services)

    def late(spare: float) -> float:
        return (services * exp(-spare) - spare * own) / (services - spare)

    low, high = 0.0, services * (1.0 - 1e-6)
    for _ in range(60):
        spare = (low + high) / 2.0
        low, high = (spare, high) if late(spare) > allowed else (low, spare)
    growth = (-services * exp(-spare) - own) / (services - spare) + allowed / (services - spare)
    return spare, -growth / allowed


def _late(
    utilisation: Array, decay: float, limit: float, lead: float, seconds: float, part: float = 1.0
) -> Array:
    """Return the mean chance of a wait above ``part`` of ``limit`` in ``seconds`` after ``lead``.

    ``lead`` is seconds of load before. In the long run, a wait exceeds ``limit`` with chance
    ``exp(-decay * spare utilisation)``.
    """
    # `check` and `plan` do not measure and need not load this.
    from scipy.special import log_ndtr, ndtr

    t = lead + seconds * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    spread = np.sqrt(2.0 * limit / decay * t)
    from_start = ((utilisation - 1.0) * t[0] - part * limit) / spread[0]
    # Elsewhere the chance is 0 or 1 to fifteen digits, so tens of thousands of points are skipped.
    between = (part * decay * (utilisation - 1.0) > -_NEVER) & (from_start < _ALWAYS)
    drift = (utilisation[between] - 1.0)[:, None]
    free = ndtr((drift * t - part * limit) / spread)
    image = part * drift * decay + log_ndtr(-(part * limit + drift * t) / spread)
    late = np.where(utilisation < 1.0, 0.0, 1.0)
    late[between] = np.minimum(free + np.exp(np.minimum(image, 0.0)), 1.0).mean(axis=1)
    return late


def _settled(utilisation: Array, decay: float, limit: float, seconds: float) -> Array:
    """Return the chance of a wait above ``limit`` if the long-run fraction shows immediately.

    Close to utilisation 1, no queue grows that long in ``seconds``, so spare utilisation has a minimum.
    """
    spare = np.maximum(1.0 - utilisation, 0.5 * np.sqrt(2.0 * limit / decay / seconds))
    return np.asarray(np.exp(-decay * spare))


def _shared(utilisation: Array, decay: float, limit: float, seconds: float) -> Array:
    """Return the likeness of the requests in a reading of a queue with short services.

    It falls with the number of relaxation times in the reading. The relaxation time of the reflected
    Brownian motion is its variance over the square of its drift (Harrison 1985).
    """
    times = (utilisation - 1.0) ** 2 * decay / 2.0 / limit * seconds
    renewed = np.where(utilisation < 1.0, _BELOW * times, _OVERLOADED * times)
    return np.asarray(1.0 / (1.0 + _AT_LEAST + renewed))
