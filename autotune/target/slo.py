"""The latency objective a stack must meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slo:
    """At least ``quantile`` of the intended requests answered right within ``limit`` seconds.

    ``errors`` is the largest fraction of intended requests that may fail outright (wrong status,
    wrong body, no answer, not sent), whatever their latency.
    """

    quantile: float = 0.99
    limit: float = 0.050
    errors: float = 0.001

    @property
    def allowed(self) -> float:
        """Fraction of the intended requests that may be late or failed together."""
        return 1.0 - self.quantile
