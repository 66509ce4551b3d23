"""What holds the model's peak down: it knows."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.diagnose.bottleneck import Bottleneck
from autotune.measure.reading import Reading
from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.simulate.chain import Chain, chain
from autotune.simulate.topology import Hosts, Topology
from autotune.target.slo import Slo

# What fails at any rate: the part of the topology it is short in, and of what.
LOSSES = {
    "killed": ("web", Resource.MEMORY, "processes need more memory than there is and are killed"),
    "no connection to the cache": (
        "cache", Resource.CONNECTIONS, "web processes find no connection left",
    ),
    "connection refused": (
        "lb", Resource.CONNECTIONS, "bursts overrun the connections that may wait",
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


def bottleneck(topology: Topology, made: Chain, rate: float, slo: Slo) -> Bottleneck:
    """The verdict near a peak of ``rate`` requests/s, with the model's own figures as evidence."""
    failing = made.errors(rate)
    if sum(failing.values()) > slo.errors:
        kind = max(failing, key=lambda name: failing[name])
        field, resource, words = LOSSES[kind]
        hosts: Hosts = getattr(topology, field)
        evidence = f"{words}: {100 * failing[kind]:.1f} % of the requests fail (modelled)"
        service = (
            hosts.service if field == "web" else made.stations[0 if field == "lb" else 2].service
        )
        return Bottleneck(hosts.tier, service, hosts.hosts[0], resource, evidence, 1.0)
    slowest = made.slowest
    tiers = (topology.lb, topology.web, topology.cache, topology.store)
    hosts = next(one for one in tiers if one.tier == slowest.tier)
    evidence = (
        f"{slowest.why}: {100 * min(1.0, slowest.use(rate)):.0f} % of the "
        f"{slowest.rate:.0f} requests/s it carries at most (modelled)"
    )
    return Bottleneck(
        slowest.tier, slowest.service, hosts.hosts[0], slowest.resource, evidence, 1.0
    )
