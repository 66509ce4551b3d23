"""Ablation of a winner: the smallest part of its changes that keeps nearly all of its gain.

Changes are reverted against the winner. First, each change that may have little effect is reverted by
itself, to find those that clearly matter. Then half of the others are reverted at a time, which
estimates their effects with the fewest measurements. Last, the changes to drop are reverted together,
until it is sure that the winner loses at most ``1 - KEPT`` of its gain without them.

The log peak is taken to be the winner's less the sum of the effects of the reverted changes, which
holds for the small losses that decide here. Each measurement then informs the estimates of all
changes in its set, as in a weighing design (Hotelling, 1944).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from autotune.estimate import WITHIN_90

Array = npt.NDArray[np.float64]
Reverted = frozenset[str]
Measure = Callable[[Reverted], float | None]
"""``measure(reverted)``: log peak of the winner with these changes reverted; ``None``: it fails."""

KEPT = 0.95
# Probability that a set costs no more than the limit: above SURE the set is dropped, below UNSURE kept.
SURE, UNSURE = 0.85, 0.1
EVEN = 0.5  # above this, it is dropped when there are no more measurements
ESSENTIAL = 0.02  # below this, a change matters for certain
LEAST_EACH, MOST_EACH = 4, 16  # measurements of one set
OPENING = 8  # measurements of the winner, before anything is compared with it
DRAWS = 200
ESTIMATION = 0.75  # of the measurements left after screening estimate effects, the others verify
AGREED = 0.9  # of the draws must agree about each change before estimation ends early
DISTURBED = 4.0  # sds below what all others predict: such a measurement is disregarded
ROUNDS = 4
LEVEL_SD = 2.0  # prior sd of the winner's log peak around the highest measurement: nearly flat
# The model was fitted to a search, in which few trials came near the winner: its sds are too small.
TRUST = 1.5


@dataclass(frozen=True)
class PredictedEffect:
    """The model's log loss of reverting one change, and its sd."""

    loss: float
    sd: float


@dataclass(frozen=True)
class Effects:
    """Normal posterior of the log loss of reverting each change: ``names``, mean and covariance."""

    names: tuple[str, ...]
    mean: Array
    covariance: Array

    def of(self, reverted: Reverted) -> tuple[float, float]:
        """Log loss of reverting all of these, and its sd."""
        chosen = np.array([name in reverted for name in self.names], float)
        variance = float(chosen @ self.covariance @ chosen)
        return float(chosen @ self.mean), max(variance, 1e-12) ** 0.5

    def draws(self, count: int, rng: np.random.Generator) -> Array:
        """``[draw, change]``."""
        return rng.multivariate_normal(self.mean, self.covariance, count, method="eigh")


@dataclass
class EffectRegression:
    """Effects by Bayesian linear regression on all measurements; ``noise`` is the sd of one log peak."""

    predicted: Mapping[str, PredictedEffect]
    noise: float
    sets: list[Reverted] = field(default_factory=list)
    log_peaks: list[float] = field(default_factory=list)

    def add(self, reverted: Reverted, log_peak: float) -> None:
        self.sets.append(reverted)
        self.log_peaks.append(log_peak)

    def effects(self) -> Effects:
        """The posterior; measurements far below what all others predict are disregarded."""
        names = tuple(self.predicted)
        design = np.array([[1.0, *(-float(n in s) for n in names)] for s in self.sets])
        log_peaks = np.array(self.log_peaks)
        mean = np.array([log_peaks.max(), *(self.predicted[n].loss for n in names)])
        sd = np.array([LEVEL_SD, *(TRUST * self.predicted[n].sd for n in names)])
        sound = np.ones(len(log_peaks), bool)
        for _ in range(ROUNDS):
            fitted, covariance = _regression(design[sound], log_peaks[sound], mean, sd, self.noise)
            spread = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design) + self.noise**2)
            still_sound = log_peaks - design @ fitted > -DISTURBED * spread
            if (still_sound == sound).all():
                break
            sound = still_sound
        return Effects(names, fitted[1:], covariance[1:, 1:])


def _regression(
    design: Array, values: Array, prior_mean: Array, prior_sd: Array, noise: float
) -> tuple[Array, Array]:
    """Posterior mean and covariance of the coefficients."""
    information = np.diag(np.maximum(prior_sd, 1e-6) ** -2.0)
    covariance = np.asarray(
        np.linalg.inv(information + design.T @ design / noise**2), dtype=np.float64
    )
    return covariance @ (information @ prior_mean + design.T @ values / noise**2), covariance


def affordable(losses: Sequence[float] | Array, limit: float) -> npt.NDArray[np.bool_]:
    """Which changes, least loss first, can be reverted before their sum passes ``limit``."""
    order = np.argsort(losses)
    total = np.cumsum(np.asarray(losses)[order])
    chosen = np.zeros(len(order), bool)
    chosen[order] = total <= limit
    return chosen


@dataclass(frozen=True)
class AblationResult:
    """``kept`` changes carry ``share`` of the log gain, between ``low`` and ``high`` with 90 %.

    ``losses``: what reverting each kept change costs by itself, as measured (log).
    """

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    share: float
    low: float
    high: float
    measurements: int
    losses: Mapping[str, float] = field(default_factory=dict)


class OutOfBudget(Exception):
    """No more measurements are allowed: the ablation ends with what is known."""


class Ablation:
    """One ablation under way. ``gain`` is the winner's log gain, ``noise`` the sd of a log peak."""

    def __init__(
        self, predicted: Mapping[str, PredictedEffect], gain: float, noise: float,
        measure: Measure, most: int,
    ) -> None:  # fmt: skip
        self._predicted, self._gain, self._noise = predicted, gain, noise
        self._measure, self._most = measure, most
        self._regression = EffectRegression(predicted, noise)
        self._log_peaks: dict[Reverted, list[float]] = {}
        self._failed: set[Reverted] = set()
        self._reverted: Reverted = frozenset()
        self._spent = 0
        self._rng = np.random.default_rng(len(predicted))
        self._limit = (1.0 - KEPT) * gain

    def run(self) -> AblationResult:
        """Measure until the smallest set of changes is found or the measurements are spent."""
        try:
            for _ in range(OPENING):
                self._take(frozenset())
            removable = self._screen()
            self._estimate(removable)
            self._verify(removable)
        except OutOfBudget:
            # Sets measured too seldom to verify are dropped if that is likely to be right.
            likely = [s for s in self._regression.sets if self._probability(s) > EVEN]
            self._reverted = max((self._reverted, *likely), key=len)
        return self._result()

    def _screen(self) -> list[str]:
        """The changes that may be reverted at all; each one in doubt is measured by itself.

        A change that then looks essential is measured again: one measurement may have been disturbed.
        """
        ranked = sorted(self._predicted, key=lambda name: self._predicted[name].loss)
        removable = []
        for name in ranked:
            change = frozenset({name})
            for _ in range(2):
                if self._probability(change) >= ESSENTIAL and change not in self._log_peaks:
                    self._take(change)
                elif change in self._log_peaks and self._probability(change) < ESSENTIAL:
                    self._take(change)
                    break
            if change not in self._failed and self._probability(change) >= ESSENTIAL:
                removable.append(name)
        return removable

    def _estimate(self, removable: Sequence[str]) -> None:
        """Revert half of the removable changes at a time, until it is clear which can go together."""
        most = self._spent + ESTIMATION * (self._most - self._spent)
        size = (len(removable) + 1) // 2
        while len(removable) > 1 and self._spent + 2 <= most and not self._agreed():
            half = frozenset(self._rng.permutation(list(removable))[:size].tolist())
            # Measure both halves: the winner's own log peak adds the same to either.
            self._take(half)
            self._take(frozenset(removable) - half)

    def _agreed(self) -> bool:
        """Whether ``AGREED`` of the posterior's draws agree on each change: droppable or not."""
        draws = self._regression.effects().draws(DRAWS, self._rng)
        dropped = np.mean([affordable(draw, self._limit) for draw in draws], axis=0)
        return bool((np.maximum(dropped, 1.0 - dropped) >= AGREED).all())

    def _verify(self, removable: Sequence[str]) -> None:
        """Revert the largest set, least loss first, that is measured to cost no more than the limit."""
        affords = affordable([self._loss(name) for name in removable], self._limit)
        chosen = frozenset(n for n, inside in zip(removable, affords, strict=True) if inside)
        refused: set[str] = set()
        while chosen and not self._verified(chosen):
            costliest = max(chosen, key=self._loss)
            refused.add(costliest)
            chosen = chosen - {costliest}
        self._reverted = chosen
        for name in sorted(set(removable) - chosen - refused, key=self._loss):
            wider = self._reverted | {name}
            if self._probability(wider) > UNSURE and self._verified(wider):
                self._reverted = wider
        self._recheck(set(self._predicted) - set(removable))

    def _recheck(self, essential: Iterable[str]) -> None:
        """Drop changes that mattered by themselves but no longer do, say without a parent parameter.

        The regression cannot express that, so a set is decided by its own measurements alone.
        """
        for name in sorted(essential, key=self._loss):
            wider = self._reverted | {name}
            while wider not in self._failed:
                count = len(self._log_peaks.get(wider, ()))
                loss, sd = self._measured(wider) if count else (0.0, 1.0)
                probability = float(ndtr((self._limit - loss) / sd))
                clear = probability < ESSENTIAL or (count > 1 and probability > SURE)
                if count and (clear or count >= MOST_EACH):
                    break
                self._take(wider, regress=False)
            if wider not in self._failed and self._measured(wider)[0] <= self._limit:
                self._reverted = wider

    def _verified(self, reverted: Reverted) -> bool:
        """Whether the winner without all of these was measured to lose no more than the limit."""
        while reverted not in self._failed:
            count = len(self._log_peaks.get(reverted, ()))
            if count >= LEAST_EACH:
                probability = self._probability(reverted)
                if probability > SURE or probability < UNSURE or count >= MOST_EACH:
                    return probability > EVEN
            fewer = count <= len(self._log_peaks[frozenset()])
            self._take(reverted if fewer else frozenset())
        return False

    def _measured(self, reverted: Reverted) -> tuple[float, float]:
        """Log loss against the winner and its sd, by measurements of this very set."""
        reduced, winner = self._log_peaks[reverted], self._log_peaks[frozenset()]
        loss = _robust_mean(winner) - _robust_mean(reduced)
        return loss, self._noise * sqrt(1 / len(reduced) + 1 / len(winner))

    def _loss(self, name: str) -> float:
        return self._regression.effects().of(frozenset({name}))[0]

    def _probability(self, reverted: Reverted) -> float:
        """Probability that reverting these costs no more than the limit, by all measurements."""
        loss, sd = self._regression.effects().of(reverted)
        return float(ndtr((self._limit - loss) / sd))

    def _take(self, reverted: Reverted, *, regress: bool = True) -> None:
        if self._spent >= self._most:
            raise OutOfBudget
        self._spent += 1
        log_peak = self._measure(reverted)
        if log_peak is None:
            self._failed.add(reverted)
        else:
            self._log_peaks.setdefault(reverted, []).append(log_peak)
            if regress:
                self._regression.add(reverted, log_peak)

    def _result(self) -> AblationResult:
        reverted = self._reverted
        effects = self._regression.effects()
        loss, sd = effects.of(reverted) if reverted else (0.0, 0.0)
        if reverted in self._log_peaks and reverted:
            loss, sd = self._measured(reverted)
        ranked = sorted(self._predicted, key=self._loss, reverse=True)
        kept = tuple(name for name in ranked if name not in reverted)
        measured = {name for reverted_set in self._regression.sets for name in reverted_set}
        return AblationResult(
            kept, tuple(sorted(reverted)),
            1 - loss / self._gain, 1 - (loss + WITHIN_90 * sd) / self._gain,
            1 - (loss - WITHIN_90 * sd) / self._gain, self._spent,
            {name: self._loss(name) for name in kept if name in measured},
        )  # fmt: skip


def _robust_mean(log_peaks: Sequence[float]) -> float:
    """Mean without those far below the median, which were disturbed."""
    ranked = sorted(log_peaks)
    median = ranked[len(ranked) // 2]
    sound = [log_peak for log_peak in ranked if log_peak > median - 0.25]
    return sum(sound) / len(sound)
