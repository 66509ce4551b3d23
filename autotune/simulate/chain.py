"""The whole chain under one configuration: how late requests are at any rate, and the true peak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from autotune.diagnose.context import Bottleneck
from autotune.measure.reading import Reading
from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.simulate.balancer import balancer
from autotune.simulate.station import BURST, Moments, Station
from autotune.simulate.topology import Topology
from autotune.simulate.web import backing, misses, spare, takes_epoll, web
from autotune.target.slo import Slo

Array = NDArray[np.float64]
HOP = 0.0004  # seconds of network between two tiers
MOMENTS = 16  # points in time at which a growing queue is looked at
BURST_SECONDS = 0.004  # a burst brings the requests of so many seconds at once


@dataclass(frozen=True)
class Chain:
    """Stations in a row; a request visits each once.

    ``fixed`` is time in seconds that no load changes; ``backlog`` the connections that may wait to
    be accepted; ``missed`` the keys of a request that are not cached; ``lost`` the part of the
    requests that fails at any rate, by kind; ``refused`` why the configuration would not start.
    """

    stations: tuple[Station, ...]
    fixed: float
    backlog: float
    missed: float
    lost: dict[str, float] = field(default_factory=dict)
    refused: str | None = None

    @property
    def slowest(self) -> Station:
        return min(self.stations, key=lambda station: station.rate)

    def errors(self, rate: float) -> dict[str, float]:
        """Fractions of the requests that fail outright, by kind."""
        dropped = exp(-self.backlog / max(rate * BURST_SECONDS, 1e-9))
        return {**self.lost, "connection refused": dropped} if dropped > 1e-7 else self.lost

    def time(self, rate: float, seconds: float | None = None) -> Moments:
        """Mean and variance of the time of a request, without the growth of a queue that never settles.

        In ``seconds`` from an idle start no queue gets as long as at a utilisation close to 1.
        """
        mean, variance = self.fixed, (0.3 * self.fixed) ** 2
        for station in self.stations:
            cap = 1.0 if seconds is None else 1.0 - 0.5 * sqrt(BURST / (station.rate * seconds))
            spent = station.time(rate, max(0.0, cap))
            mean, variance = mean + spent.mean, variance + spent.variance
        return Moments(mean, variance)

    def slower_than(self, rate: float, limits: Array, seconds: float) -> Array:
        """Fraction of the answers of a reading that take longer than each of ``limits`` (seconds).

        The sum of all times is taken as gamma distributed, which two moments determine. Where the
        slowest station is offered more than it carries, its queue grows as long as the reading lasts.
        """
        spent = self.time(rate, seconds)
        shape, scale = spent.mean**2 / spent.variance, spent.variance / spent.mean
        excess = self.slowest.use(rate) - 1.0
        if excess <= 0.0:
            return _later(shape, limits / scale)
        grown = excess * seconds * (np.arange(MOMENTS) + 0.5) / MOMENTS
        left = np.maximum(limits[None, :] - grown[:, None], 0.0)
        return np.asarray(_later(shape, left / scale).mean(axis=0))

    def violated(self, rate: float, slo: Slo) -> float:
        """The long-run fraction of violations at ``rate``."""
        if self.slowest.use(rate) >= 1.0:
            return 1.0
        spent = self.time(rate)
        limit = np.array(slo.limit * spent.mean / spent.variance)
        late = float(_later(spent.mean**2 / spent.variance, limit))
        failed = min(1.0, sum(self.errors(rate).values()))
        return failed + (1.0 - failed) * late

    def peak(self, slo: Slo) -> float:
        """The true peak in requests/s: the highest rate that meets the objective in the long run.

        0.0 where none does: the configuration is infeasible.
        """
        if self.refused or self._strain(1.0, slo) > 0.0:
            return 0.0
        return _root(lambda rate: self._strain(rate, slo), 1.0, self.slowest.rate)

    def _strain(self, rate: float, slo: Slo) -> float:
        """Logarithm of how far the objective is exceeded; 0 at the peak, rising with the rate."""
        failed = sum(self.errors(rate).values())
        violated = log(max(self.violated(rate, slo), 1e-12) / slo.allowed)
        return max(violated, log(max(failed, 1e-12) / max(slo.errors, 1e-11)))


def _later(shape: float, limits: Array) -> Array:
    """Chance that a gamma variable of this shape, and scale 1, is above each of ``limits``."""
    from scipy.special import gammaincc

    return np.asarray(gammaincc(shape, limits))


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Where the rising ``f`` crosses zero, to a ten-thousandth (regula falsi, Illinois variant)."""
    below, above = f(low), f(high)
    while high - low > 1e-4 * high:
        middle = (low * above - high * below) / (above - below)
        middle = min(max(middle, low + 1e-5 * high), high - 1e-5 * high)
        value = f(middle)
        if value <= 0.0:
            low, below, above = middle, min(value, -1e-9), above / 2.0
        else:
            high, above, below = middle, value, below / 2.0
    return low


def chain(topology: Topology, settings: Settings) -> Chain:
    """The chain that ``settings`` (by the catalogue's names) make of ``topology``."""
    missed = misses(topology.cache, topology.data, settings)
    front = balancer(topology.lb, settings, web_epoll=takes_epoll(topology.web, settings))
    caches, evenness = topology.cache.count, front.evenness
    pages = web(topology.web, settings, caches=caches, misses=missed, evenness=evenness)
    processes = pages.processes * topology.web.count
    behind = backing(topology, settings, processes=processes, missed=missed)
    killed = 1.0 - spare(topology.web, pages.memory) * spare(topology.lb, front.memory)
    lost = {"killed": killed, "no connection to the cache": behind.unconnected}
    return Chain(
        (front.station, pages.station, behind.cache, behind.store),
        3 * HOP + (topology.data.store_latency if missed >= 0.5 else 0.0),
        front.backlog,
        missed,
        {kind: share for kind, share in lost.items() if share > 0.0},
        front.refused or pages.refused,
    )


# What fails for another reason than slowness: the station of the chain that is short, of what, and how
# to say it.
LOSSES = {
    "killed": (1, Resource.MEMORY, "processes need more memory than there is and are killed"),
    "no connection to the cache": (
        2, Resource.CONNECTIONS, "web processes find no connection left",
    ),
    "connection refused": (
        0, Resource.CONNECTIONS, "bursts overrun the connections that may wait",
    ),
}  # fmt: skip


def diagnosed(
    topology: Topology, settings: Settings, readings: Iterable[Reading], slo: Slo
) -> Bottleneck:
    """The verdict after a search: at its lowest rate that failed, or the highest of all."""
    rates = {reading.rate: not slo.met(reading) for reading in readings if reading.is_valid}
    failed = [rate for rate, failing in rates.items() if failing]
    rate = min(failed, default=max(rates, default=1.0))
    return bottleneck(topology, chain(topology, settings), rate, slo)


def bottleneck(topology: Topology, loaded: Chain, rate: float, slo: Slo) -> Bottleneck:
    """The verdict near a peak of ``rate`` requests/s, with the model's own figures as evidence."""
    failing = loaded.errors(rate)
    tiers = (topology.lb, topology.web, topology.cache, topology.store)
    if sum(failing.values()) > slo.errors:
        kind = max(failing, key=lambda name: failing[name])
        place, resource, words = LOSSES[kind]
        hosts, station = tiers[place], loaded.stations[place]
        evidence = f"{words}: {100 * failing[kind]:.1f} % of the requests fail (modelled)"
        service = hosts.service if hosts is topology.web else station.service
    else:
        station = loaded.slowest
        hosts = next(tier for tier in tiers if tier.tier == station.tier)
        service, resource = station.service, station.resource
        evidence = (
            f"{station.why}: {100 * min(1.0, station.use(rate)):.0f} % at {rate:,.0f} requests/s, "
            f"all at {station.rate:,.0f} (modelled)"
        )
    return Bottleneck(hosts.tier, service, hosts.hosts[0], resource, evidence, 1.0)
