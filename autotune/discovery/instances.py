"""Deployments that run on hosts, their configurations understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.services.adoption import RunningHost, RunningService
from autotune.services.config_files import Config, guarded
from autotune.services.registry import DEPLOYMENTS, SERVICES, adoptions
from autotune.space.facts import HostFacts


@dataclass(frozen=True, kw_only=True)
class DiscoveredHost(RunningHost):
    """``address`` is where it was reached. ``names``: its own names and addresses, by which other
    hosts' configurations may speak of it."""

    name: str
    address: str
    facts: HostFacts
    user: str | None = None
    port: int | None = None
    versions: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Instance:
    """A deployment on a host. ``services`` are what runs in it, by the services' names, without
    files that hold a password; ``behind`` is where it sends requests on, ``host:port``.
    """

    host: DiscoveredHost
    kind: str  # lb, web, cache or store
    deployment: str
    port: int
    services: Mapping[str, RunningService]
    behind: tuple[str, ...] = ()

    @property
    def configs(self) -> Mapping[str, Config]:
        return {name: service.config for name, service in self.services.items()}


def instances(host: DiscoveredHost) -> tuple[tuple[Instance, ...], tuple[str, ...]]:
    """What runs on a host, and a line for each thing there that autotune does not tune."""
    running: list[RunningService] = []
    notes: list[str] = []
    for adoption in dict.fromkeys(adoptions().values()):
        for result in adoption.find(host):
            if isinstance(result, str):
                notes.append(f"{host.name}: {result}")
            else:
                running.append(replace(result, config=guarded(result.config)))
    servers = {SERVICES[one.key].gateway: one for one in running if SERVICES[one.key].gateway}
    deployed: list[Instance] = []
    for front in running:
        if SERVICES[front.key].gateway:
            continue
        server = servers.get(front.gateway)
        if front.gateway and server is None:
            notes.append(f"{host.name}: {_elsewhere(front)}")
        deployed.append(_instance(host, front, server))
    return tuple(deployed), tuple(notes)


def _instance(
    host: DiscoveredHost, front: RunningService, server: RunningService | None
) -> Instance:
    if server is None:
        deployment, kind, running = SERVICES[front.key].deployment, front.kind, [front]
    else:
        deployment, kind, running = f"{front.key}+{server.key}", "web", [front, server]
    roles = dict(DEPLOYMENTS[deployment])
    services = {SERVICES[s.key].name: replace(s, role=roles[s.key]) for s in running}
    return Instance(host, kind, deployment, front.port, services, front.behind)


def _elsewhere(front: RunningService) -> str:
    servers = [s.title for s in SERVICES.values() if s.gateway == front.gateway]
    title = SERVICES[front.key].title
    return f"{title} hands requests on to another host, whose {' or '.join(servers)} is not adopted"
