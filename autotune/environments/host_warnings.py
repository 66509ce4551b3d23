"""Warnings of addresses, ports and links between tiers that are valid, but probably mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from autotune.deploy.stack import find_entry_tiers
from autotune.environments.target_checks import FINAL_ROLES, FORWARDING_ROLES
from autotune.services.base import Role
from autotune.services.registry import Catalogue, catalogue_of
from autotune.target.consistency_checks import TargetMistake
from autotune.target.model import Host, Target, Tier
from autotune.transports.request import DEFAULT_PORTS

LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")
SSH_PORT = 22
TLS_PORTS = (443, 8443)
# Ports of other services than SSH, which are sometimes written as the SSH port of a host.
SERVICE_PORTS = frozenset({80, 443, 3306, 5432, 6379, 8080, 8443, 9000, 11211})


def find_host_doubts(target: Target) -> Iterator[TargetMistake]:
    """Yield hosts and tiers whose addresses, ports or links are probably wrong."""
    is_remote = any(host.transport == "ssh" for host in target.hosts.values())
    first_names: dict[str, str] = {}
    for name, host in target.hosts.items():
        first_name = first_names.setdefault(name.lower(), name)
        if first_name != name:
            message = f"the names {first_name!r} and {name!r} differ only in case"
            yield TargetMistake(("hosts", name), message, "give one of them another name")
        if doubt := _find_address_doubt(target, name, host):
            yield TargetMistake(("hosts", name, "address"), *doubt)
        if host.transport == "ssh" and host.port in SERVICE_PORTS:
            message = f"`port: {host.port}` of a host is the port of its SSH server"
            hint = f"remove it, or write `port: {host.port}` in the tier of the service"
            yield TargetMistake(("hosts", name, "port"), message, hint)
    if is_remote:
        yield from _find_unreachable_hosts(target)
    yield from _find_tier_ports(target)
    yield from _find_link_doubts(target)
    yield from _find_ignored_tier_keys(target)


def _find_address_doubt(target: Target, name: str, host: Host) -> tuple[str, str] | None:
    """Return the message and the hint for an address that can hardly be the address of a host."""
    example = "write the address of the host, such as 10.0.0.11"
    named_host = target.hosts.get(host.address)
    if named_host is not None and host.address not in (name, named_host.address):
        hint = f"write the address of {name!r}, such as 10.0.0.11"
        return f"the address of {name!r} is the name of another host in this file", hint
    if ".." in host.address:
        return f"{host.address} contains two dots in a row", "remove one of them"
    if kind := describe_unusable_address(host.address):
        return f"{host.address} is {kind}, not the address of a host", example
    if is_loopback(host.address) and host.transport == "ssh":
        hint = "write `transport: local` for this machine, or the address of the other host"
        return f"{host.address} is this machine, reached over SSH", hint
    return None


def describe_unusable_address(address: str) -> str | None:
    """Return what an address is that no host can have; ``None`` for other addresses and names."""
    try:
        parsed_address = ip_address(address)
    except ValueError:
        return None
    if parsed_address.is_unspecified:
        return "the address of all interfaces"
    if parsed_address.is_multicast:
        return "a multicast address"
    if str(parsed_address) == "255.255.255.255":
        return "a broadcast address"
    return "a link-local address" if parsed_address.is_link_local else None


def is_loopback(address: str) -> bool:
    """True if an address or a name always belongs to the machine itself."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address.lower() in LOCAL_NAMES


def _find_unreachable_hosts(target: Target) -> Iterator[TargetMistake]:
    """Yield local hosts without an address in tiers to which other hosts connect."""
    used_hosts = {host for tier in target.tiers.values() for host in tier.hosts}
    is_shared = any(target.hosts[name].transport == "ssh" for name in used_hosts)
    for name, host in target.hosts.items():
        is_used = is_shared and name in used_hosts and host.transport == "local"
        if is_used and is_loopback(host.address):
            message = f"other hosts cannot reach {name!r} at {host.address}"
            hint = f"give its address in the network: `{name}: {{transport: local, address: …}}`"
            yield TargetMistake(("hosts", name), message, hint)


def _find_tier_ports(target: Target) -> Iterator[TargetMistake]:
    catalogue = catalogue_of(target)
    for name, tier in target.tiers.items():
        if tier.port is None:
            continue
        location = ("tiers", name, "port")
        services = [d for d in tier.service if d in catalogue.deployments]
        roles = _list_roles(catalogue, tier)
        owners = [
            service
            for service, port in catalogue.deployment_ports.items()
            if port == tier.port and not roles & _list_service_roles(catalogue, service)
        ]
        is_http_port = any(
            FINAL_ROLES.isdisjoint(_list_service_roles(catalogue, o)) for o in owners
        )
        serves_http = bool(roles) and FINAL_ROLES.isdisjoint(roles)
        if tier.port == SSH_PORT:
            message = "port 22 belongs to SSH, not to the service of a tier"
            yield TargetMistake(location, message, "remove `port:` to use the service's own port")
        elif services and owners and not (serves_http and is_http_port):
            own_port = catalogue.deployment_ports.get(services[0])
            message = f"port {tier.port} is the usual port of {owners[0]}, not of {services[0]}"
            hint = f"write `port: {own_port}`, or remove it" if own_port else "remove it"
            yield TargetMistake(location, message, hint)
    yield from _find_entry_port(target)


def _find_entry_port(target: Target) -> Iterator[TargetMistake]:
    """Yield a port of the entry tier to which the load does not go."""
    entry_tiers = find_entry_tiers(target)
    if len(entry_tiers) != 1 or target.load.vip or target.simulated is not None:
        return
    tier, load = target.tiers[entry_tiers[0]], target.load
    location = ("tiers", entry_tiers[0], "port")
    url = urlsplit(load.url or "")
    if tier.port in TLS_PORTS and not load.uses_tls:
        message = f"port {tier.port} is usually served with TLS, but the load uses plain HTTP"
        hint = "write `load: {url: https://NAME/…}`, or the port for plain HTTP"
        yield TargetMistake(location, message, hint)
    elif load.url and tier.port and tier.installed:
        url_port = url.port or DEFAULT_PORTS[url.scheme]
        if url_port != tier.port and not load.uses_tls:
            message = f"the load goes to port {url_port}, the port of `url:`, and not to this port"
            hint = f"write `{url.scheme}://{url.hostname}:{tier.port}/…`, or change `port:`"
            yield TargetMistake(location, message, hint)


def _list_roles(catalogue: Catalogue, tier: Tier) -> frozenset[Role]:
    """Return the roles of the services in a tier; empty if one of the services is unknown."""
    if not catalogue.deployments.keys() >= {*tier.service}:
        return frozenset()
    return frozenset[Role]().union(*(_list_service_roles(catalogue, s) for s in tier.service))


def _list_service_roles(catalogue: Catalogue, service: str) -> frozenset[Role]:
    return frozenset(role for _, role in catalogue.deployments.get(service, ()))


def _find_link_doubts(target: Target) -> Iterator[TargetMistake]:
    """Yield proxies that use a cache, and links that forward HTTP to other software."""
    catalogue = catalogue_of(target)
    roles = {name: _list_roles(catalogue, tier) for name, tier in target.tiers.items()}
    for name, tier in target.tiers.items():
        next_roles = roles.get(tier.forwards_to or "", frozenset())
        if next_roles and next_roles <= FINAL_ROLES:
            services = " or ".join(target.tiers[str(tier.forwards_to)].service)
            message = f"tier {name!r} cannot forward HTTP requests to {services}"
            hint = f"write `uses: {tier.forwards_to}` in the tier whose application calls it"
            yield TargetMistake(("tiers", name, "forwards_to"), message, hint)
        if tier.uses and roles[name] and roles[name] <= FORWARDING_ROLES:
            http_tiers = [t for t in tier.uses if roles.get(t) and roles[t].isdisjoint(FINAL_ROLES)]
            message = f"{tier.service[0]} runs no application that could use other tiers"
            hint = f"move `uses:` to the tier of the application, or add the software to {name!r}"
            if http_tiers and tier.forwards_to is None:
                hint = f"write `forwards_to: {http_tiers[0]}`, and move other names to that tier"
            yield TargetMistake(("tiers", name, "uses"), message, hint)


def _find_ignored_tier_keys(target: Target) -> Iterator[TargetMistake]:
    """Yield keys of a tier that have no effect with its service or its runtime."""
    catalogue = catalogue_of(target)
    for name, tier in target.tiers.items():
        known_services = [d for d in tier.service if d in catalogue.deployments]
        services = [s for d in known_services for s, _ in catalogue.services_of(d)]
        roles = _list_roles(catalogue, tier)
        loses_data = any(s.forgets_on_restart or s.role is Role.STORE for s in services)
        if tier.allow_data_loss and services and not loses_data:
            message = f"`allow_data_loss:` has no effect: {tier.service[0]} keeps its data on disk"
            if not roles & {Role.CACHE, Role.STORE, Role.DATABASE}:
                message = f"`allow_data_loss:` has no effect: {tier.service[0]} stores no data"
            yield TargetMistake(("tiers", name, "allow_data_loss"), message, "remove it")
        if not tier.installed:
            for key in ("allow_data_loss", "replace"):
                if getattr(tier, key) and (key != "allow_data_loss" or loses_data):
                    message = f"`{key}:` has no effect with `runtime: {tier.runtime}`"
                    hint = "remove it: private processes have their own files and data"
                    yield TargetMistake(("tiers", name, key), message, hint)
