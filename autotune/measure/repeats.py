"""How much a benchmark's values scatter, learned from configurations measured more than once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

# Before anything was repeated: what a benchmark on a machine of its own is likely to do, with next
# to no weight beside evidence.
ASSUMED_SD = 0.05
ASSUMED_WEIGHT = 0.02  # degrees of freedom
EXACT_SD = 1e-4  # of a benchmark that has always given the same answer twice


def scatter(groups: Iterable[Sequence[float]]) -> float:
    """The sd of one value, pooled over groups of log merits of one configuration each."""
    freedom, squares = 0, 0.0
    for group in groups:
        if len(group) > 1:
            mean = sum(group) / len(group)
            squares += sum((item - mean) ** 2 for item in group)
            freedom += len(group) - 1
    if freedom >= 2 and squares < freedom * EXACT_SD**2:
        return EXACT_SD
    return sqrt((ASSUMED_WEIGHT * ASSUMED_SD**2 + squares) / (ASSUMED_WEIGHT + freedom))
