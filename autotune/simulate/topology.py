"""The machines of a modelled chain: load balancer → web → memcached → store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.parameter_name import ParameterName
from autotune.services.base import Role, Settings
from autotune.services.registry import DEPLOYMENTS
from autotune.space.facts import HostFacts
from autotune.target.model import Data
from autotune.target.read import TargetFile

GIB = 2**30


@dataclass(frozen=True)
class Hosts:
    """The hosts of one tier, all alike.

    ``tier`` is the name that settings call it by; ``service`` is what runs there unless settings
    choose (``lb.service``). ``memory`` is in bytes and per host, ``nofile`` per process.
    """

    tier: str
    service: str
    count: int = 1
    cpus: float = 4.0
    memory: int = 16 * GIB
    nofile: int = 65_536
    names: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names, made up where the target has none."""
        return self.names or tuple(f"{self.tier}{n + 1}" for n in range(self.count))

    @property
    def all_cpus(self) -> float:
        return self.count * self.cpus

    def deployment(self, settings: Settings) -> str:
        """What runs there under ``settings``."""
        return str(settings.get(f"{self.tier}.service", self.service))

    def number(self, settings: Settings, name: str, default: float) -> float:
        """A parameter of this tier, ``name`` without the tier's name."""
        return float(settings.get(f"{self.tier}.{name}", default))

    def word(self, settings: Settings, name: str, default: str) -> str:
        return str(settings.get(f"{self.tier}.{name}", default))


@dataclass(frozen=True)
class Topology:
    """A whole chain, by default the published one with a host per tier, and its data set."""

    lb: Hosts = Hosts("lb", "nginx", cpus=8)
    web: Hosts = Hosts("web", "apache+mod_php", cpus=4)
    cache: Hosts = Hosts("cache", "memcached", cpus=2, memory=8 * GIB)
    store: Hosts = Hosts("store", "redis", cpus=4, memory=16 * GIB)
    data: Data = field(default_factory=lambda: Data(pairs=100_000_000))


# Role that a tier's first deployment plays → field of the topology.
FIELDS = {Role.PROXY: "lb", Role.WEB: "web", Role.CACHE: "cache", Role.STORE: "store"}
WORDS = {"lb": "load balancer", "web": "web server", "cache": "cache", "store": "store"}


def topology(file: TargetFile, facts: Mapping[str, HostFacts]) -> Topology:
    """The chain of a target. Raises TargetError unless it has one tier of each kind."""
    tiers: dict[str, Hosts] = {}
    for name, tier in file.target.tiers.items():
        roles = {role for _, role in DEPLOYMENTS[tier.service[0]]}
        field = next((f for role, f in FIELDS.items() if role in roles), None)
        if field is None or field in tiers:
            what = "a second one of its kind" if field else "of no kind it knows"
            raise file.document.error(
                ["tiers", name],
                f"the model has no place for tier {name}: {what}",
                hint=f"it is made of {', '.join(WORDS.values())}: leave `simulated:` out for other hosts",
            )
        machines = [facts[host] for host in tier.hosts]
        tiers[field] = Hosts(
            tier=name,
            service=tier.service[0],
            count=len(tier.hosts),
            cpus=min(machine.cpus for machine in machines),
            memory=min(machine.memory for machine in machines),
            nofile=min(machine.nofile for machine in machines),
            names=tier.hosts,
        )
    if missing := [words for field, words in WORDS.items() if field not in tiers]:
        raise file.document.error(
            ["tiers"], f"a simulated stack needs a tier of each kind; there is no {missing[0]}"
        )
    return Topology(**tiers, data=file.target.data)


ANSWERED = {
    "lb": frozenset({
        "service", "nginx.worker_processes", "nginx.worker_connections", "nginx.use",
        "nginx.multi_accept", "nginx.accept_mutex", "nginx.reuseport", "nginx.upstream_keepalive",
        "nginx.access_log_buffer", "nginx.backlog", "apache.ServerLimit", "apache.ThreadsPerChild",
        "apache.MaxRequestWorkers", "apache.ListenBacklog", "sysctl.net.core.somaxconn",
    }),
    "web": frozenset({
        "service", "nginx.worker_processes", "nginx.worker_connections", "nginx.use",
        "php_fpm.pm", "php_fpm.max_children", "php_fpm.max_requests", "apache.MaxRequestWorkers",
        "apache.MaxConnectionsPerChild",
    }),
    "cache": frozenset({
        "memcached.threads", "memcached.connections", "memcached.memory",
    }),
    "store": frozenset[str](),
}  # fmt: skip


def has_effect(topology: Topology, name: str) -> bool:
    """Whether the parameter called ``name`` (``tier.service.parameter``) is in the model at all."""
    full = ParameterName.parse(name)
    return any(
        full.tier == getattr(topology, field).tier and full.within_tier in names
        for field, names in ANSWERED.items()
    )
