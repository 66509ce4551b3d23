"""Find a tier that opens a new connection to the next tier for each request.

A new connection needs a round trip, and CPU time on both hosts. With TLS, a full handshake costs several
milliseconds of CPU time. The kernel counts the connections that a host opens and accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotune.diagnose.bottleneck import Bottleneck, RelatedShortage
from autotune.diagnose.context import ReadingContext
from autotune.services.diagnosis import Resource, parse_parameter

MIN_CONNECTIONS_PER_REQUEST = 0.5  # below this ratio, most requests reuse a connection


def add_unreused_connections(context: ReadingContext, shortage: Bottleneck) -> Bottleneck:
    """Return ``shortage`` with the connections that a new request needs between its tier and another
    tier; unchanged if most requests reuse a connection.
    """
    for proxy_tier, server_tier in context.forwards_to.items():
        if shortage.tier not in (proxy_tier, server_tier):
            continue
        per_request = _count_connections_per_request(context, proxy_tier, server_tier)
        if per_request < MIN_CONNECTIONS_PER_REQUEST:
            continue
        related_shortages = (
            *_list_shortages(context, proxy_tier, Resource.UPSTREAM_HANDSHAKES),
            *_list_shortages(context, server_tier, Resource.HANDSHAKES),
        )
        parameter_names = [*_list_parameters(context, related_shortages)]
        parameter_text = f" ({', '.join(parameter_names)})" if parameter_names else ""
        return replace(
            shortage,
            evidence=f"{shortage.evidence}. {proxy_tier} opens {per_request:.1f} connections to"
            f" {server_tier} per request: keep them open{parameter_text}",
            related=(*related_shortages, *shortage.related),
        )
    return shortage


def _count_connections_per_request(
    context: ReadingContext, proxy_tier: str, server_tier: str
) -> float:
    """Return the number of connections between two tiers per request; 0 if unknown.

    The hosts' counters include all other connections, so the smaller counter is used. If both tiers
    share a host, its counters also include the connections of clients.
    """
    proxy_hosts, server_hosts = (
        {instance.host for instance in context.instances if instance.tier == tier}
        for tier in (proxy_tier, server_tier)
    )
    is_watched = proxy_hosts | server_hosts <= context.hosts.keys()
    if proxy_hosts & server_hosts or not is_watched or context.reading.rate <= 0:
        return 0.0
    opened_rate = sum(context.hosts[name].opened_rate for name in proxy_hosts)
    accepted_rate = sum(context.hosts[name].accepted_rate for name in server_hosts)
    return min(opened_rate, accepted_rate) / context.reading.rate


def _list_shortages(
    context: ReadingContext, tier: str, resource: Resource
) -> Iterator[RelatedShortage]:
    """Yield the shortage for each service of a tier whose settings keep connections open."""
    services = dict.fromkeys(
        instance.service
        for instance in context.instances
        if instance.tier == tier
        and context.find_diagnosis(instance).recommended_changes.get(resource)
    )
    for service in services:
        yield RelatedShortage(tier, service, resource)


def _list_parameters(
    context: ReadingContext, shortages: tuple[RelatedShortage, ...]
) -> Iterator[str]:
    """Yield the full name of the first parameter that reduces each shortage."""
    for tier, service, resource in shortages:
        changes = context.catalogue.find_diagnosis(service).recommended_changes[resource]
        names = (f"{tier}.{service}.{parse_parameter(change)}" for change in changes)
        yield from [name for name in names if name in context.settings][:1]
