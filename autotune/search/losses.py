"""What each of a winner's changes is worth, from measurements of it with sets of them reverted.

The log peak is taken to be the winner's less the sum of what the reverted changes are worth, which
holds for the small losses that decide here. Every measurement then says something of all changes in
its set, as on a balance that weighs several things at once (Hotelling, 1944), and half of the changes
reverted at a time tells more than each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Reverted = frozenset[str]

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
