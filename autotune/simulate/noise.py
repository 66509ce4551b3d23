"""Noise that makes two readings of the same configuration differ, as on real machines.

The noise is a function of the seed, the virtual time and the number of the reading. A resumed study
therefore gets the same noise as an uninterrupted study.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi, sin, sqrt

import numpy as np

CORRELATION_SECONDS = 45.0  # correlation time of the half of the noise that varies slowly
SWING_SECONDS = 2400.0  # period of the slow swing
# Range of the share of the capacity that is left during a disturbed reading.
MIN_DISTURBED_SHARE, MAX_DISTURBED_SHARE = 0.45, 0.80


@dataclass(frozen=True)
class NoiseModel:
    """Noise of a simulated stack.

    - ``reading_sd``: sd of the log capacity between readings. Readings close in time share half of the
      variance.
    - ``drift_sd``: amplitude of a slow swing, as a fraction of the capacity.
    - ``outlier_share``: fraction of disturbed readings. A disturbance only lowers the capacity.
    - ``level``: capacity of the whole stack, relative to the model. The level differs between test
      beds.
    """

    seed: int = 1
    reading_sd: float = 0.03
    drift_sd: float = 0.0
    outlier_share: float = 0.03
    level: float = 1.0

    def draw_capacity_factor(self, study_seconds: float, rng: np.random.Generator) -> float:
        """Return the factor by which noise changes the capacity in a reading ``study_seconds`` seconds
        after the start of the study.
        """
        independent_noise = self.reading_sd / sqrt(2.0) * rng.standard_normal()
        correlated_noise = self._draw_correlated_normal(study_seconds)
        is_disturbed = rng.random() < self.outlier_share
        disturbed_share = rng.uniform(MIN_DISTURBED_SHARE, MAX_DISTURBED_SHARE)
        swing = self.drift_sd * sin(2.0 * pi * study_seconds / SWING_SECONDS + 2.4 * self.seed)
        log_factor = (
            independent_noise
            + self.reading_sd / sqrt(2.0) * correlated_noise
            + log(max(1.0 + swing, 0.05))
        )
        return self.level * float(
            np.exp(log_factor + (log(disturbed_share) if is_disturbed else 0.0))
        )

    def create_reading_rng(self, reading_number: int) -> np.random.Generator:
        """Return the random generator for the reading with this number."""
        return np.random.default_rng((self.seed, 1, reading_number))

    def _draw_correlated_normal(self, study_seconds: float) -> float:
        """Return a standard normal value. Values at moments close in time are similar."""
        interval_number, fraction = divmod(max(0.0, study_seconds) / CORRELATION_SECONDS, 1.0)
        value_before, value_after = (
            np.random.default_rng((self.seed, 2, int(interval_number) + k)).standard_normal()
            for k in (0, 1)
        )
        angle = fraction * pi / 2.0
        return float(value_before * np.cos(angle) + value_after * np.sin(angle))
