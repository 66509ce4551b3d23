"""The rules for disturbed measurements, which are left out of means, comparisons and models.

A disturbance of the machine takes part of its capacity for a while. Repeats of one configuration are
compared with their median, and other measurements with their prediction by a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from autotune.estimate import Estimate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

# A repeat was disturbed if it is this many sds and this log difference below the median.
MAX_REPEAT_SDS, MIN_OUTLIER_DIFFERENCE = 4.0, 0.15
MAX_PREDICTION_SDS = 3.0  # a measurement is contradicted this many sds from its prediction
MIN_REPEATS = 3  # with fewer repeats, none can be told from the others


def max_repeat_difference(sd: float) -> float:
    """Return the log difference above which a repeat was disturbed, if repeats have this sd."""
    return max(MAX_REPEAT_SDS * sd, MIN_OUTLIER_DIFFERENCE)


def find_outlier_threshold(peaks: Sequence[Estimate]) -> float:
    """Return the threshold below which a measurement of one configuration was disturbed; 0 with too few
    to tell.
    """
    if len(peaks) < MIN_REPEATS:
        return 0.0
    sorted_values = sorted(peak.value for peak in peaks)
    sd = sum(peak.sd for peak in peaks) / len(peaks)
    return sorted_values[len(sorted_values) // 2] * exp(-max_repeat_difference(sd))


def exceeds_prediction(differences: Array, sds: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the differences from a prediction that are too large to be noise."""
    return differences > MAX_PREDICTION_SDS * sds
