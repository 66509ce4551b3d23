"""The whole chain under one configuration: latency at any rate, and the true peak."""

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
MOMENTS = 16  # samples of a growing queue
BURST_SECONDS = 0.004  # a burst delivers the requests of this period at once


@dataclass(frozen=True)
class Chain:
    """Stations in a row; a request visits each once.

    - ``fixed``: time in seconds that does not depend on the load.
    - ``backlog``: number of connections that can wait to be accepted.
    - ``missed``: keys of a request that are not cached.
    - ``lost``: share of the requests that fail at any rate, by kind.
    - ``refused``: why the configuration would not start.
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
        """Return the fractions of the requests that fail outright, by kind."""
        dropped = exp(-self.backlog / max(rate * BURST_SECONDS, 1e-9))
        return {**self.lost, "connection refused": dropped} if dropped > 1e-7 else self.lost

    def time(self, rate: float, seconds: float | None = None) -> Moments:
        """Return the mean and variance of a request's time, without the growth of unstable queues.

        ``seconds`` is the time since an idle start. It limits the queues of stations close to saturation.
        """
        mean, variance = self.fixed, (0.3 * self.fixed) ** 2
        for station in self.stations:
            cap = 1.0 if seconds is None else 1.0 - 0.5 * sqrt(BURST / (station.rate * seconds))
            spent = station.time(rate, max(0.0, cap))
            mean, variance = mean + spent.mean, variance + spent.variance
        return Moments(mean, variance)

    def slower_than(self, rate: float, limits: Array, seconds: float) -> Array:
        """Return the fraction of a reading's answers that take longer than each of ``limits`` (seconds).

        The total time is modelled as gamma distributed, which two moments determine. If the slowest
        station gets more load than it can serve, its queue grows as long as the reading lasts.
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
        """Return the long-run fraction of violations at ``rate``."""
        if self.slowest.use(rate) >= 1.0:
            return 1.0
        spent = self.time(rate)
        limit = np.array(slo.limit * spent.mean / spent.variance)
        late = float(_later(spent.mean**2 / spent.variance, limit))
        failed = min(1.0, sum(self.errors(rate).values()))
        return failed + (1.0 - failed) * late

    def peak(self, slo: Slo) -> float:
        """Return the true peak in requests/s: the highest rate that meets the objective in the long run.

        The peak is 0.0 if no rate meets it: the configuration is infeasible.
        """
        if self.refused or self._strain(1.0, slo) > 0.0:
            return 0.0
        return _root(lambda rate: self._strain(rate, slo), 1.0, self.slowest.rate)

    def _strain(self, rate: float, slo: Slo) -> float:
        """Return the log of violations over their limit; 0 at the peak, rising with the rate."""
        failed = sum(self.errors(rate).values())
        violated = log(max(self.violated(rate, slo), 1e-12) / slo.allowed)
        return max(violated, log(max(failed, 1e-12) / max(slo.errors, 1e-11)))


def _later(shape: float, limits: Array) -> Array:
    """Return the chance that a gamma variable (this shape, scale 1) exceeds each of ``limits``."""
    from scipy.special import gammaincc

    return np.asarray(gammaincc(shape, limits))


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of the rising ``f``, to a ten-thousandth (regula falsi, Illinois variant)."""
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
    """Return the chain of ``topology`` under ``settings`` (by the catalogue's names)."""
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


# Failures other than slowness: index of the station, the exhausted resource, and the evidence.
LOSSES = {
    "killed": (1, Resource.MEMORY, "processes exceed the memory and are killed"),
    "no connection to the cache": (
        2, Resource.CONNECTIONS, "web processes get no connection",
    ),
    "connection refused": (
        0, Resource.CONNECTIONS, "bursts overflow the accept queue",
    ),
}  # fmt: skip


def diagnosed(
    topology: Topology, settings: Settings, readings: Iterable[Reading], slo: Slo
) -> Bottleneck:
    """Return the bottleneck after a search: at its lowest failed rate, or else its highest."""
    rates = {reading.rate: not slo.met(reading) for reading in readings if reading.is_valid}
    failed = [rate for rate, failing in rates.items() if failing]
    rate = min(failed, default=max(rates, default=1.0))
    return bottleneck(topology, chain(topology, settings), rate, slo)


def bottleneck(topology: Topology, loaded: Chain, rate: float, slo: Slo) -> Bottleneck:
    """Return the bottleneck at ``rate`` requests/s, with the model's figures as evidence."""
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
            f"100 % at {station.rate:,.0f} (modelled)"
        )
    return Bottleneck(hosts.tier, service, hosts.hosts[0], resource, evidence, 1.0)
