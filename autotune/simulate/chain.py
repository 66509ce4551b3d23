"""The whole chain with one configuration: latency at any rate, and the true peak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from autotune.diagnose.bottleneck import Bottleneck, RelatedShortage
from autotune.diagnose.causes import MIN_GAIN
from autotune.measure.reading import Reading
from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.simulate.balancer import build_balancer
from autotune.simulate.station import BURSTINESS, QueueStation, TimeMoments
from autotune.simulate.topology import ChainTopology
from autotune.simulate.web import (
    ITEM_BYTES,
    build_cache_and_store,
    build_web_model,
    compute_memory_success_share,
    count_missed_keys,
    uses_epoll,
)
from autotune.target.slo import Slo

Array = NDArray[np.float64]
HOP_SECONDS = 0.0004  # seconds on the network between two tiers
TIME_POINTS = 16  # number of times at which a growing queue is sampled
MAX_CACHE_SHARE = 0.8  # share of a cache host's memory that can hold items
BURST_SECONDS = 0.004  # a burst delivers the requests of this many seconds at once


@dataclass(frozen=True)
class StationChain:
    """Stations in a row; a request visits each station once.

    - ``fixed_seconds``: seconds of a request that do not depend on the load.
    - ``backlog_size``: number of connections that can wait to be accepted.
    - ``missed_keys``: number of a request's keys that are not cached.
    - ``lost_shares``: shares of the requests that fail at any rate, by kind of failure.
    - ``refusal_reason``: why the configuration would not start.
    """

    stations: tuple[QueueStation, ...]
    fixed_seconds: float
    backlog_size: float
    missed_keys: float
    lost_shares: dict[str, float] = field(default_factory=dict)
    refusal_reason: str | None = None

    @property
    def slowest_station(self) -> QueueStation:
        return min(self.stations, key=lambda station: station.max_rate)

    def compute_error_shares(self, rate: float) -> dict[str, float]:
        """Return the fractions of requests that fail outright, by kind of failure."""
        dropped_share = exp(-self.backlog_size / max(rate * BURST_SECONDS, 1e-9))
        return (
            {**self.lost_shares, "connection refused": dropped_share}
            if dropped_share > 1e-7
            else self.lost_shares
        )

    def compute_request_time(self, rate: float, seconds: float | None = None) -> TimeMoments:
        """Return mean and variance of a request's time, without the growth of unstable queues.

        ``seconds`` is the time under load, which limits the queues of stations close to saturation.
        """
        mean, variance = self.fixed_seconds, (0.3 * self.fixed_seconds) ** 2
        for station in self.stations:
            max_utilisation = (
                1.0
                if seconds is None
                else 1.0 - 0.5 * sqrt(BURSTINESS / (station.max_rate * seconds))
            )
            time_moments = station.compute_time_spent(rate, max(0.0, max_utilisation))
            mean, variance = mean + time_moments.mean, variance + time_moments.variance
        return TimeMoments(mean, variance)

    def compute_late_shares(self, rate: float, limits: Array, seconds: float) -> Array:
        """Return, for each of ``limits`` (seconds), the fraction of a reading's responses that take
        longer.

        The total time is modelled as a gamma distribution with the computed mean and variance. If the
        slowest station gets more load than it can serve, its queue grows until the reading ends.
        """
        time_moments = self.compute_request_time(rate, seconds)
        gamma_shape = time_moments.mean**2 / time_moments.variance
        gamma_scale = time_moments.variance / time_moments.mean
        excess_utilisation = self.slowest_station.compute_utilisation(rate) - 1.0
        if excess_utilisation <= 0.0:
            return _compute_gamma_tail(gamma_shape, limits / gamma_scale)
        queue_seconds = excess_utilisation * seconds * (np.arange(TIME_POINTS) + 0.5) / TIME_POINTS
        remaining_limits = np.maximum(limits[None, :] - queue_seconds[:, None], 0.0)
        return np.asarray(
            _compute_gamma_tail(gamma_shape, remaining_limits / gamma_scale).mean(axis=0)
        )

    def compute_violation_share(self, rate: float, slo: Slo) -> float:
        """Return the fraction of requests that violate the SLO at ``rate`` in the long run."""
        if self.slowest_station.compute_utilisation(rate) >= 1.0:
            return 1.0
        time_moments = self.compute_request_time(rate)
        scaled_limit = np.array(slo.limit * time_moments.mean / time_moments.variance)
        late_share = float(
            _compute_gamma_tail(time_moments.mean**2 / time_moments.variance, scaled_limit)
        )
        failed_share = min(1.0, sum(self.compute_error_shares(rate).values()))
        return failed_share + (1.0 - failed_share) * late_share

    def compute_peak(self, slo: Slo) -> float:
        """Return the true peak in requests/s: the highest rate that meets the objective in the long run.

        An infeasible configuration, with which no rate meets the objective, has a peak of 0.0.
        """
        if self.refusal_reason or self._compute_log_violation_ratio(1.0, slo) > 0.0:
            return 0.0
        return _find_root(
            lambda rate: self._compute_log_violation_ratio(rate, slo),
            1.0,
            self.slowest_station.max_rate,
        )

    def _compute_log_violation_ratio(self, rate: float, slo: Slo) -> float:
        """Return the logarithm of the ratio of violations to their limit, which is 0 at the peak and
        rises with the rate.
        """
        failed_share = sum(self.compute_error_shares(rate).values())
        log_violation = log(
            max(self.compute_violation_share(rate, slo), 1e-12) / slo.allowed_violations
        )
        return max(log_violation, log(max(failed_share, 1e-12) / max(slo.errors, 1e-11)))


def _compute_gamma_tail(gamma_shape: float, limits: Array) -> Array:
    """Return the probability that a gamma variable with scale 1 exceeds each of ``limits``."""
    from scipy.special import gammaincc

    return np.asarray(gammaincc(gamma_shape, limits))


def _find_root(increasing_function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of ``increasing_function``, with a relative error of 1e-4 (regula falsi, Illinois
    variant).
    """
    lower_value, upper_value = increasing_function(low), increasing_function(high)
    while high - low > 1e-4 * high:
        middle = (low * upper_value - high * lower_value) / (upper_value - lower_value)
        middle = min(max(middle, low + 1e-5 * high), high - 1e-5 * high)
        function_value = increasing_function(middle)
        if function_value <= 0.0:
            low, lower_value, upper_value = middle, min(function_value, -1e-9), upper_value / 2.0
        else:
            high, upper_value, lower_value = middle, function_value, lower_value / 2.0
    return low


def build_chain(topology: ChainTopology, settings: Settings) -> StationChain:
    """Return the chain of ``topology`` with ``settings``, whose keys are names from the catalogue."""
    missed_keys = count_missed_keys(topology.cache, topology.data, settings)
    balancer = build_balancer(topology.lb, settings, web_epoll=uses_epoll(topology.web, settings))
    cache_count, evenness_share = topology.cache.count, balancer.evenness_share
    web_model = build_web_model(
        topology.web,
        settings,
        cache_count=cache_count,
        missed_keys=missed_keys,
        evenness=evenness_share,
        wait_seconds=min(1.0, missed_keys) * topology.data.store_latency,
    )
    process_count = web_model.process_count * topology.web.count
    backing_model = build_cache_and_store(
        topology, settings, process_count=process_count, missed_keys=missed_keys
    )
    killed_share = 1.0 - compute_memory_success_share(
        topology.web, web_model.memory_bytes
    ) * compute_memory_success_share(topology.lb, balancer.memory_bytes)
    lost_shares = {
        "killed": killed_share,
        "no connection to the cache": backing_model.unconnected_share,
    }
    return StationChain(
        (balancer.station, web_model.station, backing_model.cache, backing_model.store),
        3 * HOP_SECONDS + (topology.data.store_latency if missed_keys >= 0.5 else 0.0),
        balancer.backlog_size,
        missed_keys,
        {loss_kind: share for loss_kind, share in lost_shares.items() if share > 0.0},
        balancer.refusal_reason or web_model.refusal_reason,
    )


# Index of the station, exhausted resource, and evidence, by kind of failure.
LOSS_BOTTLENECKS = {
    "killed": (1, Resource.MEMORY, "processes exceed the memory and are killed"),
    "no connection to the cache": (
        2,
        Resource.CONNECTIONS,
        "web processes get no connection",
    ),
    "connection refused": (
        0,
        Resource.CONNECTIONS,
        "bursts overflow the accept queue",
    ),
}


def diagnose_search(
    topology: ChainTopology, settings: Settings, readings: Iterable[Reading], slo: Slo
) -> Bottleneck:
    """Return the bottleneck at the lowest rate that failed in a search, or at the highest rate if no
    rate failed.
    """
    failed_by_rate = {
        reading.rate: not slo.is_met(reading) for reading in readings if reading.is_valid
    }
    failed_rates = [rate for rate, has_failed in failed_by_rate.items() if has_failed]
    rate = min(failed_rates, default=max(failed_by_rate, default=1.0))
    chain = build_chain(topology, settings)
    shortage = find_bottleneck(topology, chain, rate, slo)
    is_waiting = shortage.resource in (Resource.WORKERS, Resource.STORE, Resource.CPU)
    return find_cache_cause(topology, settings, chain, shortage) if is_waiting else shortage


def find_cache_cause(
    topology: ChainTopology, settings: Settings, chain: StationChain, shortage: Bottleneck
) -> Bottleneck:
    """Return the cache's shortage if more memory for the cache would raise the capacity; otherwise
    return ``shortage``.
    """
    cache_hosts = topology.cache
    needed_bytes = topology.data.pairs * ITEM_BYTES / cache_hosts.count
    megabytes = min(needed_bytes, MAX_CACHE_SHARE * cache_hosts.memory) / 2**20
    relieved_chain = build_chain(
        topology, {**settings, f"{cache_hosts.tier}.memcached.memory": megabytes}
    )
    capacity_gain = relieved_chain.slowest_station.max_rate / chain.slowest_station.max_rate
    if relieved_chain.missed_keys >= chain.missed_keys or capacity_gain < MIN_GAIN:
        return shortage
    evidence = (
        f"{chain.missed_keys:.1f} keys per request miss, and {shortage.tier}.{shortage.service} waits"
        f" for them: with more memory, the stack would serve about {capacity_gain:.1f} × as many requests"
        " (modelled): raise memory"
    )
    waiting_shortage = RelatedShortage(shortage.tier, shortage.service, shortage.resource)
    return Bottleneck(
        cache_hosts.tier,
        "memcached",
        cache_hosts.host_names[0],
        Resource.CACHE,
        evidence,
        shortage.confidence,
        gain=round(capacity_gain, 2),
        related=(waiting_shortage,),
    )


def find_bottleneck(
    topology: ChainTopology, chain: StationChain, rate: float, slo: Slo
) -> Bottleneck:
    """Return the bottleneck at ``rate`` requests/s, with the model's figures as evidence."""
    error_shares = chain.compute_error_shares(rate)
    all_tiers = (topology.lb, topology.web, topology.cache, topology.store)
    if sum(error_shares.values()) > slo.errors:
        loss_kind = max(error_shares, key=lambda name: error_shares[name])
        station_index, resource, loss_reason = LOSS_BOTTLENECKS[loss_kind]
        tier_hosts, station = all_tiers[station_index], chain.stations[station_index]
        evidence = (
            f"{loss_reason}: {100 * error_shares[loss_kind]:.1f} % of the requests fail (modelled)"
        )
        service = tier_hosts.service if tier_hosts is topology.web else station.service
    else:
        station = chain.slowest_station
        tier_hosts = next(tier for tier in all_tiers if tier.tier == station.tier)
        service, resource = station.service, station.resource
        evidence = (
            f"{station.limit_reason}: {100 * min(1.0, station.compute_utilisation(rate)):.0f} % at "
            f"{rate:,.0f} requests/s, "
            f"100 % at {station.max_rate:,.0f} (modelled)"
        )
    return Bottleneck(tier_hosts.tier, service, tier_hosts.host_names[0], resource, evidence, 1.0)
