"""Ranking of configurations: pooled measurements, and the model's estimates.

The best peak of a search overstates itself by about a tenth: the leaders are measured again, and the
winner is chosen by both measurements together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.estimate import Estimate


def winner(first: Mapping[int, Estimate], again: Mapping[int, Sequence[Estimate]]) -> int | None:
    """The trial with the highest pooled peak among those measured again (of all, if none was)."""
    pooled = {
        trial: Estimate.pool([estimate, *again.get(trial, ())]).log_mean
        for trial, estimate in first.items()
        if not again or trial in again
    }
    return max(pooled, key=lambda trial: pooled[trial]) if pooled else None


@dataclass(frozen=True)
class Standings:
    """Per trial of the study, the model's estimate of its peak in today's requests/s; ``noise`` is the
    sd of one more measurement's logarithm."""

    peaks: Mapping[int, Estimate]
    noise: float
