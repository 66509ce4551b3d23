"""Covariance of one parameter's effect, as a table over its levels.

Each table describes a function of one parameter that is zero at an anchor, the leading
configuration, or else zero on average over its range (functional ANOVA: Durrande et al., 2013), so
that a sum of them separates main effects, and a product of two is an interaction and nothing else.
Near the anchor little is uncertain, and more with every parameter changed. Two Matérn 5/2
processes, one bending over the whole range and one over a quarter of it, cover slopes, valleys and
thresholds without a length to be learned from few trials.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from autotune.search.lattice import Axis

Array = npt.NDArray[np.float64]

LONG, SHORT, SHORT_SHARE = 1.0, 0.25, 0.25


def table(axis: Axis, anchor: int | None = None) -> Array:
    """Covariance between the levels of ``axis``; its diagonal is 1 on average."""
    if axis.ordered:
        raw = _bending(tuple(axis.units.tolist()))
        weights = np.gradient(axis.units) if len(axis.units) > 2 else np.ones(len(axis.units))
    else:
        raw = np.eye(len(axis.values))
        weights = np.ones(len(axis.values))
    weights = weights / weights.sum()
    pivot = np.eye(len(weights))[anchor] if anchor is not None else weights
    mean = raw @ pivot
    centred = raw - np.outer(mean, mean) / float(pivot @ mean)
    return np.asarray(centred / float(weights @ centred.diagonal()))


@lru_cache(maxsize=256)
def _bending(units: tuple[float, ...]) -> Array:
    """Before it is tied to an anchor; a suggestion asks for the same ones again and again."""
    places = np.array(units)
    distance = np.abs(places[:, None] - places[None, :])
    return (1 - SHORT_SHARE) * matern(distance / LONG) + SHORT_SHARE * matern(distance / SHORT)


def matern(distance: Array) -> Array:
    """Matérn 5/2 correlation at distances in units of its length."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))
