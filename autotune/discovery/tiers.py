"""Deployments on hosts, the tiers that they form, and the calls between tiers."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.config_text import is_utf8, readable
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.listening import at_other_ports, untuned
from autotune.services.adoption import Adoption, RunningService
from autotune.services.base import Role
from autotune.services.config_files import Config
from autotune.services.registry import DEPLOYMENTS, SERVICES, beside, of_role, parts, programs

_ADDRESS = re.compile(r"(?:[a-z]+://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):([0-9]{2,5})")
_SOCKET = re.compile(r"(?:unix[:@])?(/[^:]*)")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
_ORDER = ("lb", "http_cache", "web", "app", "cache", "store", "db")
_FORWARDING, _FORWARDED_TO = ("lb", "http_cache"), ("http_cache", "web", "app", "lb")
_CALLERS, _CALLED = ("web", "app"), ("cache", "store", "db")


@dataclass(frozen=True)
class Instance:
    """A deployment on a host. ``services`` are its services by name.

    ``behind`` are the places to which it forwards requests, as ``host:port``. ``tls`` and ``site`` come
    from ``RunningService``.
    """

    host: DiscoveredHost
    kind: str  # one of `_ORDER`
    deployment: str
    port: int
    services: Mapping[str, RunningService]
    behind: tuple[str, ...] = ()
    tls: bool = False
    site: str = ""

    @property
    def configs(self) -> Mapping[str, Config]:
        return {name: service.config for name, service in self.services.items()}


@dataclass(frozen=True)
class DiscoveredTier:
    """Hosts with the same deployment at the same port. No file shows the ``uses`` in ``assumed``."""

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

    @property
    def place(self) -> str:
        """The socket or the port at which it listens, as text."""
        sockets = (s.listen for s in self.instances[0].services.values() if self.kind == "app")
        return next((f"socket {socket}" for socket in sockets if socket), f"port {self.port}")


def instances(host: DiscoveredHost) -> tuple[tuple[Instance, ...], tuple[str, ...]]:
    """Return the deployments on a host, and a note for each thing that autotune does not tune."""
    running: list[RunningService] = []
    notes: list[str] = []
    for adoption in programs():
        results = tuple(adoption.find(host))
        for result in results:
            if isinstance(result, str):
                notes.append(f"{host.name}: {readable(result)}")
            elif why := _unusable(result):
                notes.append(f"{host.name}: {adoption.known_as}: {why}")
            else:
                running.append(result)
        notes += _of_another_distribution(host, adoption) if not results else []
        notes += unread(host, adoption)
    servers = {gateway: s for s in running
               if s.key in SERVICES and (gateway := SERVICES[s.key].gateway)}  # fmt: skip
    fronts = [s for s in running if s.key in SERVICES and not SERVICES[s.key].gateway]
    settings = [service for service in running if service.key not in SERVICES]
    for front in fronts:
        if front.gateway and front.gateway not in servers:
            titles = [s.title for s in SERVICES.values() if s.gateway == front.gateway]
            notes.append(
                f"{host.name}: {SERVICES[front.key].title} forwards requests to "
                f"{' or '.join(titles)}, which is not adopted"
            )
    deployed = tuple(
        _instance(host, front, servers.get(front.gateway), settings) for front in fronts
    )
    notes += [f"{host.name}: {line}" for line in at_other_ports(host.listeners, _tuned(deployed))]
    return deployed, tuple(notes)


def unread(host: DiscoveredHost, adoption: Adoption) -> list[str]:
    """Return a line for each masked unit of a running service, and each link that was not read."""
    patterns = (*adoption.units, *adoption.elsewhere)
    names = dict.fromkeys(unit for name in patterns for unit in fnmatch.filter(host.units, name))
    lines = [
        f"{host.name}: {unit} is masked, so autotune can neither restart nor tune it"
        for unit in names if host.runs_masked(unit)
    ]  # fmt: skip
    if lines or any(map(host.runs, names)):
        links = (path for pattern in adoption.paths for path in host.tree.unfollowed(f"/{pattern}"))
        lines += [f"{host.name}: {readable(path)}: {readable(host.tree.missing(path))}"
                  for path in dict.fromkeys(links)]  # fmt: skip
    return lines


def _unusable(running: RunningService) -> str:
    """Return why commands and records cannot name a service; empty if they can."""
    names = (running.config.main, running.unit, running.listen, running.site, *running.behind)
    broken = next((name for name in names if not is_utf8(name)), None)
    return "" if broken is None else f"{readable(broken)} is not UTF-8, so it is not tuned"


def listening(running: Iterable[tuple[DiscoveredHost, Sequence[Instance]]]) -> tuple[str, ...]:
    """Return a line for each listener on the hosts that is not one of their ``instances``."""
    return tuple(
        untuned({host.name: (host.listeners, _tuned(deployed)) for host, deployed in running})
    )


def _tuned(deployed: Iterable[Instance]) -> list[tuple[str, int]]:
    return [(s.key, instance.port) for instance in deployed for s in instance.services.values()
            if s.key in SERVICES]  # fmt: skip


def _of_another_distribution(host: DiscoveredHost, adoption: Adoption) -> list[str]:
    """Return a note for each service with another unit name than Debian's."""
    others = [unit for unit in host.units if unit not in adoption.elsewhere]
    if any(host.runs(unit) for name in adoption.units for unit in fnmatch.filter(others, name)):
        return []
    return [
        f"{host.name}: {adoption.known_as} runs as {unit}, which is not Debian's unit name. autotune"
        " does not know where its files are and does not tune it"
        for unit in adoption.elsewhere
        if host.runs(unit)
    ]


def _instance(
    host: DiscoveredHost,
    front: RunningService,
    server: RunningService | None,
    settings: Iterable[RunningService],
) -> Instance:
    if server is None:
        deployment, kind, running = SERVICES[front.key].deployment, front.kind, [front]
    else:
        deployment, kind, running = f"{front.key}+{server.key}", "web", [front, server]
    roles = dict(DEPLOYMENTS[deployment])
    services = {SERVICES[s.key].name: replace(s, role=roles[s.key]) for s in running}
    of_host = {
        s.key: s.name for s in beside(tuple(s for s, _ in parts(deployment)), of_role(Role.HOST))
    }
    services |= {of_host[s.key]: replace(s, role=Role.HOST) for s in settings if s.key in of_host}
    return Instance(
        host, kind, deployment, front.port, services, front.behind, front.tls, front.site
    )


def tiers(instances: Iterable[Instance]) -> tuple[DiscoveredTier, ...]:
    """Return the tiers with their connections, from the load balancer to the database.

    If no file names a cache, store or database, every web and application tier is assumed to use it.
    The application may keep the address elsewhere.
    """
    grouped: dict[tuple[str, str, int], list[Instance]] = {}
    for instance in instances:
        grouped.setdefault((instance.kind, instance.deployment, instance.port), []).append(instance)
    discovered: list[DiscoveredTier] = []
    for key in sorted(grouped, key=lambda key: _ORDER.index(key[0])):
        same = sum(tier.kind == key[0] for tier in discovered)
        name = key[0] if not same else f"{key[0]}{same + 1}"
        discovered.append(DiscoveredTier(name, tuple(grouped[key])))
    return tuple(_connected(tier, discovered) for tier in discovered)


def _connected(tier: DiscoveredTier, every: Sequence[DiscoveredTier]) -> DiscoveredTier:
    others = [other for other in every if other.name != tier.name]
    if tier.kind in _FORWARDING:
        behind = (other.name for kind in _FORWARDED_TO for other in others
                  if other.kind == kind and _sends(tier, other))  # fmt: skip
        return replace(tier, forwards_to=next(behind, None))
    if tier.kind not in _CALLERS:
        return tier
    backing = [other for other in others if other.kind in _CALLED]
    named = tuple(other.name for other in backing if _names(tier, other))
    callers = [other for other in every if other.kind in _CALLERS]
    unnamed = tuple(
        other.name for other in backing if not any(_names(caller, other) for caller in callers)
    )
    return replace(tier, uses=(*named, *unnamed), assumed=unnamed)


def _sends(tier: DiscoveredTier, other: DiscoveredTier) -> bool:
    return any(
        _is_at(f"{place}:80" if ":" not in place else place, instance, other)
        for instance in tier.instances
        for place in instance.behind
    )


def _names(tier: DiscoveredTier, other: DiscoveredTier) -> bool:
    """True if a file of ``tier`` contains an address of ``other``."""
    return any(
        _is_at(f"{address[1]}:{address[2]}", instance, other)
        for instance in tier.instances
        for config in instance.configs.values()
        for directive in config.directives
        for word in directive.words
        for address in _ADDRESS.finditer(word)
    )


def _is_at(place: str, caller: Instance, tier: DiscoveredTier) -> bool:
    """True if ``host:port`` or a unix socket, as ``caller`` writes it, is a host of ``tier``."""
    if socket := _SOCKET.match(place):
        listening = (s.listen for instance in tier.instances for s in instance.services.values()
                     if instance.host.name == caller.host.name)  # fmt: skip
        # The name of a socket in the working directory contains no directory.
        return any(listen and f"/{socket[1]}".endswith(f"/{listen}") for listen in listening)
    host, _, port = place.rpartition(":")
    if port != str(tier.port):
        return False
    return any(
        host in instance.host.names
        or (host in _LOOPBACK and instance.host.name == caller.host.name)
        for instance in tier.instances
    )
