"""The stack of a target: which service runs where, in start order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from autotune.services.base import (
    AdoptedConfig,
    Conditions,
    Endpoint,
    Placement,
    Role,
    Service,
    Settings,
    conditions_hold,
)
from autotune.services.registry import SHIPPED, Catalogue, TierService, catalogue_of
from autotune.space.facts import HostFacts
from autotune.target.model import Target

PortsByHost = Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class ServiceInstance:
    """One service on one host in one tier. The instance runs only if ``conditions`` hold."""

    service: Service
    placement: Placement
    conditions: Conditions = ()

    @property
    def name(self) -> str:
        return f"{self.placement.tier}.{self.placement.host}.{self.service.name}"

    @property
    def parameter_prefix(self) -> str:
        """Return ``tier.service``, the prefix of the full names of the service's parameters."""
        return f"{self.placement.tier}.{self.service.name}"


@dataclass(frozen=True)
class Stack:
    """All instances in dependency order, and the entry on each host of the first tier.

    ``instances`` includes the instances of every deployment that the search may choose. The settings
    determine which instances run. ``catalogue`` contains the services of all instances.
    """

    instances: tuple[ServiceInstance, ...]
    entry: Endpoint
    other_entries: tuple[Endpoint, ...] = ()
    catalogue: Catalogue = SHIPPED

    def active_instances(self, settings: Settings) -> tuple[ServiceInstance, ...]:
        """Return the instances that run under these settings, in dependency order."""
        return tuple(
            instance
            for instance in self.instances
            if conditions_hold(instance.conditions, settings)
        )

    @property
    def called_tiers(self) -> dict[str, tuple[str, ...]]:
        """Return, for each tier, the tiers that the tier calls directly or indirectly."""
        tiers_by_address = self._tiers_by_address
        by_tier: dict[str, set[str]] = {}
        for instance in self.instances:  # each instance comes after the instances that it calls
            placement = instance.placement
            endpoints = (*placement.forwards_to, *placement.uses)
            direct_tiers = {
                tiers_by_address[endpoint] for endpoint in endpoints if endpoint in tiers_by_address
            } - {placement.tier}
            indirect_tiers = {tier for called in direct_tiers for tier in by_tier.get(called, ())}
            by_tier.setdefault(placement.tier, set()).update(direct_tiers, indirect_tiers)
        return {tier: tuple(sorted(others)) for tier, others in by_tier.items()}

    @property
    def forwards_to(self) -> dict[str, str]:
        """Return, for each tier that forwards requests, the tier that receives them."""
        tiers_by_address = self._tiers_by_address
        return {
            instance.placement.tier: tiers_by_address[endpoint]
            for instance in self.instances
            for endpoint in instance.placement.forwards_to
            if endpoint in tiers_by_address
        }

    @property
    def _tiers_by_address(self) -> dict[Endpoint, str]:
        return {instance.placement.listen: instance.placement.tier for instance in self.instances}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts on which instances run, without duplicates."""
        return tuple(dict.fromkeys(instance.placement.host for instance in self.instances))

    def instances_with_role(self, role: Role) -> tuple[ServiceInstance, ...]:
        return tuple(instance for instance in self.instances if instance.placement.role is role)


@dataclass(frozen=True)
class StackContext:
    """Directories, ports, accounts, programs and facts that are needed to build a stack.

    ``ports`` apply to private servers; other servers use the port of their tier or service.
    ``programs`` is keyed by host. ``adopted`` contains the hosts' own files by instance.
    """

    directory: str
    ports: PortsByHost
    programs: Mapping[str, Mapping[str, str]]
    facts: Mapping[str, HostFacts]
    user: str | None = None
    group: str | None = None
    installed: bool = False
    adopted: Mapping[str, AdoptedConfig] = field(default_factory=dict)


def build_local_cache_name(tier: str) -> str:
    """Return the key in ``PortsByHost`` for the cache that runs on each host of a tier."""
    return f"{tier}.local"


def find_entry_tiers(target: Target) -> tuple[str, ...]:
    """Return the tiers that no other tier uses. A valid target contains only one such tier, which
    receives the load.
    """
    forward_targets = {tier.forwards_to for tier in target.tiers.values()}
    forward_targets |= {name for tier in target.tiers.values() for name in tier.uses}
    return tuple(name for name in target.tiers if name not in forward_targets)


def list_start_order(target: Target) -> tuple[str, ...]:
    """Return the tiers in an order in which each tier comes after all tiers that it depends on."""
    return tuple(
        TopologicalSorter(
            {name: tier.required_tiers for name, tier in target.tiers.items()}
        ).static_order()
    )


def build_stack(target: Target, context: StackContext) -> Stack:
    """Return the stack of a target with every deployment of each tier."""
    catalogue = catalogue_of(target)
    instances = [
        ServiceInstance(
            location.service,
            _build_placement(target, context, name, host, location),
            location.run_conditions,
        )
        for name in list_start_order(target)
        for host in target.tiers[name].hosts
        for location in catalogue.list_tier_services(name, target.tiers[name])
    ]
    entry_stack = build_entry_stack(target, context.ports)
    return replace(entry_stack, instances=tuple(instances), catalogue=catalogue)


def build_entry_stack(target: Target, ports: PortsByHost | None = None) -> Stack:
    """Return a target's stack with only its entry addresses, without service instances."""
    entry_tier = find_entry_tiers(target)[0]
    entry, *other_entries = (
        _build_endpoint(target, entry_tier, host, ports or {})
        for host in target.tiers[entry_tier].hosts
    )
    return Stack((), entry, tuple(other_entries))


def _build_placement(
    target: Target, context: StackContext, tier_name: str, host: str, tier_service: TierService
) -> Placement:
    tier = target.tiers[tier_name]

    def build_endpoints(tiers: tuple[str, ...], role: Role | None = None) -> tuple[Endpoint, ...]:
        return tuple(
            _build_endpoint(target, endpoint_tier, other_host, context.ports)
            for endpoint_tier in tiers
            if role is None or role in _find_tier_roles(target, endpoint_tier)
            for other_host in target.tiers[endpoint_tier].hosts
        )

    return Placement(
        tier=tier_name,
        host=host,
        role=tier_service.role,
        directory=f"{context.directory}/{tier_name}.{host}",
        listen=_build_local_cache_endpoint(tier_name, host, context)
        if tier_service.role is Role.LOCAL
        else _build_endpoint(target, tier_name, host, context.ports),
        forwards_to=build_endpoints((tier.forwards_to,)) if tier.forwards_to else (),
        caches=build_endpoints(tier.uses, Role.CACHE),
        stores=build_endpoints(tier.uses, Role.STORE),
        uses=build_endpoints(tier.uses),
        local_cache=_build_local_cache_endpoint(tier_name, host, context)
        if tier.local_cache
        else None,
        installed=context.installed,
        user=context.user,
        group=context.group,
        programs={key: context.programs[host][key] for key in tier_service.service.programs},
        facts=dict(context.facts[host].to_names()),
        adopted=_find_adopted(context, host, tier_service),
    )


def _find_adopted(
    context: StackContext, host: str, tier_service: TierService
) -> AdoptedConfig | None:
    """Return the host's own files for a service, or ``None`` if the files belong to another
    deployment.

    Several deployments of a tier may have a service with the same name.
    """
    adopted_config = context.adopted.get(f"{tier_service.tier}.{host}.{tier_service.service.name}")
    allowed_deployments = {
        deployment for _, deployments in tier_service.when for deployment in deployments
    }
    return (
        adopted_config
        if adopted_config is None
        or not (adopted_config.deployment and allowed_deployments)
        or adopted_config.deployment in allowed_deployments
        else None
    )


def _find_tier_roles(target: Target, tier: str) -> set[Role]:
    catalogue = catalogue_of(target)
    return {
        role
        for deployment in target.tiers[tier].service
        for _, role in catalogue.services_of(deployment)
    }


def _build_local_cache_endpoint(tier: str, host: str, context: StackContext) -> Endpoint:
    """Return the endpoint of a host's local cache. No other host can reach this endpoint."""
    port = next(service.port for service in SHIPPED.list_by_role(Role.LOCAL))
    return Endpoint("127.0.0.1", context.ports.get((build_local_cache_name(tier), host)) or port)


def _build_endpoint(target: Target, tier: str, host: str, ports: PortsByHost) -> Endpoint:
    tier_model = target.tiers[tier]
    port = ports.get((tier, host)) or tier_model.port
    default_ports = catalogue_of(target).deployment_ports
    return Endpoint(target.hosts[host].address, port or default_ports[tier_model.service[0]])
