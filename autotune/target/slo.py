"""The latency objective of a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# relative tolerance, because 1 - 0.9 is slightly less than 0.1
ROUNDING_TOLERANCE = 1e-9


class LoadOutcome(Protocol):
    """Counts of the offered requests in one or several readings.

    ``violations`` is the number of late, failed and unsent requests among the ``intended`` requests, and
    ``error_count`` is the number of errors among the violations. ``truncated`` is true if a reading was
    stopped early after a clear failure. ``is_valid`` is false if the load generator fell short, or if
    something disturbed the hosts.
    """

    @property
    def intended(self) -> int: ...
    @property
    def violations(self) -> int: ...
    @property
    def error_count(self) -> int: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def is_valid(self) -> bool: ...


@dataclass(frozen=True)
class Slo:
    """A latency objective: at least ``quantile`` of the intended requests get a correct response within
    ``limit`` seconds.

    ``errors`` is the largest fraction of intended requests that may fail. A request fails if it is not
    sent, or gets no response, a wrong status or a wrong body.
    """

    quantile: float = 0.99
    limit: float = 0.050
    errors: float = 0.001

    @property
    def allowed_violations(self) -> float:
        """Return the fraction of intended requests that may be late or fail."""
        return 1.0 - self.quantile

    def is_met(self, outcome: LoadOutcome) -> bool:
        """True if the objective was met. No truncated, invalid or empty outcome meets the objective."""
        if outcome.truncated or not outcome.is_valid or outcome.intended <= 0:
            return False
        counted_requests = outcome.intended * (1 + ROUNDING_TOLERANCE)
        is_latency_met = outcome.violations <= self.allowed_violations * counted_requests
        return is_latency_met and outcome.error_count <= self.errors * counted_requests
