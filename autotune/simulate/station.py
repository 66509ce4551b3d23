"""One station of the chain: servers, their queue, and the time that a request spends there."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from autotune.services.diagnosis import Resource

# (ca² + cs²) / 2 of Allen and Cunneen's G/G/c formula: arrivals and PHP jobs are burstier than
# exponential ones. It determines how far below saturation the tail exceeds the objective.
BURST = 4.0


class Moments(NamedTuple):
    """Mean (s) and variance (s²) of a time."""

    mean: float
    variance: float


@dataclass(frozen=True)
class Station:
    """``servers`` that serve at most ``rate`` requests/s together; a request takes ``work`` seconds.

    The rate is lower than servers over work if another resource is short. ``resource`` runs out if this
    station is the slowest of a chain, and ``why`` is its description.
    """

    tier: str
    service: str
    servers: float
    rate: float
    work: float
    resource: Resource = Resource.CPU
    why: str = "CPUs busy"

    def use(self, offered: float) -> float:
        """Return the utilisation at ``offered`` requests/s; above 1, the queue grows."""
        return offered / self.rate

    def time(self, offered: float, cap: float = 1.0) -> Moments:
        """Return the time spent here below saturation; ``cap`` limits the utilisation.

        The mean wait is Sakasegawa's approximation of M/M/c (1977) times ``BURST``. A request waits
        with probability ``waits``, and then for an exponentially distributed time.
        """
        use = min(self.use(offered), cap)
        waits = use ** (sqrt(2.0 * (self.servers + 1.0)) - 1.0)
        wait = BURST / (self.rate * max(1.0 - use, 1e-6))
        return Moments(
            waits * wait + self.work, (2.0 - waits) * waits * wait * wait + self.work * self.work
        )


def held(needed: float, available: float, sharpness: float = 3.0) -> float:
    """Return the share of a capacity that ``available`` slots (workers, connections) allow.

    It is 1 with far more slots than ``needed``, and ``available / needed`` with far fewer. In between it
    is ``(1 + x**s)**(-1/s)``: requests come in bursts, so some find no slot long before the slots are
    used up on average.
    """
    return float((1.0 + (needed / max(available, 1e-9)) ** sharpness) ** (-1.0 / sharpness))
