"""Likelihoods for counts of violations, if the violation fraction varies over orders of magnitude.
Counts are binomial, with a logit-normal fraction.

The wait in a queue may exceed the latency limit for a moment or for seconds. Requests that waited almost
as long as the limit are occasionally late, too. Most readings near the peak therefore contain fewer
violations than the mean, and a few readings contain many times more. A beta distribution with the same
mean has a shorter tail. With a beta distribution, the many readings with few violations would indicate a
higher peak.
"""

from __future__ import annotations

from functools import cache
from math import log, pi

import numpy as np

from autotune.measure.noise import Array

MAX_LOGIT_SD = 5.0  # sd of a logit; distributions with larger sds are nearly the same
_SD_GRID = np.linspace(0.2, MAX_LOGIT_SD, 17)
_MEAN_GRID = np.linspace(-45.0, 30.0, 751)
_EULER_GAMMA = 0.5772156649015329
_GUMBEL_VARIANCE = pi**2 / 6.0


def solve_mean_logit(fraction: Array, logit_sd: Array) -> Array:
    """Return the mean of the logit for which the mean of the fraction is ``fraction``.

    ``logit_sd`` is the standard deviation of the logit.
    """
    fraction_logits = np.log(fraction) - np.log1p(-fraction)
    logits_by_spread = np.array(
        [np.interp(fraction_logits, mean_logits, _MEAN_GRID) for mean_logits in _tabulate_means()]
    )
    grid_position = np.interp(logit_sd, _SD_GRID, np.arange(_SD_GRID.size))
    low_index = np.minimum(grid_position.astype(int), _SD_GRID.size - 2)
    index_fraction = grid_position - low_index
    lower_logits, upper_logits = (
        np.take_along_axis(logits_by_spread, row[None], axis=0)[0]
        for row in (low_index, low_index + 1)
    )
    return np.asarray((1.0 - index_fraction) * lower_logits + index_fraction * upper_logits)


def compute_count_likelihood(
    violations: float, intended: float, mean_logit: Array, logit_sd: Array
) -> Array:
    """Return the likelihood of the logit's mean ``mean_logit`` and sd ``logit_sd``, given the counts.

    As a function of the logit, a binomial likelihood has the mean and variance of the logarithm of a
    ratio of gamma variables. If the logit is normally distributed, the average of the binomial likelihood
    is close to a normal density. The variance of this density is the sum of the variances of the logit
    and the logarithm. Without violations (or without correct responses), a Gumbel variable replaces the
    logarithm, and the normal distribution function replaces the density.
    """
    from scipy.special import ndtr, polygamma, psi

    bad_count, good_count = violations, intended - violations
    if min(bad_count, good_count) < 0.5:
        signed_centre = mean_logit if bad_count < 0.5 else -mean_logit
        score = -signed_centre - log(intended) - _EULER_GAMMA
        return np.asarray(ndtr(score / np.sqrt(logit_sd**2 + _GUMBEL_VARIANCE)))
    bad_count, good_count = max(bad_count, 1.0), max(good_count, 1.0)
    variance = logit_sd**2 + polygamma(1, bad_count) + polygamma(1, good_count)
    score = psi(bad_count) - psi(good_count) - mean_logit
    density = np.exp(-0.5 * score**2 / variance) / np.sqrt(2.0 * pi * variance)
    return np.asarray(intended / (bad_count * good_count) * density)


def compute_exceedance_probability(share: float, mean_logit: Array, logit_sd: Array) -> Array:
    """Return the probability that the fraction of violations exceeds ``share``."""
    from scipy.special import ndtr

    return np.asarray(ndtr((mean_logit - log(share / (1.0 - share))) / logit_sd))


@cache
def _tabulate_means() -> Array:
    """Return the logit of the mean fraction for each sd and mean of the logit, ``[sd, mean]``.

    The means are computed by Gauss-Hermite quadrature.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    logits = _MEAN_GRID[None, :, None] + _SD_GRID[:, None, None] * nodes
    bad_means, good = ((1.0 / (1.0 + np.exp(sign * logits))) @ weights for sign in (-1.0, 1.0))
    return np.asarray(np.log(bad_means) - np.log(good))
