"""The difference in capacity between one test bed and an average test bed."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt

from autotune.estimate import MEASUREMENT_LOG_SD, Estimate


@dataclass(frozen=True)
class BedOffset:
    """The offset of a bed: ``log`` is the bed's log peak minus the log peak of an average bed. ``sd``
    is the error of ``log``.

    ``noise`` is the sd of a log peak on this bed, in addition to the measurement's own sd. ``measured``
    is the number of measurements that the offset is based on.
    """

    log: float = 0.0
    sd: float = 0.0
    noise: float = MEASUREMENT_LOG_SD
    measured: int = 0

    def remove_from_peak(self, peak: Estimate) -> Estimate:
        """Return the peak that an average bed would have measured."""
        return Estimate(peak.log_mean - self.log, hypot(peak.sd, self.sd, self.excess_sd))

    def add_to_peak(self, peak: Estimate) -> Estimate:
        """Return the peak that this bed is expected to measure."""
        return Estimate(peak.log_mean + self.log, hypot(peak.sd, self.sd))

    @property
    def excess_sd(self) -> float:
        """Return the sd of this bed's noise in excess of the usual ``MEASUREMENT_LOG_SD``."""
        return sqrt(max(self.noise**2 - MEASUREMENT_LOG_SD**2, 0.0)) if self.measured else 0.0


NO_OFFSET = BedOffset()
