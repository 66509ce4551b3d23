"""From a rate to a reading of this stack: the generator run, its counts held against the SLO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.deploy.stack import Stack
from autotune.loads.base import Load, Order, Request, Tally
from autotune.loads.take import take
from autotune.measure.reading import Reading
from autotune.services.base import Role
from autotune.services.readback import words
from autotune.target.slo import Slo
from autotune.transports.base import Transport


@dataclass(frozen=True)
class Gauge:
    """Everything a reading needs but its rate and length."""

    load: Load
    request: Request
    slo: Slo
    transport: Transport
    stack: Stack
    timeout: float
    programs: Mapping[str, str]

    def take(self, rate: float, seconds: float) -> Reading:
        """Offer ``rate`` requests/s for ``seconds`` to the stack's entry, and to nothing else."""
        order = Order(rate, seconds, self.timeout, self.slo.limit)
        tally = take(self.load, self.request, order, self.transport)
        return reading(tally, order, self.slo)

    def lookups(self) -> tuple[int, int] | None:
        """Hits and misses of all caches since they started; ``None`` without a cache."""
        caches = self.stack.of_role(Role.CACHE)
        if not caches:
            return None
        names = {"get_hits": "hits", "get_misses": "misses"}
        hits = misses = 0
        for part in caches:
            argv = (part.site.programs["memcached-tool"], str(part.site.listen), "stats")
            found = words(names)(self.transport.run(argv).stdout)
            hits += int(found.get("hits", 0))
            misses += int(found.get("misses", 0))
        return hits, misses


def reading(tally: Tally, order: Order, slo: Slo) -> Reading:
    """A tally held against the objective: late answers are those in bins beyond the limit."""
    late = sum(count for edge, count in tally.histogram.items() if edge > slo.limit + 1e-9)
    return Reading(
        rate=order.rate,
        seconds=order.seconds,
        intended=tally.intended,
        violations=min(tally.intended, late + sum(tally.errors.values())),
        errors=tally.errors,
        histogram=tally.histogram,
        truncated=tally.truncated,
        limited=tally.limited,
    )
