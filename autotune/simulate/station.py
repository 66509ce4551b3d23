"""One station of the chain: its servers, their queue, and the time that a request spends there."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from autotune.services.diagnosis import Resource

# (ca² + cs²) / 2 in the G/G/c formula by Allen and Cunneen: arrivals and PHP jobs are burstier than
# exponentially distributed ones. BURSTINESS determines how far below saturation the latency's tail
# exceeds the objective.
BURSTINESS = 4.0


class TimeMoments(NamedTuple):
    """Mean (s) and variance (s²) of the time that a request takes."""

    mean: float
    variance: float


@dataclass(frozen=True)
class QueueStation:
    """A queue with ``servers`` servers, which together serve at most ``max_rate`` requests/s.

    Serving a request takes ``service_seconds`` seconds. ``max_rate`` is lower than the servers alone
    would allow if another resource is short. ``resource`` is the resource that is exhausted at
    ``max_rate``, and ``limit_reason`` describes the shortage.
    """

    tier: str
    service: str
    servers: float
    max_rate: float
    service_seconds: float
    resource: Resource = Resource.CPU
    limit_reason: str = "CPUs busy"

    def compute_utilisation(self, offered_rate: float) -> float:
        """Return the utilisation at ``offered_rate`` requests/s; above 1, the queue grows."""
        return offered_rate / self.max_rate

    def compute_time_spent(self, offered_rate: float, max_utilisation: float = 1.0) -> TimeMoments:
        """Return the time that a request spends at the station, at a utilisation of at most
        ``max_utilisation``.

        The mean wait is Sakasegawa's approximation of M/M/c (1977) times ``BURSTINESS``. A request
        waits with probability ``waiting_share``, and then for an exponentially distributed time.
        """
        utilisation = min(self.compute_utilisation(offered_rate), max_utilisation)
        waiting_share = utilisation ** (sqrt(2.0 * (self.servers + 1.0)) - 1.0)
        wait_seconds = BURSTINESS / (self.max_rate * max(1.0 - utilisation, 1e-6))
        return TimeMoments(
            waiting_share * wait_seconds + self.service_seconds,
            (2.0 - waiting_share) * waiting_share * wait_seconds * wait_seconds
            + self.service_seconds * self.service_seconds,
        )


def compute_served_share(
    needed_slots: float, available_slots: float, sharpness: float = 3.0
) -> float:
    """Return the share of a capacity that the available slots (workers, connections) allow.

    The share is 1 with far more slots than needed, and ``available_slots / needed_slots`` with far
    fewer. In between, the share is ``(1 + x**s)**(-1/s)`` with ``x = needed_slots / available_slots``
    and ``s = sharpness``. Requests come in bursts, so some find no free slot long before all slots are
    in use on average.
    """
    return float(
        (1.0 + (needed_slots / max(available_slots, 1e-9)) ** sharpness) ** (-1.0 / sharpness)
    )
