"""The rules for disturbed measurements, which are left out of means, comparisons and models.

A disturbance reduces the capacity of the machine for a while. Repeats of one configuration are compared
with their median, and other measurements with a model's prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import median_high
from typing import TYPE_CHECKING

from autotune.estimate import Estimate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

# A repeat counts as disturbed if it is below the median by more than both MAX_REPEAT_SDS sds and a log
# difference of MIN_OUTLIER_DIFFERENCE.
MAX_REPEAT_SDS, MIN_OUTLIER_DIFFERENCE = 4.0, 0.15
# a measurement that differs from its prediction by more than this many sds is not noise
MAX_PREDICTION_SDS = 3.0
MIN_REPEATS = 3  # with fewer repeats, a disturbed repeat cannot be recognized
# If more than this fraction of the repeats, and more than one, are so low, none counts as disturbed. The
# configuration itself varies, for example between a warm and a cold cache.
MAX_DISTURBED_FRACTION = 1 / 4


def compute_max_repeat_difference(sd: float) -> float:
    """Return the largest log difference below the median at which a repeat does not count as disturbed.

    ``sd`` is the sd of one log peak.
    """
    return max(MAX_REPEAT_SDS * sd, MIN_OUTLIER_DIFFERENCE)


def find_outlier_threshold(peaks: Sequence[Estimate]) -> float:
    """Return the peak below which a measurement of one configuration counts as disturbed.

    The result is 0 if there are too few measurements, or if too many of them are low. The median of an
    even number is the higher middle one.
    """
    if len(peaks) < MIN_REPEATS:
        return 0.0
    mean_sd = sum(peak.sd for peak in peaks) / len(peaks)
    median_peak = median_high(peak.value for peak in peaks)
    threshold = median_peak * exp(-compute_max_repeat_difference(mean_sd))
    low_count = sum(peak.value < threshold for peak in peaks)
    return threshold if low_count <= max(1, len(peaks) * MAX_DISTURBED_FRACTION) else 0.0


def exceeds_prediction(differences: Array, sds: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the differences from a prediction that are too large to be noise."""
    return differences > MAX_PREDICTION_SDS * sds
