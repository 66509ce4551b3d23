"""Rules that hold for any stack, whatever its target says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autotune.services.base import Needs
from autotune.services.registry import placed
from autotune.space.dimension import Dimension
from autotune.space.expression import Comparison, parse_comparison
from autotune.space.facts import HostFacts
from autotune.space.rules import OCCUPIED, qualified
from autotune.target.model import Target, Tier

# Of a host's memory; the rest is the kernel's, its buffers' and that of whoever else is there.
MEMORY_SHARE = "80%"


def facts_of(target: Target, facts: Mapping[str, HostFacts]) -> dict[str, float]:
    """What rules may say of hosts: their number, memory (bytes), CPUs and descriptors.

    ``web.memory`` is the smallest host's; ``sum``, ``min`` and ``max`` go over all of them.
    ``rss(web.nginx)`` is the memory of one process, by the service's own account.
    """
    names: dict[str, float] = {}
    for name, tier in target.tiers.items():
        names[f"count({name})"] = names[f"count({name}.hosts)"] = len(tier.hosts)
        for fact in ("memory", "cpus", "nofile"):
            values = [getattr(facts[host], fact) for host in tier.hosts]
            names[f"{name}.{fact}"] = min(values)
            for function in (sum, min, max):
                names[f"{function.__name__}({name}.{fact})"] = function(values)
        names[f"nofile({name})"] = names[f"{name}.nofile"]
        for place in placed(name, tier):
            names[f"rss({name}.{place.service.name})"] = place.service.needs.rss
    for name, host_facts in facts.items():
        names[f"memory({name})"] = host_facts.memory
    return names


def orders(target: Target, dimensions: Iterable[Dimension]) -> Iterator[Comparison]:
    """What software demands of its own values: the order of some, the bounds of derived ones."""
    by_name = {d.name: d for d in dimensions}
    for tier_name, tier in target.tiers.items():
        for place in placed(tier_name, tier):
            prefix = f"{tier_name}.{place.service.name}."
            for pair in place.service.at_most:
                small, large = (qualified(side, prefix, by_name) for side in pair)
                order = parse_comparison(f"{small} <= {large}")
                if order.names() <= by_name.keys():
                    yield order
    for dimension in by_name.values():
        if dimension.derived is not None and dimension.high is not None:
            yield parse_comparison(f"{dimension.derived} <= {dimension.high * dimension.unit:.12g}")


def limits(target: Target) -> Iterator[Comparison]:
    """What hosts and the tiers behind can bear: memory, connections, descriptors."""
    yield from map(parse_comparison, _memory(target))
    yield from map(parse_comparison, _connections(target))
    yield from map(parse_comparison, _descriptors(target))


def _memory(target: Target) -> Iterator[str]:
    """The worst case of all services on a host within its memory."""
    for host in target.hosts:
        tiers = [n for n, t in target.tiers.items() if host in t.hosts and _says(t, OCCUPIED, n)]
        if tiers:
            occupied = " + ".join(f"{tier}.{OCCUPIED}" for tier in tiers)
            yield f"{occupied} <= {MEMORY_SHARE} of memory({host})"


def _connections(target: Target) -> Iterator[str]:
    """Every worker of an application holds a connection to each host of the tiers behind it: one
    memcached has workers × web hosts of them.
    """
    for behind, tier in target.tiers.items():
        users = [n for n, t in target.tiers.items() if behind in t.uses and _says(t, "workers", n)]
        if users and _says(tier, "connections", behind):
            workers = " + ".join(f"{user}.workers * count({user}.hosts)" for user in users)
            yield f"{workers} <= {behind}.connections"


def _descriptors(target: Target) -> Iterator[str]:
    """What one process opens within what it may open."""
    for tier_name, tier in target.tiers.items():
        for place in placed(tier_name, tier):
            if text := place.service.needs.descriptors:
                prefix = f"{tier_name}.{place.service.name}."
                names = [prefix + parameter.name for parameter in place.service.parameters]
                yield f"{qualified(text, prefix, names)} <= nofile({tier_name})"


def _says(tier: Tier, size: str, name: str) -> bool:
    """Whether every deployment of a tier says how much of it there is."""
    takes = [place.service.needs for place in placed(name, tier)]
    return any(_has(needs, size) for needs in takes)


def _has(takes: Needs, size: str) -> bool:
    if size == OCCUPIED:
        return bool(takes.processes or takes.memory)
    return bool(getattr(takes, size))
