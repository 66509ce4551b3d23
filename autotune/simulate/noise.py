"""What makes two readings of the same configuration differ, as on real machines.

All of it is a function of the seed, the virtual time and the number of the reading, so that a study
that is resumed meets the same noise again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi, sin, sqrt

import numpy as np

CORRELATION = 45.0  # seconds over which the correlated half of the noise comes and goes
SWING_PERIOD = 2400.0  # seconds of one slow rise and fall
LEAST, MOST = 0.45, 0.80  # share of the capacity left to a disturbed reading


@dataclass(frozen=True)
class NoiseModel:
    """``noise``: sd of the log of the capacity from reading to reading, half of its variance shared
    by readings near in time; ``drift``: how far a slow swing goes, as a fraction of the capacity;
    ``outliers``: fraction of readings that something else on the machine disturbs. A disturbance
    only ever takes capacity away. ``level`` is the capacity of the whole stack relative to the
    model, by which one test bed differs from another.
    """

    seed: int = 1
    noise: float = 0.03
    drift: float = 0.0
    outliers: float = 0.03
    level: float = 1.0

    def capacity(self, at: float, rng: np.random.Generator) -> float:
        """The factor on the capacity for a reading ``at`` seconds into the study."""
        loose, shared = self.noise / sqrt(2.0) * rng.standard_normal(), self._correlated(at)
        disturbed = rng.random() < self.outliers
        left = rng.uniform(LEAST, MOST)
        swing = self.drift * sin(2.0 * pi * at / SWING_PERIOD + 2.4 * self.seed)
        log_factor = loose + self.noise / sqrt(2.0) * shared + log(max(1.0 + swing, 0.05))
        return self.level * float(np.exp(log_factor + (log(left) if disturbed else 0.0)))

    def reading(self, number: int) -> np.random.Generator:
        """The random numbers of one reading."""
        return np.random.default_rng((self.seed, 1, number))

    def _correlated(self, at: float) -> float:
        """Standard normal at each moment, and similar at moments close in time."""
        whole, part = divmod(max(0.0, at) / CORRELATION, 1.0)
        before, after = (
            np.random.default_rng((self.seed, 2, int(whole) + k)).standard_normal() for k in (0, 1)
        )
        turn = part * pi / 2.0
        return float(before * np.cos(turn) + after * np.sin(turn))
