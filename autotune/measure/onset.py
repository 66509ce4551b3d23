"""How the violation fraction rises with load: the family of shapes a server may have.

The wait in a queue near saturation is, whatever its arrivals and services, close to a reflected
Brownian motion with drift ``u - 1`` at utilisation ``u`` (Kingman 1962; Harrison 1985, §1.8). The
chance that it exceeds the limit, or the part of the limit that a request's service leaves, has a closed
form. It also holds for the first seconds from an empty queue and in overload, where a backlog grows.
Only one number remains open: how steeply the fraction rises at the peak. The length of the bursts in
which violations come follows from it. Some servers do not make bursts, but show the long-run fraction
at once; some add a floor of violations that no load explains (services with a long tail), and some do
not queue in overload but fail at once. The readings tell which of these a server is.
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
    """One way for violations to set in.

    ``slope``: d log fraction / d log rate at the peak. ``floor``: part of the allowed fraction that
    is there at any load. ``lead``: seconds of load before a reading counts (its warm-up), or
    ``None`` for a server that in overload grows no backlog but fails most requests. ``bursts``:
    violations come in a queue's busy periods, which take time to appear. Without bursts a reading
    shows the long-run fraction at once, and ``grades`` is 1 / variance of its log fraction beyond
    that of counting. With bursts, the ``floor`` is the part that is late because of long services
    alone: a request that waited nearly up to the limit may be late by its service, so that violations
    set in softly. With bursts and no floor, services are short compared with the limit.
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
"""Servers that never meet the objective: their fraction over the allowed one, at any load."""

# How common a shape is among servers of its slope, relative to a queue whose services matter.
# In this order: a queue with short services; no queue; no queue, but a floor.
_SHORT, _UNQUEUED, _ODD = 0.1, 0.3, 0.1


def _common(shape: Shape) -> float:
    if shape.bursts:
        return 1.0 if shape.floor else _SHORT
    return _ODD if shape.floor else _UNQUEUED


_COMMON: Final[Array] = np.array([_common(shape) for shape in SHAPES])
_VARIABLE = 0.9  # expected slope over that of Poisson arrivals and exponential services ...
_LONGER = 2.0  # ... divided by 1 + this * floor: services vary more where some are late at any load
_SPREAD = 0.45  # sd of the log slope around that
_ANY = 0.1  # weight that a shape keeps, however far it is from that
_MILDEST, _STEEPEST = 2.5, 450.0  # slopes beyond which all look alike
_ROUGH = 3.0  # grades of good answers in overload
# Renewals of a queue in a reading: at saturation, and for each relaxation time below and above it.
# Fitted to counts of queues with 1 to 8 servers, simulated request by request at 0.7 to 1.6 of the peak
# for limits of 50 to 200 ms.
_AT_LEAST, _BELOW, _OVERLOADED = 0.8, 0.5, 0.2
# Where services make violations set in softly: sd of the logit of a reading's fraction, for a reading
# as long as 60 limits at the peak and a decay of 30; how it falls with the length, grows with the decay
# and falls with spare utilisation. Fitted by likelihood to counts of queues with 1 to 8 servers and
# services of a tenth of the limit, simulated request by request at 0.9 to 1.1 of the peak.
_SPREAD_OUT, _AVERAGED, _SLOWER, _SPARED = 2.0, 0.34, 0.14, 0.03
_LEVELS = 5  # points of the services' distribution
_BURSTY = 5.0  # variance of the log fraction that readings show where busy periods are few
_NONE: Final[Array] = np.full(OFFSETS.size, np.nan)
_NEVER, _ALWAYS = 36.0, 8.5  # beyond this exponent, and beyond so many sds, a chance is 0 or 1
_MOMENTS = 16  # points of a reading at which its fraction is averaged


def expected(log_peaks: Array, limit: float) -> Array:
    """``[shape, log peak]``: weights before any reading; each column sums to 1.

    The tail of the wait decays with spare utilisation at ``2 * capacity * limit / (ca2 + cs2)``,
    where the ``c2`` are squared coefficients of variation of arrivals and services (Kingman 1962).
    The slope at the peak is this decay times the utilisation there. Capacity times utilisation is the
    rate, so the more requests arrive within the limit, the steeper the onset.
    """
    slopes = np.array([shape.slope / (1.0 - shape.floor) for shape in SHAPES])
    part = np.array([_VARIABLE / (1.0 + _LONGER * shape.floor) for shape in SHAPES])
    centre = np.clip(limit * part[:, None] * np.exp(log_peaks)[None, :], _MILDEST, _STEEPEST)
    score = (np.log(slopes)[:, None] - np.log(centre)) / _SPREAD
    weights = _COMMON[:, None] * (np.exp(-0.5 * score**2) + _ANY)
    return np.asarray(weights / weights.sum(axis=0))


@dataclass(frozen=True, eq=False)  # compared by identity, as a key of caches
class Onset:
    """What readings of some length show of each shape, ``[shape, offset]``.

    ``fraction``: expected fraction of violations; NaN in abrupt overload, which leaves it open.
    ``likeness``: correlation of any two requests of a reading; NaN for the shapes in ``soft``.
    """

    fraction: Array
    likeness: Array
    soft: Soft | None = None


@dataclass(frozen=True)
class Soft:
    """Where violations set in softly, the logit of a reading's fraction is normal with mean ``centre``
    and sd ``spread``: ``[shape, offset]`` for the shapes that ``shapes`` marks."""

    shapes: NDArray[np.bool_]
    centre: Array
    spread: Array


@lru_cache(maxsize=64)
def onset(allowed: float, limit: float, seconds: float, *, waits: bool = True) -> Onset:
    """What readings of ``seconds`` show. Errors (not ``waits``) do not share busy periods."""
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
    """``[shape]``: how far off one reading near the peak is, as the sd of its log rate, for a server
    whose capacity does not vary, where ``violations`` are expected.
    """
    slopes = np.array([shape.slope for shape in SHAPES])
    rough = np.array([_BURSTY if shape.bursts else 1.0 / shape.grades for shape in SHAPES])
    return np.asarray(np.sqrt(1.0 / max(violations, 0.1) + rough) / slopes)


class _Row(NamedTuple):
    """Of one shape: what `Onset` has, and the spread of `Soft`."""

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
    """A queue's row: a request is late if its wait plus its exponential service exceeds the limit."""
    assert shape.lead is not None
    services = log(1.0 / (shape.floor * allowed)) if shape.floor else inf
    spare, steepness = _at_peak(allowed, services)
    decay = shape.slope / steepness + spare
    utilisation = (1.0 - spare / decay) * np.exp(OFFSETS)
    if services == inf:
        fraction = _late(utilisation, decay, limit, shape.lead, seconds)
        return _Row(fraction, _shared(utilisation, decay, limit, seconds))
    nodes, weights = np.polynomial.legendre.leggauss(_LEVELS)
    served = (nodes + 1.0) / 2.0  # of the limit
    weights = weights / 2.0 * services * np.exp(-services * served)
    waits = [_late(utilisation, decay, limit, shape.lead, seconds, 1.0 - part) for part in served]
    fraction = np.minimum(np.exp(-services) + weights @ np.array(waits), 1.0)
    below = np.clip(decay * (1.0 - utilisation), 0.0, 14.0)
    spread = _SPREAD_OUT * (60.0 * limit / seconds) ** _AVERAGED * (decay / 30.0) ** _SLOWER
    spread = np.minimum(spread * np.exp(-_SPARED * (below - spare)), logit_normal.WIDEST)
    return _Row(fraction, spread=spread)


def _at_peak(allowed: float, services: float) -> tuple[float, float]:
    """Spare utilisation at the peak, times the decay of waits, and how fast it lowers log fraction.

    Per limit's length, waits decay at ``spare`` and services at ``services``: their sum exceeds the
    limit with chance ``(services exp(-spare) - spare exp(-services)) / (services - spare)``.
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
    """Mean chance of a wait above ``part`` of ``limit`` in ``seconds`` of load that follow ``lead``
    seconds. In the long run a wait exceeds ``limit`` with chance ``exp(-decay * spare utilisation)``.
    """
    # Not loaded by `check` and `plan`, which do not measure.
    from scipy.special import log_ndtr, ndtr

    t = lead + seconds * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    spread = np.sqrt(2.0 * limit / decay * t)
    from_start = ((utilisation - 1.0) * t[0] - part * limit) / spread[0]
    # Elsewhere the chance is 0 or 1 to fifteen digits: tens of thousands of points are not computed.
    between = (part * decay * (utilisation - 1.0) > -_NEVER) & (from_start < _ALWAYS)
    drift = (utilisation[between] - 1.0)[:, None]
    free = ndtr((drift * t - part * limit) / spread)
    image = part * drift * decay + log_ndtr(-(part * limit + drift * t) / spread)
    late = np.where(utilisation < 1.0, 0.0, 1.0)
    late[between] = np.minimum(free + np.exp(np.minimum(image, 0.0)), 1.0).mean(axis=1)
    return late


def _settled(utilisation: Array, decay: float, limit: float, seconds: float) -> Array:
    """Chance of a wait above ``limit`` where the long-run fraction shows at once, except at
    utilisations so close to 1 that no queue gets that far in ``seconds``.
    """
    spare = np.maximum(1.0 - utilisation, 0.5 * np.sqrt(2.0 * limit / decay / seconds))
    return np.asarray(np.exp(-decay * spare))


def _shared(utilisation: Array, decay: float, limit: float, seconds: float) -> Array:
    """Likeness of the requests of a reading of a queue whose services are short.

    It falls with the number of relaxation times that the reading lasts. The relaxation time of the
    reflected Brownian motion is its variance over the square of its drift (Harrison 1985).
    """
    times = (utilisation - 1.0) ** 2 * decay / 2.0 / limit * seconds
    renewed = np.where(utilisation < 1.0, _BELOW * times, _OVERLOADED * times)
    return np.asarray(1.0 / (1.0 + _AT_LEAST + renewed))
