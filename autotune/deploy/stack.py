"""Which service runs where, in the order they start: the topology of a target made concrete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from autotune.services.base import Conditions, Endpoint, Own, Role, Service, Settings, Site, met
from autotune.services.registry import PORTS, Placed, of_role, parts, placed
from autotune.space.facts import HostFacts
from autotune.target.model import Target

Ports = Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Part:
    """One service on one host of one tier; it is there while ``when`` holds."""

    service: Service
    site: Site
    when: Conditions = ()

    @property
    def name(self) -> str:
        return f"{self.site.tier}.{self.site.host}.{self.service.name}"

    @property
    def owner(self) -> str:
        """``tier.service``: what the full names of its parameters begin with."""
        return f"{self.site.tier}.{self.service.name}"


@dataclass(frozen=True)
class Stack:
    """All parts in dependency order, and where requests enter: at each host of the first tier.

    ``parts`` are those of every deployment that the target lets the search choose from; which of
    them run depends on the settings.
    """

    parts: tuple[Part, ...]
    entry: Endpoint
    other_entries: tuple[Endpoint, ...] = ()

    def active(self, settings: Settings) -> tuple[Part, ...]:
        """The parts that run under these settings, in dependency order."""
        return tuple(part for part in self.parts if met(part.when, settings))

    @property
    def calls(self) -> dict[str, tuple[str, ...]]:
        """For each tier the tiers that it calls, directly or not."""
        at = {part.site.listen: part.site.tier for part in self.parts}
        asked: dict[str, set[str]] = {}
        for part in self.parts:  # those that are called come first
            site = part.site
            ends = (*site.forwards_to, *site.uses)
            direct = {at[end] for end in ends if end in at} - {site.tier}
            behind = {tier for called in direct for tier in asked.get(called, ())}
            asked.setdefault(site.tier, set()).update(direct, behind)
        return {tier: tuple(sorted(others)) for tier, others in asked.items()}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host that something runs on, each once."""
        return tuple(dict.fromkeys(part.site.host for part in self.parts))

    def of_role(self, role: Role) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.site.role is role)


@dataclass(frozen=True)
class StackContext:
    """What the topology is built from: directories, ports, accounts, programs and facts per host.

    ``ports`` are those of private servers; without one, the tier's own port holds, or its service's.
    ``programs`` are by host, ``own`` are the hosts' own files by the names of parts.
    """

    directory: str
    ports: Ports
    programs: Mapping[str, Mapping[str, str]]
    facts: Mapping[str, HostFacts]
    user: str | None = None
    group: str | None = None
    installed: bool = False
    own: Mapping[str, Own] = field(default_factory=dict)


def local_of(tier: str) -> str:
    """The name that ``Ports`` has, in place of a tier's, for the cache on each host of a tier."""
    return f"{tier}.local"


def entry_tiers(target: Target) -> tuple[str, ...]:
    """The tiers that no other one forwards to or uses. A valid target has one: load is sent to it."""
    behind = {tier.forwards_to for tier in target.tiers.values()}
    behind |= {name for tier in target.tiers.values() for name in tier.uses}
    return tuple(name for name in target.tiers if name not in behind)


def start_order(target: Target) -> tuple[str, ...]:
    """Tiers such that each comes after all it depends on."""
    return tuple(
        TopologicalSorter({name: tier.needs for name, tier in target.tiers.items()}).static_order()
    )


def build(target: Target, context: StackContext) -> Stack:
    """The stack of a target with every deployment of each tier."""
    built = [
        Part(place.service, _site(target, context, name, host, place), place.runs)
        for name in start_order(target)
        for host in target.tiers[name].hosts
        for place in placed(name, target.tiers[name])
    ]
    first = entry_tiers(target)[0]
    entry, *others = (_endpoint(target, first, host, context) for host in target.tiers[first].hosts)
    return Stack(tuple(built), entry, tuple(others))


def _site(target: Target, context: StackContext, name: str, host: str, place: Placed) -> Site:
    tier = target.tiers[name]

    def endpoints(tiers: tuple[str, ...], role: Role | None = None) -> tuple[Endpoint, ...]:
        return tuple(
            _endpoint(target, other, other_host, context)
            for other in tiers
            if role is None or role in _roles(target, other)
            for other_host in target.tiers[other].hosts
        )

    return Site(
        tier=name,
        host=host,
        role=place.role,
        directory=f"{context.directory}/{name}.{host}",
        listen=_local(name, host, context)
        if place.role is Role.LOCAL
        else _endpoint(target, name, host, context),
        forwards_to=endpoints((tier.forwards_to,)) if tier.forwards_to else (),
        caches=endpoints(tier.uses, Role.CACHE),
        stores=endpoints(tier.uses, Role.STORE),
        uses=endpoints(tier.uses),
        local=_local(name, host, context) if tier.local_cache else None,
        installed=context.installed,
        user=context.user,
        group=context.group,
        programs={key: context.programs[host][key] for key in place.service.programs},
        facts=dict(context.facts[host].names()),
        own=_own(context, host, place),
    )


def _own(context: StackContext, host: str, place: Placed) -> Own | None:
    """The host's own files of a service, if it is in the deployment that they are of: another
    deployment of the tier may have a service of the same name."""
    own = context.own.get(f"{place.tier}.{host}.{place.service.name}")
    of = {deployment for _, deployments in place.when for deployment in deployments}
    return own if own is None or not (own.deployment and of) or own.deployment in of else None


def _roles(target: Target, tier: str) -> set[Role]:
    return {role for deployment in target.tiers[tier].service for _, role in parts(deployment)}


def _local(tier: str, host: str, context: StackContext) -> Endpoint:
    """Where the cache beside the application listens: on its own host alone."""
    port = next(service.port for service in of_role(Role.LOCAL))
    return Endpoint("127.0.0.1", context.ports.get((local_of(tier), host)) or port)


def _endpoint(target: Target, tier: str, host: str, context: StackContext) -> Endpoint:
    described = target.tiers[tier]
    port = context.ports.get((tier, host)) or described.port or PORTS[described.service[0]]
    return Endpoint(target.hosts[host].address, port)
