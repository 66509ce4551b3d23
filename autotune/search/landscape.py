"""What a study believes about its space: how high each configuration stands, and whether it works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from autotune.search import gaussian, kernels
from autotune.search.evidence import Evidence, compressed, squeezed
from autotune.search.gaussian import Beliefs, Process
from autotune.search.lattice import Lattice, Rows

Array = npt.NDArray[np.float64]

# An observation this many sds below what all others predict of it was disturbed, and loses its say.
DISTURBED = 3.0
ENOUGH = 8  # observations, to judge one by the others
# A disturbance hides a third of a peak, no more: a configuration that carried less than that of what
# the others predict fell off an edge that they know nothing of.
HIDDEN = log(1.5)
# A gain that is worth searching on for, as a log ratio.
MATTERS = 0.01
DRAWS = 200
FAILING = Beliefs(effect=0.5, noise=0.3)


@dataclass(frozen=True)
class Landscape:
    """``heights`` are log peaks relative to the best measured; ``working`` is ``None`` until
    something has failed."""

    lattice: Lattice
    evidence: Evidence
    heights: Process
    working: Process | None

    @classmethod
    def of(cls, lattice: Lattice, evidence: Evidence) -> Landscape:
        leader = evidence.rows[int(evidence.heights.argmax())]
        anchored = tuple(
            kernels.table(axis, int(level))
            for axis, level in zip(lattice.axes, leader, strict=True)
        )
        tables = tuple(kernels.table(axis) for axis in lattice.axes)
        return cls(lattice, evidence, _heights(anchored, evidence), _working(tables, evidence))

    def awaiting(self) -> Landscape:
        """With what is being measured elsewhere taken to come out as believed."""
        return replace(self, heights=self.heights.believing(self.evidence.pending))

    def predict(self, rows: Rows) -> tuple[Array, Array]:
        """Mean and sd of the heights."""
        return self.heights.predict(rows)

    def chance(self, rows: Rows) -> Array:
        """Probability that a configuration works."""
        if self.working is None:
            return np.ones(len(rows))
        mean, sd = self.working.predict(rows)
        return np.asarray(ndtr(mean / np.sqrt(sd**2 + 0.05)))

    def prospect(self, rows: Rows, rng: np.random.Generator) -> float:
        """Chance that any of ``rows`` is better by ``MATTERS`` than the best one measured."""
        best = self.evidence.rows[self.best()]
        drawn = self.heights.draws(np.vstack([best[None, :], rows]), DRAWS, rng)
        return float((drawn[:, 1:].max(axis=1) > drawn[:, 0] + MATTERS).mean())

    def measured(self) -> tuple[Array, Array]:
        """Mean and sd of the rows that were measured. What the others say of one lifts it by
        ``HIDDEN`` at most."""
        mean, sd = self.predict(self.evidence.rows)
        known = self.evidence.heights
        return np.minimum(mean, -squeezed(known.max() - known - HIDDEN)), sd

    def best(self) -> int:
        """Index of the measured row believed to be the highest."""
        return int(self.measured()[0].argmax())


def _heights(tables: tuple[Array, ...], evidence: Evidence) -> Process:
    """All observations first; then without the say of those that the others show to have none.

    A measurement far below what the others predict was disturbed. A screened one is a ceiling: where
    the others predict less, it adds nothing.
    """
    values, sds = compressed(evidence.heights, evidence.sds)
    process = gaussian.fit(tables, evidence.rows, values, sds**2, Beliefs())
    if len(values) < ENOUGH:
        return process
    miss, sd = process.left_out()
    void = (miss < -DISTURBED * sd) | (evidence.screened & (miss > 0.0))
    if not void.any():
        return process
    variances = sds**2 + np.where(void, np.maximum(miss**2, sd**2) * 4.0, 0.0)
    return gaussian.fit(tables, evidence.rows, values, variances, Beliefs())


def _working(tables: tuple[Array, ...], evidence: Evidence) -> Process | None:
    if not len(evidence.failed):
        return None
    rows = np.vstack([evidence.rows, evidence.failed])
    values = np.array([1.0] * len(evidence.rows) + [-1.0] * len(evidence.failed))
    return gaussian.fit(tables, rows, values, np.zeros(len(rows)), FAILING, level=0.5)


def log_improvement(mean: Array, sd: Array, best: float) -> Array:
    """Logarithm of the expected improvement over ``best``, without underflow (Ament et al., 2023)."""
    z = (mean - best) / sd
    density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    near = np.maximum(np.exp(density) + z * ndtr(z), 1e-300)
    # φ(z) + z Φ(z) for z far below zero, by the asymptotic series of Mills' ratio.
    square = np.maximum(z * z, 25.0)
    far = density - np.log(square) + np.log1p(-3.0 / square + 15.0 / square**2)
    return np.asarray(np.log(sd) + np.where(z > -5.0, np.log(near), far))
