"""The posterior over log peak, shape of onset and noise, given the readings.

Requests of one reading are not independent: a busy period makes many of them late together. Counts are
beta-binomial, with the expected fraction of violations and the ``likeness``. The likeness is the
correlation of any two requests of the reading: 0 for independent requests, 1 for all or nothing. With a
soft onset, counts are binomial with a logit-normal fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, floor, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from autotune.estimate import WITHIN_90, Estimate
from autotune.measure import logit_normal, onset
from autotune.measure.noise import EFFECTS, REACH, STEP, Array, Noise, blur

if TYPE_CHECKING:
    from autotune.measure.reading import Reading
    from autotune.target.slo import Slo

_ROUGH = 3.0  # grades of correct answers in overload, and of servers without a peak
_LAPSE = 0.01  # fraction of readings that fit no shape at all
# Weight of an overload that is unlike all shapes, as a multiple of the failed fraction.
_LOOSE = 0.8
_LEAST = 1e-9  # minimum distance of fractions and likenesses from 0 and 1


def chance(violations: float, intended: float, expected: onset.Onset) -> Array:
    """Return ``[shape, offset]``: the likelihood of each shape given the counts."""
    anything = 1.0 / (intended + 1.0)
    failing = 2.5 * anything * ((violations + 0.5) * anything) ** 1.5  # density 2.5 f**1.5
    open_ended, beta = _before_counts(expected)
    if (soft := expected.soft) is None:
        fitted = _counted(violations, intended, beta)
    else:
        fitted = np.empty_like(open_ended)
        fitted[~soft.shapes] = _counted(violations, intended, beta)
        fitted[soft.shapes] = logit_normal.chance(violations, intended, soft.centre, soft.spread)
    fitted = (1.0 - open_ended) * fitted + open_ended * failing
    return np.asarray((1.0 - _LAPSE) * fitted + _LAPSE * anything)


def flat_chance(violations: float, intended: float, allowed: float) -> Array:
    """Return the likelihood of the servers ``onset.FLAT`` given the counts."""
    share = np.minimum(onset.FLAT * allowed, 1.0 - 1e-4)
    return _counted(violations, intended, _beta(share, share / (share + _ROUGH)))


def at_least(violations: float, intended: float, fraction: Array) -> Array:
    """Return the likelihood of ``fraction`` given the counts so far, which are a lower bound."""
    counted = min(max(violations / intended, 1e-9), 1.0 - 0.5 / (intended + 1.0))
    part = np.clip(np.where(np.isnan(fraction), 1.0, fraction), 1e-9, 1.0 - 1e-9)
    excess = np.log(part / (1.0 - part)) - log(counted / (1.0 - counted))
    return _LAPSE + (1.0 - _LAPSE) / (1.0 + np.exp(-np.clip(2.0 * excess, -60.0, 60.0)))


def _beyond(share: float, expected: onset.Onset) -> Array:
    """Return the chance, by shape, that more than this share of a reading violates, as in a burst."""
    from scipy.special import betainc

    fraction = np.clip(expected.fraction, _LEAST, 1.0 - _LEAST)
    weight = 1.0 / np.clip(expected.likeness, _LEAST, 1.0 - _LEAST) - 1.0
    within = betainc(weight * fraction, weight * (1.0 - fraction), share)
    beyond = np.where(np.isnan(within), 0.0, 1.0 - within)
    if (soft := expected.soft) is not None:
        beyond[soft.shapes] = logit_normal.beyond(share, soft.centre, soft.spread)
    return np.asarray(beyond)


class _Beta(NamedTuple):
    """Beta distributions of fractions: their parameters, and the logarithms of the beta function."""

    bad: Array
    good: Array
    log_beta: Array


def _beta(fraction: Array, likeness: Array) -> _Beta:
    from scipy.special import betaln

    fraction = np.clip(fraction, _LEAST, 1.0 - _LEAST)
    weight = 1.0 / np.clip(likeness, _LEAST, 1.0 - _LEAST) - 1.0
    bad, good = weight * fraction, weight * (1.0 - fraction)
    return _Beta(bad, good, betaln(bad, good))


@lru_cache(maxsize=32)  # a search's readings have few lengths
def _before_counts(expected: onset.Onset) -> tuple[Array, _Beta]:
    """Return the openness of each shape to any overload, and the distributions of its fractions.

    Both do not depend on counts. The distributions leave out the soft shapes.
    """
    left_open = np.isnan(expected.fraction)
    open_ended = np.where(left_open, 1.0, _LOOSE * expected.fraction)
    fraction = np.where(left_open, 0.5, expected.fraction)
    likeness = np.where(left_open, 0.5, expected.likeness)
    if expected.soft is not None:
        fraction, likeness = fraction[~expected.soft.shapes], likeness[~expected.soft.shapes]
    return open_ended, _beta(fraction, likeness)


def _counted(violations: float, intended: float, beta: _Beta) -> Array:
    """Return the beta-binomial chance of the counts."""
    from scipy.special import betaln, gammaln

    orders = (
        gammaln(intended + 1.0) - gammaln(violations + 1.0) - gammaln(intended - violations + 1)
    )
    chances = betaln(violations + beta.bad, intended - violations + beta.good) - beta.log_beta
    return np.asarray(np.exp(np.maximum(orders + chances, -600.0)))


_TAIL = 3.0  # degrees of freedom of the prior: a peak three times the expected one is plausible
_ANYWHERE = 0.05  # share of the prior that is flat over all rates
_UNMEETABLE = 0.03  # prior chance that no rate at all meets the objective
# Peaks this many nats below the best are dropped: about eight readings would not revive them.
_NEGLIGIBLE = 40.0
_ENDED = 0.5  # share of violations that stops a reading early
_LEAST_LEFT = 0.05  # minimum share of the capacity that CPU steal leaves
_TIME_GRAIN = 0.1  # log step of a reading's seconds, so that readings share tables


@dataclass(frozen=True)
class Counts:
    """A reading against lateness or errors, whichever part of the SLO it comes closest to violating.

    It counts ``violations`` out of ``intended``, and the SLO allows the fraction ``allowed``. ``errors``
    is true if the part is errors.
    """

    violations: float
    intended: float
    allowed: float
    errors: bool = False


def closest_to_breaking(reading: Reading, slo: Slo) -> Counts:
    """Return ``reading`` against the part of ``slo`` that it comes closest to violating."""
    late, broken = max(slo.allowed, 1e-6), max(slo.errors, 1e-6)
    n = max(reading.intended, 1)
    violations = min(max(reading.violations, reading.failed), n)
    if reading.intended <= 0:
        return Counts(1.0, 1.0, late)
    if min(reading.failed, n) / broken > violations / late:
        return Counts(float(min(reading.failed, n)), float(n), broken, errors=True)
    return Counts(float(violations), float(n), late)


@dataclass(frozen=True)
class Posterior:
    """Log weights ``[effect, sigma, shape, log peak]`` on a grid that starts at ``origin``.

    ``flat`` are the log weights of the servers without a peak, ``onset.FLAT``. ``effects`` are the log
    weights of `noise.EFFECTS`, the effect of CPU steal on the capacity. Before the first steal, ``live``
    has a single level for all effects.
    """

    origin: float
    live: Array
    flat: Array
    effects: Array

    @classmethod
    def opening(
        cls,
        prior: Estimate | None,
        noise: Noise,
        slo: Slo,
        *,
        lowest: float,
        highest: float,
        through: float,
    ) -> Posterior:
        """Return the posterior before any reading: peaks from ``lowest`` to ``highest``.

        ``through`` is a point of the grid. ``prior`` is the expected peak. Its tails are heavy: a peak
        several times higher or lower costs a few readings more.
        """
        below = floor(log(through / lowest) / STEP)
        origin = log(through) - below * STEP
        size = below + floor(log(highest / through) / STEP) + 1
        peaks = origin + STEP * np.arange(size, dtype=np.float64)
        density = np.full(peaks.size, 1.0 / peaks.size)
        if prior is not None:
            if prior.sd <= 0:
                raise ValueError("the prior needs a positive sd")
            score = (peaks - prior.log_mean) / prior.sd
            student = (1.0 + score**2 / _TAIL) ** (-(_TAIL + 1.0) / 2.0)
            density = _ANYWHERE * density + (1.0 - _ANYWHERE) * student / student.sum()
        shapes = onset.expected(peaks, slo.limit)
        live = np.log((1.0 - _UNMEETABLE) * density * noise.opening(shapes))[None]
        flat = np.full(onset.FLAT.size, log(_UNMEETABLE / onset.FLAT.size))
        return cls(origin, live, flat, np.log(noise.of_steal()))

    def after(self, reading: Reading, slo: Slo) -> Posterior:
        """Return the posterior with one more reading; an invalid reading changes nothing."""
        if not reading.is_valid:
            return self
        counts = closest_to_breaking(reading, slo)
        grain = round(log(max(reading.seconds, 0.05)) / _TIME_GRAIN)
        expected = onset.onset(
            counts.allowed, slo.limit, exp(grain * _TIME_GRAIN), waits=not counts.errors
        )
        if reading.truncated:  # it failed, even if it counted few violations
            least = min(3.0 * counts.allowed, 0.5) * counts.intended
            violations = max(counts.violations, least)
            flat = at_least(
                violations, counts.intended, np.minimum(onset.FLAT * counts.allowed, 1.0)
            )
            fits = at_least(violations, counts.intended, expected.fraction)
            fits = np.maximum(fits, _beyond(min(violations / counts.intended, _ENDED), expected))
        else:
            flat = flat_chance(counts.violations, counts.intended, counts.allowed)
            fits = chance(counts.violations, counts.intended, expected)
        flat = self.flat + np.log(flat)
        live = self._with_losses(blur(fits), log(reading.rate) - self.origin, reading.stolen)
        best = live.max(axis=(0, 1, 2))
        top = max(float(best.max()), float(flat.max()))
        likely = np.flatnonzero(best > top - _NEGLIGIBLE)
        first, last = (int(likely[0]), int(likely[-1]) + 1) if likely.size else (0, best.size)
        origin = self.origin + STEP * first
        return replace(self, origin=origin, live=live[..., first:last] - top, flat=flat - top)

    def _with_losses(self, table: Array, rate: float, stolen: float) -> Array:
        """Return ``live`` with the likelihoods of a reading ``rate`` (log) above ``origin``.

        ``stolen`` is its CPU steal. Each effect makes it a reading of a lower capacity.
        """
        losses = [-log(max(1.0 - effect * stolen, _LEAST_LEFT)) for effect in EFFECTS]
        offsets = [round(rate / STEP) + round(loss / STEP) for loss in losses]
        live = self.live
        table = _logarithms(table, live.shape[3], offsets)
        if len(live) == 1 and len(set(offsets)) == 1:
            return _added(live[0], table, offsets[0])[None]
        if len(live) == 1:
            live = live + self.effects[:, None, None, None]
        added = [_added(at, table, offset) for at, offset in zip(live, offsets, strict=True)]
        return np.asarray(added)

    def summary(self) -> Summary:
        """Return the marginals of the posterior."""
        weights = np.exp(self.live)
        flat = float(np.exp(self.flat).sum())
        total = float(weights.sum())
        return Summary(
            self.origin,
            np.cumsum(weights.sum(axis=(0, 1, 2))) / total,
            weights.sum(axis=(0, 3)) / total,
            flat / (flat + total),
            weights.sum(axis=(1, 2, 3)) / total if len(weights) > 1 else None,
        )


@dataclass(frozen=True)
class Summary:
    """Marginals of a posterior.

    - ``below``: distribution function of log peak on its grid.
    - ``noises``: weights ``[sigma, shape]``.
    - ``unmeetable``: chance that there is no peak, which the other marginals leave out.
    - ``effects``: weights of `noise.EFFECTS`, after CPU steal.
    """

    origin: float
    below: Array
    noises: Array
    unmeetable: float
    effects: Array | None = None

    def quantile(self, q: float) -> float:
        """Return the log rate below which the peak lies with chance ``q``."""
        at = int(np.searchsorted(self.below, q))
        if at == 0:
            return self.origin
        low, high = float(self.below[at - 1]), float(self.below[at])
        return self.origin + STEP * (at - 0.5 + (q - low) / max(high - low, 1e-12))

    def chance_above(self, rate: Estimate) -> float:
        """Return the chance that the peak exceeds ``rate``."""
        density = np.diff(self.below, prepend=0.0)
        gap = self.origin + STEP * np.arange(self.below.size) - rate.log_mean
        weight = 1.0 / (1.0 + np.exp(-np.clip(1.702 * gap / max(rate.sd, STEP / 2), -60.0, 60.0)))
        return float(np.dot(density, weight))

    @property
    def sd(self) -> float:
        """The standard deviation of log peak, from its 90 % interval."""
        return (self.quantile(0.95) - self.quantile(0.05)) / (2 * WITHIN_90)


def _logarithms(table: Array, size: int, offsets: Sequence[int]) -> Array:
    """Return the logarithms of the few columns that ``_added`` takes for ``size`` peaks."""
    logarithms = np.empty_like(table)
    first, last = min(offsets) + REACH - size + 1, max(offsets) + REACH + 1
    for columns in (slice(1), slice(max(first, 0), max(last, 0)), slice(-1, None)):
        logarithms[..., columns] = np.log(np.maximum(table[..., columns], 1e-300))
    return logarithms


def _added(live: Array, table: Array, offset: int) -> Array:
    """Return ``live`` plus, for each grid point, the column of ``table`` for its distance.

    The distance is from a reading ``offset`` steps above the first point. Beyond its ends, the table
    keeps its last values.
    """
    size, first = (
        live.shape[2],
        offset + REACH,
    )  # column of the first point; later points have lower ones
    over = min(max(first - 2 * REACH, 0), size)
    end = max(min(first + 1, size), over)
    summed = np.empty_like(live)
    np.add(live[:, :, :over], table[:, :, -1:], out=summed[:, :, :over])
    faced = table[:, :, max(first - end + 1, 0) : max(first - over + 1, 0)][:, :, ::-1]
    np.add(live[:, :, over:end], faced, out=summed[:, :, over:end])
    np.add(live[:, :, end:], table[:, :, :1], out=summed[:, :, end:])
    return summed
