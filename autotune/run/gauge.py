"""From a rate to a reading of this stack: the generator run, its counts held against the SLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.deploy.stack import Stack
from autotune.loads.base import Load, Order, Request, Tally
from autotune.loads.take import take
from autotune.measure.bottleneck import Bottleneck
from autotune.measure.diagnosis import WatchedReading, diagnose
from autotune.measure.footprint import footprints
from autotune.measure.reading import Reading
from autotune.measure.watch import Watch, WatchedHost
from autotune.services.base import Role, Settings
from autotune.services.readback import words
from autotune.target.slo import Slo
from autotune.transports.base import Transport


@dataclass(frozen=True)
class Gauge:
    """Everything a reading needs but its rate and length.

    ``in_place()`` are the settings that run: they say which parts of the stack there are to watch.
    """

    load: Load
    request: Request
    slo: Slo
    transport: Transport
    stack: Stack
    hosts: tuple[WatchedHost, ...]
    timeout: float
    in_place: Callable[[], Settings] = dict

    def take(self, rate: float, seconds: float) -> WatchedReading:
        """Offer ``rate`` requests/s for ``seconds`` to the stack's entry, and to nothing else.

        All hosts are watched meanwhile.
        """
        order = Order(rate, seconds, self.timeout, self.slo.limit)
        with Watch(self._hosts(self.in_place()), order.ramp + seconds) as watch:
            tally = take(self.load, self.request, order, self.transport)
        seen = watch.seen
        return WatchedReading(
            reading(tally, order), seen, footprints(self.hosts, seen, order.ramp + seconds)
        )

    def diagnose(self, settings: Settings, watched: Sequence[WatchedReading]) -> Bottleneck | None:
        """What holds the peak down, by the readings around it."""
        stack = replace(self.stack, parts=self.stack.active(settings))
        return diagnose(stack, settings, watched, hosts=self._hosts(settings), slo=self.slo)

    def _hosts(self, settings: Settings) -> tuple[WatchedHost, ...]:
        active = self.stack.active(settings)
        return tuple(
            replace(host, parts=tuple(part for part in host.parts if part in active))
            for host in self.hosts
        )

    def lookups(self) -> tuple[int, int] | None:
        """Hits and misses of all caches since they started; ``None`` without a cache."""
        active = self.stack.active(self.in_place())
        caches = [part for part in active if part.site.role is Role.CACHE]
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


def reading(tally: Tally, order: Order) -> Reading:
    """A tally held against the objective: what failed and what came late are violations."""
    return Reading(
        rate=order.rate,
        seconds=order.seconds,
        intended=tally.intended,
        violations=tally.later_than(order.limit) + tally.failed,
        errors=tally.errors,
        histogram=tally.histogram,
        truncated=tally.truncated,
        limited=tally.limited,
    )
