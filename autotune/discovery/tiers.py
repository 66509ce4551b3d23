"""Find the deployments on hosts, the tiers that they form, and the calls between tiers."""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.config_text import escape_non_utf8, is_utf8
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.listeners import list_other_ports, list_untuned
from autotune.services.adoption import Adoption, RunningService, is_loopback
from autotune.services.base import Role
from autotune.services.config_files import Config
from autotune.services.registry import Catalogue, select_companions

# A match starts only at the start of a name. Otherwise, a long word would be tried from each letter.
_ADDRESS_PATTERN = re.compile(
    r"(\[[0-9a-fA-F:]+\]|(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]++):([0-9]{2,5})"
)
_PORT_PATTERN = re.compile(r"([^/$]+):[0-9]{1,5}")
_MAX_PORT = 65_535
_SOCKET_PATTERN = re.compile(r"(?:unix[:@])?(/[^:]*)")
_KIND_ORDER = ("lb", "http_cache", "web", "app", "cache", "store", "db")
_FORWARDING_KINDS, _FORWARD_TARGET_KINDS = ("lb", "http_cache"), ("http_cache", "web", "app", "lb")
_CALLER_KINDS, _CALLED_KINDS = ("web", "app"), ("cache", "store", "db")


@dataclass(frozen=True)
class DiscoveredInstance:
    """A deployment on a host, with its ``services`` by name.

    ``backends`` are the addresses to which the deployment forwards requests, as ``host:port``.
    ``tls`` and ``hostname`` are copied from ``RunningService``.
    """

    host: DiscoveredHost
    tier_kind: str  # one of `_KIND_ORDER`
    deployment: str
    port: int
    services: Mapping[str, RunningService]
    backends: tuple[str, ...] = ()
    tls: bool = False
    hostname: str = ""

    @property
    def configs(self) -> Mapping[str, Config]:
        return {name: service.config for name, service in self.services.items()}


@dataclass(frozen=True)
class DiscoveredTier:
    """Hosts with the same deployment on the same port. ``assumed_uses`` are the tiers in ``uses`` whose
    addresses are in no configuration file.
    """

    name: str
    instances: tuple[DiscoveredInstance, ...]
    forwards_to: str | None = None
    uses: tuple[str, ...] = ()
    assumed_uses: tuple[str, ...] = ()

    @property
    def catalogue(self) -> Catalogue:
        """Return the services for which autotune searched the tier's hosts."""
        return self.instances[0].host.catalogue

    @property
    def deployment(self) -> str:
        return self.instances[0].deployment

    @property
    def port(self) -> int:
        return self.instances[0].port

    @property
    def tier_kind(self) -> str:
        return self.instances[0].tier_kind

    @property
    def listen_location(self) -> str:
        """Return the socket or port on which the tier listens, as text."""
        sockets = (
            s.listen_address for s in self.instances[0].services.values() if self.tier_kind == "app"
        )
        return next((f"socket {socket}" for socket in sockets if socket), f"port {self.port}")


def find_instances(host: DiscoveredHost) -> tuple[tuple[DiscoveredInstance, ...], tuple[str, ...]]:
    """Return the deployments on a host, and a note for each service that autotune does not tune."""
    running_services, notes = _find_running_services(host)
    deployable = host.catalogue.deployable
    servers = [
        s for s in running_services if s.key in deployable and deployable[s.key].gateway_protocol
    ]
    front_services = [
        s
        for s in running_services
        if s.key in deployable and not deployable[s.key].gateway_protocol
    ]
    setting_services = [service for service in running_services if service.key not in deployable]
    fronts_with_servers = [
        (front, _select_server(host, front, servers)) for front in front_services
    ]
    notes += [
        _describe_missing_server(host, front)
        for front, server in fronts_with_servers
        if front.gateway_protocol and server is None
    ]
    notes += _list_idle_versions(
        host, servers, [server for _, server in fronts_with_servers if server]
    )
    deployed_instances = tuple(
        _build_instance(host, front, server, setting_services)
        for front, server in fronts_with_servers
    )
    notes += [
        f"{host.name}: {line}"
        for line in list_other_ports(
            host.catalogue, host.listeners, _list_tuned_ports(deployed_instances)
        )
    ]
    return deployed_instances, tuple(notes)


def _find_running_services(host: DiscoveredHost) -> tuple[list[RunningService], list[str]]:
    """Return the running services whose files were read, and notes about other services."""
    running_services: list[RunningService] = []
    notes: list[str] = []
    for adoption in host.catalogue.list_programs():
        adoption_results = tuple(adoption.find_services(host))
        for adoption_result in adoption_results:
            if isinstance(adoption_result, str):
                notes.append(f"{host.name}: {escape_non_utf8(adoption_result)}")
            elif reason := _explain_invalid_names(adoption_result):
                notes.append(f"{host.name}: {adoption.title}: {reason}")
            else:
                running_services.append(adoption_result)
        notes += _list_foreign_units(host, adoption) if not adoption_results else []
        notes += list_unread(host, adoption)
    return running_services, notes


def _describe_missing_server(host: DiscoveredHost, front: RunningService) -> str:
    deployable = host.catalogue.deployable
    titles = [s.title for s in deployable.values() if s.gateway_protocol == front.gateway_protocol]
    return (
        f"{host.name}: {deployable[front.key].title} forwards requests to "
        f"{' or '.join(titles)}, which is not adopted"
    )


def _select_server(
    host: DiscoveredHost, front_service: RunningService, servers: Sequence[RunningService]
) -> RunningService | None:
    """Return the application server that a web server uses. Several versions are distinguished by
    their sockets.

    The only running server is also returned if its socket or port differs, because a socket's path may
    be a link. It is not returned if all addresses belong to other hosts.
    """
    fitting_servers = [
        s
        for s in servers
        if host.catalogue.deployable[s.key].gateway_protocol == front_service.gateway_protocol
    ]
    linked_servers = [s for s in fitting_servers if _find_used_location(host, front_service, s)]
    addresses = front_service.gateway_addresses
    is_remote = bool(addresses) and all(_is_on_other_host(host, a) for a in addresses)
    only_server = fitting_servers if len(fitting_servers) == 1 and not is_remote else []
    return next(iter(linked_servers or only_server), None)


def _find_used_location(host: DiscoveredHost, front: RunningService, server: RunningService) -> str:
    """Return the first socket or port of an application server to which a web server forwards, or an
    empty string. A server with several pools listens at several locations.
    """
    locations = server.gateway_addresses or (server.listen_address,)
    return next(
        (
            location
            for address in front.gateway_addresses
            for location in locations
            if location and _is_same_location(host, location, address)
        ),
        "",
    )


def _is_same_location(host: DiscoveredHost, listen_location: str, address: str) -> bool:
    """True if ``address`` refers to the socket path or port ``listen_location`` on the host."""
    if _is_on_other_host(host, address):
        return False
    socket = address.removeprefix("unix:").removeprefix("//")
    return listen_location in (socket.removesuffix(":"), address.rpartition(":")[2])


def _is_on_other_host(host: DiscoveredHost, address: str) -> bool:
    """True if an address with a port contains an IP address that is none of the host's. A name may be
    another name of the host.
    """
    port_address = _PORT_PATTERN.fullmatch(address)
    host_text = port_address[1].strip("[]") if port_address else ""
    if not host_text or is_loopback(host_text) or host_text in host.names:
        return False
    try:
        ipaddress.ip_address(host_text)
    except ValueError:
        return False
    return True


def _list_idle_versions(
    host: DiscoveredHost, servers: Sequence[RunningService], used_servers: Sequence[RunningService]
) -> list[str]:
    """Return a note for each running version of an application server to which no web server
    forwards.
    """
    service_keys = {server.key for server in used_servers}
    return [
        f"{host.name}: {server.instance} is running, but no web server forwards to it, so it is not tuned"
        for server in servers
        if server.key in service_keys and server not in used_servers and server.instance
    ]


def list_unread(host: DiscoveredHost, adoption: Adoption) -> list[str]:
    """Return a line for each masked unit of a running service, and for each link that was not
    read.
    """
    patterns = (*adoption.units, *adoption.other_units)
    unit_names = dict.fromkeys(
        unit for name in patterns for unit in fnmatch.filter(host.units, name)
    )
    unread_lines = [
        f"{host.name}: {unit} is masked, so autotune can neither restart nor tune it"
        for unit in unit_names
        if host.is_active_masked(unit)
    ]
    if unread_lines or any(map(host.is_active, unit_names)):
        links = (
            path
            for pattern in adoption.paths
            for path in host.tree.find_broken_links(f"/{pattern}")
        )
        unread_lines += [
            f"{host.name}: {escape_non_utf8(path)}: {escape_non_utf8(host.tree.explain_missing(path))}"
            for path in dict.fromkeys(links)
        ]
    return unread_lines


def _explain_invalid_names(service: RunningService) -> str:
    """Return why a path, address or port of a service cannot be used in commands and records; empty if
    all can be used.
    """
    if service.port > _MAX_PORT:
        return (
            f"its files set port {service.port}, but ports end at {_MAX_PORT}, so it is not tuned"
        )
    checked_names = (
        service.config.main_file,
        service.unit,
        service.listen_address,
        service.hostname,
        *service.backends,
    )
    invalid_name = next((name for name in checked_names if not is_utf8(name)), None)
    return (
        ""
        if invalid_name is None
        else f"{escape_non_utf8(invalid_name)} is not UTF-8, so it is not tuned"
    )


def list_untuned_listeners(
    instances_by_host: Iterable[tuple[DiscoveredHost, Sequence[DiscoveredInstance]]],
) -> tuple[str, ...]:
    """Return a line for each listener on the hosts that belongs to none of the hosts' deployments."""
    hosts = [*instances_by_host]
    listeners_by_host = {
        host.name: (host.listeners, _list_tuned_ports(instances)) for host, instances in hosts
    }
    return tuple(list_untuned(hosts[0][0].catalogue, listeners_by_host)) if hosts else ()


def _list_tuned_ports(instances: Iterable[DiscoveredInstance]) -> list[tuple[str, int]]:
    return [
        (s.key, instance.port)
        for instance in instances
        for s in instance.services.values()
        if s.key in instance.host.catalogue.deployable
    ]


def _list_foreign_units(host: DiscoveredHost, adoption: Adoption) -> list[str]:
    """Return a note for each service that runs under another unit name than Debian's."""
    other_units = [unit for unit in host.units if unit not in adoption.other_units]
    if any(
        host.is_active(unit)
        for name in adoption.units
        for unit in fnmatch.filter(other_units, name)
    ):
        return []
    return [
        f"{host.name}: {adoption.title} runs as {unit}, which is not Debian's unit name. autotune "
        f"cannot locate its files and does not tune it"
        for unit in adoption.other_units
        if host.is_active(unit)
    ]


def _build_instance(
    host: DiscoveredHost,
    front: RunningService,
    server: RunningService | None,
    setting_services: Iterable[RunningService],
) -> DiscoveredInstance:
    catalogue = host.catalogue
    if server is None:
        deployment, tier_kind, running_services = (
            catalogue.deployable[front.key].deployment,
            front.tier_kind,
            [front],
        )
    else:
        location = _find_used_location(host, front, server) or server.listen_address
        deployment, tier_kind = f"{front.key}+{server.key}", "web"
        running_services = [front, replace(server, listen_address=location)]
    roles = dict(catalogue.deployments[deployment])
    services = {
        catalogue.deployable[s.key].name: replace(s, role=roles[s.key]) for s in running_services
    }
    names_by_key = {
        s.key: s.name
        for s in select_companions(
            tuple(s for s, _ in catalogue.services_of(deployment)),
            catalogue.list_by_role(Role.HOST),
        )
    }
    instance = server.instance if server else ""
    services |= {
        names_by_key[s.key]: replace(s, role=Role.HOST)
        for s in setting_services
        if s.key in names_by_key and s.instance in ("", instance)
    }
    return DiscoveredInstance(
        host, tier_kind, deployment, front.port, services, front.backends, front.tls, front.hostname
    )


def group_tiers(instances: Iterable[DiscoveredInstance]) -> tuple[DiscoveredTier, ...]:
    """Return the tiers and their connections, from the load balancer to the database.

    If no file contains the address of a cache, store or database, every web and application tier is
    assumed to use it. The application may read the address from another source.
    """
    instances_by_key: dict[tuple[str, str, int], list[DiscoveredInstance]] = {}
    for instance in instances:
        instances_by_key.setdefault(
            (instance.tier_kind, instance.deployment, instance.port), []
        ).append(instance)
    discovered_tiers: list[DiscoveredTier] = []
    for key in sorted(instances_by_key, key=lambda key: _KIND_ORDER.index(key[0])):
        same_kind_count = sum(tier.tier_kind == key[0] for tier in discovered_tiers)
        tier_name = key[0] if not same_kind_count else f"{key[0]}{same_kind_count + 1}"
        discovered_tiers.append(DiscoveredTier(tier_name, tuple(instances_by_key[key])))
    return tuple(_connect_tier(tier, discovered_tiers) for tier in discovered_tiers)


def _connect_tier(tier: DiscoveredTier, all_tiers: Sequence[DiscoveredTier]) -> DiscoveredTier:
    other_tiers = [other for other in all_tiers if other.name != tier.name]
    if tier.tier_kind in _FORWARDING_KINDS:
        forward_targets = (
            other.name
            for tier_kind in _FORWARD_TARGET_KINDS
            for other in other_tiers
            if other.tier_kind == tier_kind and _forwards_to(tier, other)
        )
        return replace(tier, forwards_to=next(forward_targets, None))
    if tier.tier_kind not in _CALLER_KINDS:
        return tier
    backing_tiers = [other for other in other_tiers if other.tier_kind in _CALLED_KINDS]
    mentioned_tiers = tuple(other.name for other in backing_tiers if _mentions_address(tier, other))
    callers = [other for other in all_tiers if other.tier_kind in _CALLER_KINDS]
    unmentioned_tiers = tuple(
        other.name
        for other in backing_tiers
        if not any(_mentions_address(caller, other) for caller in callers)
    )
    return replace(
        tier, uses=(*mentioned_tiers, *unmentioned_tiers), assumed_uses=unmentioned_tiers
    )


def _forwards_to(tier: DiscoveredTier, other_tier: DiscoveredTier) -> bool:
    return any(
        _is_address_of(f"{location}:80" if ":" not in location else location, instance, other_tier)
        for instance in tier.instances
        for location in instance.backends
    )


def _mentions_address(tier: DiscoveredTier, other_tier: DiscoveredTier) -> bool:
    """True if a file of ``tier`` contains an address of ``other_tier``."""
    return any(
        _is_address_of(f"{address[1]}:{address[2]}", instance, other_tier)
        for instance in tier.instances
        for config in instance.configs.values()
        for directive in config.directives
        for word in directive.words
        for address in _ADDRESS_PATTERN.finditer(word)
    )


def _is_address_of(address: str, caller: DiscoveredInstance, tier: DiscoveredTier) -> bool:
    """True if ``address``, from the files of ``caller``, belongs to a host of ``tier``. ``address`` is
    ``host:port`` or the path of a Unix socket.
    """
    if socket := _SOCKET_PATTERN.match(address):
        listen_addresses = (
            s.listen_address
            for instance in tier.instances
            for s in instance.services.values()
            if instance.host.name == caller.host.name
        )
        # The path of a socket in the working directory may lack its directory.
        return any(listen and f"/{socket[1]}".endswith(f"/{listen}") for listen in listen_addresses)
    host, _, port = address.rpartition(":")
    if port != str(tier.port):
        return False
    return any(
        host in instance.host.names
        or (is_loopback(host) and instance.host.name == caller.host.name)
        for instance in tier.instances
    )
