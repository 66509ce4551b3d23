"""One station of the chain: servers, a queue before them, and the time a request spends there."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from autotune.services.diagnosis import Resource

# (ca² + cs²) / 2 of Allen and Cunneen's G/G/c formula: arrivals and PHP jobs are burstier than
# exponential ones. It sets how far below saturation the tail exceeds the objective.
BURST = 4.0


class Moments(NamedTuple):
    """Mean (s) and variance (s²) of a time."""

    mean: float
    variance: float


@dataclass(frozen=True)
class Station:
    """``servers`` that together carry ``rate`` requests/s at most; a request takes ``work`` seconds.

    The rate is less than servers over work where something else than the servers is short.
    ``resource`` is what runs out when it is the slowest of a chain, ``why`` says it in words.
    """

    tier: str
    service: str
    servers: float
    rate: float
    work: float
    resource: Resource = Resource.CPU
    why: str = "CPUs busy"

    def use(self, offered: float) -> float:
        """Utilisation at ``offered`` requests/s; more than 1 is a queue that grows."""
        return offered / self.rate

    def time(self, offered: float, cap: float = 1.0) -> Moments:
        """Time spent here below saturation; ``cap`` is the highest utilisation a queue settles at.

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
    """The share of a capacity that ``available`` slots (workers, connections) let through.

    1 while far more are available than ``needed``; ``available / needed`` once there are far fewer.
    In between, the shortage sets in as ``(1 + x**s)**(-1/s)``: requests come in bursts, so some find no
    slot long before the mean number is used up.
    """
    return float((1.0 + (needed / max(available, 1e-9)) ** sharpness) ** (-1.0 / sharpness))
