"""The smallest part of a winner's changes that keeps nearly all of its gain.

Changes are reverted against the winner. Each that may be without much effect is reverted by itself
once, to find those that clearly matter; then half of the others at a time, which tells what each is
worth with the fewest measurements; at last those to be given up, all together,
until it is sure that the winner loses at most ``1 - KEPT`` of its gain without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]

KEPT = 0.95
SURE, UNSURE = 0.85, 0.1  # chance of being within the line at which a set is let go, or kept
EVEN = 0.5  # and at which it is let go when there are no more measurements
GLANCES, MOST_EACH = 4, 16  # measurements of one set, at least and at most
OPENING = 8  # of the winner, before anything is compared with it
CLEAR = 0.02  # chance of being within the line at which a change matters for certain
DRAWS = 200
# A part of the measurements is for weighing, the rest to prove what was found.
WEIGHING = 0.75
SETTLED = 0.9  # of the draws must agree about each change before weighing ends early

Reverted = frozenset[str]
Measure = Callable[[Reverted], float | None]
"""``measure(reverted)``: log peak of the winner with these changes reverted; ``None``: it fails."""


@dataclass(frozen=True)
class Reduced:
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
    """No more measurements are allowed; what is known has to do."""


class Reduction:
    """One reduction under way. ``gain`` is the winner's log gain, ``noise`` the sd of a log peak."""

    def __init__(
        self, predicted: Mapping[str, Predicted], gain: float, noise: float, measure: Measure,
        most: int,
    ) -> None:  # fmt: skip
        self._predicted, self._gain, self._noise = predicted, gain, noise
        self._measure, self._most = measure, most
        self._weighed = Weighings(predicted, noise)
        self._seen: dict[Reverted, list[float]] = {}
        self._failed: set[Reverted] = set()
        self._reverted: Reverted = frozenset()
        self._spent = 0
        self._rng = np.random.default_rng(len(predicted))
        self._line = (1.0 - KEPT) * gain

    def reduce(self) -> Reduced:
        """Measure until the smallest set is found or the measurements are spent."""
        try:
            for _ in range(OPENING):
                self._take(frozenset())
            light = self._alone()
            self._weigh(light)
            self._prove(light)
        except OutOfBudget:
            # What was measured too seldom for proof is believed.
            believed = [s for s in self._weighed.sets if self._chance(s) > EVEN]
            self._reverted = max((self._reverted, *believed), key=len)
        return self._result(self._reverted)

    def _alone(self) -> list[str]:
        """The changes that may be reverted at all: each that is in doubt was, once or twice.

        Twice where it looks heavy: one measurement alone may have been disturbed.
        """
        ranked = sorted(self._predicted, key=lambda name: self._predicted[name].loss)
        light = []
        for name in ranked:
            change = frozenset({name})
            for _ in range(2):
                if self._chance(change) >= CLEAR and change not in self._seen:
                    self._take(change)
                elif change in self._seen and self._chance(change) < CLEAR:
                    self._take(change)
                    break
            if change not in self._failed and self._chance(change) >= CLEAR:
                light.append(name)
        return light

    def _weigh(self, light: Sequence[str]) -> None:
        """Half of the light changes at a time, until it is clear which of them go together."""
        most = self._spent + WEIGHING * (self._most - self._spent)
        while len(light) > 1 and self._spent + 2 <= most and not self._settled():
            half = frozenset(self._rng.permutation(list(light))[: (len(light) + 1) // 2].tolist())
            # A half and the other half: what the winner's own height adds is the same in both.
            self._take(half)
            self._take(frozenset(light) - half)

    def _settled(self) -> bool:
        """Whether what may be reverted is the same whichever of the likely losses are true."""
        drawn = self._weighed.losses().draws(DRAWS, self._rng)
        agreed = np.mean([within(draw, self._line) for draw in drawn], axis=0)
        return bool((np.maximum(agreed, 1.0 - agreed) >= SETTLED).all())

    def _prove(self, light: Sequence[str]) -> None:
        """The largest set, least loss first, that was measured to be within the line."""
        chosen = self._least(light)
        refused: set[str] = set()
        while chosen and not self._affordable(chosen):
            heaviest = max(chosen, key=self._believed)
            refused.add(heaviest)
            chosen = chosen - {heaviest}
        self._reverted = chosen
        for name in sorted(set(light) - chosen - refused, key=self._believed):
            wider = self._reverted | {name}
            if self._chance(wider) > UNSURE and self._affordable(wider):
                self._reverted = wider
        self._again(set(self._predicted) - set(light))

    def _again(self, heavy: Iterable[str]) -> None:
        """What mattered by itself may not any more: without the parent that made it count, say.

        Sums say nothing of that, so here a set is judged by its own measurements alone.
        """
        for name in sorted(heavy, key=self._believed):
            wider = self._reverted | {name}
            while wider not in self._failed:
                own = len(self._seen.get(wider, ()))
                loss, sd = self._measured(wider) if own else (0.0, 1.0)
                chance = float(ndtr((self._line - loss) / sd))
                if own and (chance < CLEAR or own >= MOST_EACH or (own > 1 and chance > SURE)):
                    break
                self._take(wider, weigh=False)
            if wider not in self._failed and self._measured(wider)[0] <= self._line:
                self._reverted = wider

    def _least(self, light: Sequence[str]) -> Reverted:
        fit = within([self._believed(name) for name in light], self._line)
        return frozenset(name for name, inside in zip(light, fit, strict=True) if inside)

    def _affordable(self, reverted: Reverted) -> bool:
        """Whether the winner without all of these was measured to be within the line."""
        while reverted not in self._failed:
            own, winner = len(self._seen.get(reverted, ())), len(self._seen[frozenset()])
            if own >= GLANCES:
                chance = self._chance(reverted)
                if chance > SURE or chance < UNSURE or own >= MOST_EACH:
                    return chance > EVEN
            self._take(reverted if own <= winner else frozenset())
        return False

    def _measured(self, reverted: Reverted) -> tuple[float, float]:
        """Log loss against the winner and its sd, by measurements of this very set."""
        own, winner = self._seen[reverted], self._seen[frozenset()]
        loss = _middle(winner) - _middle(own)
        return loss, self._noise * sqrt(1 / len(own) + 1 / len(winner))

    @property
    def _losses(self) -> Losses:
        return self._weighed.losses()

    def _believed(self, name: str) -> float:
        return self._losses.of(frozenset({name}))[0]

    def _chance(self, reverted: Reverted) -> float:
        """That reverting these stays within the line, by all that was measured."""
        loss, sd = self._losses.of(reverted)
        return float(ndtr((self._line - loss) / sd))

    def _take(self, reverted: Reverted, *, weigh: bool = True) -> None:
        if self._spent >= self._most:
            raise OutOfBudget
        self._spent += 1
        found = self._measure(reverted)
        if found is None:
            self._failed.add(reverted)
        else:
            self._seen.setdefault(reverted, []).append(found)
            if weigh:
                self._weighed.add(reverted, found)

    def _result(self, reverted: Reverted) -> Reduced:
        losses = self._losses
        loss, sd = losses.of(reverted) if reverted else (0.0, 0.0)
        if reverted in self._seen and reverted:
            loss, sd = self._measured(reverted)
        ranked = sorted(self._predicted, key=self._believed, reverse=True)
        kept = tuple(name for name in ranked if name not in reverted)
        measured = {name for weighed in self._weighed.sets for name in weighed}
        return Reduced(
            kept, tuple(sorted(reverted)),
            1 - loss / self._gain, 1 - (loss + 1.645 * sd) / self._gain,
            1 - (loss - 1.645 * sd) / self._gain, self._spent,
            {name: self._believed(name) for name in kept if name in measured},
        )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    """Mean without those far below the median: a disturbed measurement says nothing."""
    ranked = sorted(values)
    median = ranked[len(ranked) // 2]
    sound = [value for value in ranked if value > median - 0.25]
    return sum(sound) / len(sound)


DISTURBED = 4.0  # sds below what all others say of it: such a measurement says nothing
ROUNDS = 4
_LEVEL_SD = 2.0  # of the winner's own height around its first measurement: next to unknown
# The model was fitted to a search, in which few trials came near the winner.
TRUST = 1.5


@dataclass(frozen=True)
class Predicted:
    """The model's log loss of reverting one change, and its sd."""

    loss: float
    sd: float


@dataclass(frozen=True)
class Losses:
    """Normal beliefs about the log loss of each change: ``names``, their means and covariance."""

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
class Weighings:
    """All measurements so far; ``noise`` is the sd of one log peak."""

    predicted: Mapping[str, Predicted]
    noise: float
    sets: list[Reverted] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)

    def add(self, reverted: Reverted, height: float) -> None:
        self.sets.append(reverted)
        self.heights.append(height)

    def losses(self) -> Losses:
        """What is believed now; measurements far below what all others say have no say."""
        names = tuple(self.predicted)
        design = np.array([[1.0, *(-float(n in s) for n in names)] for s in self.sets])
        heights = np.array(self.heights)
        middle = np.array([heights.max(), *(self.predicted[n].loss for n in names)])
        spread = np.array([_LEVEL_SD, *(TRUST * self.predicted[n].sd for n in names)])
        sound = np.ones(len(heights), bool)
        for _ in range(ROUNDS):
            mean, covariance = _fitted(design[sound], heights[sound], middle, spread, self.noise)
            left = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design) + self.noise**2)
            still = heights - design @ mean > -DISTURBED * left
            if (still == sound).all():
                break
            sound = still
        return Losses(names, mean[1:], covariance[1:, 1:])


def _fitted(
    design: Array, heights: Array, middle: Array, spread: Array, noise: float
) -> tuple[Array, Array]:
    """Mean and covariance of the coefficients, by Bayesian linear regression."""
    information = np.diag(np.maximum(spread, 1e-6) ** -2.0)
    covariance = np.asarray(
        np.linalg.inv(information + design.T @ design / noise**2), dtype=np.float64
    )
    return covariance @ (information @ middle + design.T @ heights / noise**2), covariance


def within(losses: Sequence[float] | Array, line: float) -> npt.NDArray[np.bool_]:
    """Which changes, least loss first, can be reverted before their sum passes ``line``."""
    order = np.argsort(losses)
    summed = np.cumsum(np.asarray(losses)[order])
    chosen = np.zeros(len(order), bool)
    chosen[order] = summed <= line
    return chosen
