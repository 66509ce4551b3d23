"""Ranking of configurations: pooled measurements, and the model's estimates.

The best peak of a search overstates itself by about a tenth: the leaders are measured again, and the
winner is chosen by both measurements together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log


@dataclass(frozen=True)
class Scored:
    """A trial's peak in requests/s and the sd of its logarithm."""

    trial: int
    peak: float
    sd: float


def winner(first: Sequence[Scored], again: Mapping[int, Sequence[Scored]]) -> int | None:
    """The trial with the highest pooled peak among those measured again (of all, if none was)."""
    pooled = {
        item.trial: pooled_peak([item, *again.get(item.trial, ())])
        for item in first
        if not again or item.trial in again
    }
    return max(pooled, key=lambda trial: pooled[trial]) if pooled else None


def pooled_peak(measurements: Sequence[Scored]) -> float:
    """Mean of the log peaks, each weighted by its precision."""
    weights = [1.0 / max(item.sd, 0.005) ** 2 for item in measurements]
    total = sum(w * log(m.peak) for w, m in zip(weights, measurements, strict=True))
    return exp(total / sum(weights))


@dataclass(frozen=True)
class Standings:
    """Per trial of the study, the model's estimate of its peak in today's requests/s and the sd of its
    logarithm; ``noise`` is the sd of one more measurement's logarithm."""

    peaks: Mapping[int, tuple[float, float]]
    noise: float
