"""From what runs on hosts to tiers: which belong together, and which call which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autotune.discovery.instances import Instance

_ADDRESS = re.compile(r"(?:[a-z]+://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):([0-9]{2,5})")
_HERE = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


@dataclass(frozen=True)
class DiscoveredTier:
    """Hosts with the same deployment at the same port. ``assumed``: uses without a trace in files."""

    name: str
    instances: tuple[Instance, ...]
    forwards_to: str | None = None
    uses: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def deployment(self) -> str:
        return self.instances[0].deployment

    @property
    def port(self) -> int:
        return self.instances[0].port

    @property
    def kind(self) -> str:
        return self.instances[0].kind


def tiers(instances: Iterable[Instance]) -> tuple[DiscoveredTier, ...]:
    """Tiers with their connections, from the load balancer to the store.

    A cache or store that nobody's files speak of is taken to be the web tier's: an application has
    its address elsewhere.
    """
    grouped: dict[tuple[str, str, int], list[Instance]] = {}
    for instance in instances:
        grouped.setdefault((instance.kind, instance.deployment, instance.port), []).append(instance)
    order = ("lb", "web", "cache", "store")
    discovered: list[DiscoveredTier] = []
    for key in sorted(grouped, key=lambda key: order.index(key[0])):
        same = sum(tier.kind == key[0] for tier in discovered)
        name = key[0] if not same else f"{key[0]}{same + 1}"
        discovered.append(DiscoveredTier(name, tuple(grouped[key])))
    return tuple(_connected(tier, discovered) for tier in discovered)


def _connected(tier: DiscoveredTier, every: Sequence[DiscoveredTier]) -> DiscoveredTier:
    others = [other for other in every if other.name != tier.name]
    if tier.kind == "lb":
        next_one = [other for other in others if other.kind == "web" and _sends(tier, other)]
        return replace(tier, forwards_to=next_one[0].name if next_one else None)
    if tier.kind != "web":
        return tier
    behind = [other for other in others if other.kind in ("cache", "store")]
    named = tuple(other.name for other in behind if _speaks_of(tier, other))
    unnamed = tuple(
        other.name
        for other in behind
        if not any(_speaks_of(one, other) for one in every if one.kind == "web")
    )
    return replace(tier, uses=(*named, *unnamed), assumed=unnamed)


def _sends(tier: DiscoveredTier, other: DiscoveredTier) -> bool:
    return any(
        _is_at(f"{place}:80" if ":" not in place else place, instance, other)
        for instance in tier.instances
        for place in instance.behind
    )


def _speaks_of(tier: DiscoveredTier, other: DiscoveredTier) -> bool:
    return any(
        _is_at(f"{found[1]}:{found[2]}", instance, other)
        for instance in tier.instances
        for config in instance.configs.values()
        for seen in config.seen
        for word in seen.words
        for found in _ADDRESS.finditer(word)
    )


def _is_at(place: str, speaker: Instance, tier: DiscoveredTier) -> bool:
    """Whether ``host:port``, as ``speaker`` has it, is a host of ``tier``."""
    host, _, port = place.rpartition(":")
    if port != str(tier.port):
        return False
    return any(
        host in instance.host.names or (host in _HERE and instance.host.name == speaker.host.name)
        for instance in tier.instances
    )
