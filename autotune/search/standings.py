"""Where configurations stand by the model of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Standings:
    """Per trial of the study the peak the model believes in, in today's requests/s, and the sd of
    its logarithm; ``noise`` is that of one more measurement."""

    peaks: Mapping[int, tuple[float, float]]
    noise: float
