"""How likely a reading's counts are, given the fraction that a server is expected to violate.

Requests of one reading share its fate: a busy period makes many of them late together. Counts are
beta-binomial, with the expected ``fraction`` and the ``likeness``, the correlation of any two
requests of the reading: 0 for requests independent of each other, 1 for all or nothing.
"""

from __future__ import annotations

from math import log

import numpy as np
from scipy.special import betaln, gammaln

from autotune.measure.noise import Array
from autotune.measure.onset import FLAT, Onset

_ROUGH = 3.0  # grades of good answers in overload, and of servers without a peak
_LAPSE = 0.01  # readings that fit no shape at all
_LOOSE = 0.8  # how far overload, the more of it fails, may look unlike any of the shapes
_LEAST = 1e-9  # fractions and likenesses are kept this far from none and all


def chance(violations: float, intended: float, onset: Onset) -> Array:
    """``[shape, offset]``: likelihood of ``onset`` given the counts."""
    anything = 1.0 / (intended + 1.0)
    failing = 2.5 * anything * ((violations + 0.5) * anything) ** 1.5  # density 2.5 f**1.5
    left_open = np.isnan(onset.fraction)
    open_ended = np.where(left_open, 1.0, _LOOSE * onset.fraction)
    fraction = np.where(left_open, 0.5, onset.fraction)
    fitted = _counted(violations, intended, fraction, np.where(left_open, 0.5, onset.likeness))
    fitted = (1.0 - open_ended) * fitted + open_ended * failing
    return np.asarray((1.0 - _LAPSE) * fitted + _LAPSE * anything)


def flat_chance(violations: float, intended: float, allowed: float) -> Array:
    """Likelihood of the servers ``FLAT`` given the counts."""
    share = np.minimum(FLAT * allowed, 1.0 - 1e-4)
    return _counted(violations, intended, share, share / (share + _ROUGH))


def at_least(violations: float, intended: float, fraction: Array) -> Array:
    """Likelihood of ``fraction`` given only that it would not have come out below the counts."""
    seen = min(max(violations / intended, 1e-9), 1.0 - 0.5 / (intended + 1.0))
    part = np.clip(np.where(np.isnan(fraction), 1.0, fraction), 1e-9, 1.0 - 1e-9)
    excess = np.log(part / (1.0 - part)) - log(seen / (1.0 - seen))
    return _LAPSE + (1.0 - _LAPSE) / (1.0 + np.exp(-np.clip(2.0 * excess, -60.0, 60.0)))


def _counted(violations: float, intended: float, fraction: Array, likeness: Array) -> Array:
    """Beta-binomial chance of the counts."""
    fraction = np.clip(fraction, _LEAST, 1.0 - _LEAST)
    weight = 1.0 / np.clip(likeness, _LEAST, 1.0 - _LEAST) - 1.0
    bad, good = weight * fraction, weight * (1.0 - fraction)
    ways = gammaln(intended + 1.0) - gammaln(violations + 1.0) - gammaln(intended - violations + 1)
    chances = betaln(violations + bad, intended - violations + good) - betaln(bad, good)
    return np.asarray(np.exp(np.maximum(ways + chances, -600.0)))
