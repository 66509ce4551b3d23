"""The hosts of a simulated chain: load balancer → web → memcached → store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.parameter_name import ParameterName
from autotune.services.base import Role, Settings
from autotune.services.registry import catalogue_of
from autotune.space.facts import HostFacts
from autotune.target.model import Data
from autotune.target.read_target import TargetFile

GIB = 2**30


@dataclass(frozen=True)
class TierHosts:
    """The identical hosts of one tier.

    ``tier`` is the tier's name in settings. ``service`` is the tier's deployment unless the settings
    choose a different deployment (``lb.service``). ``memory`` is each host's memory in bytes.
    ``nofile`` is the number of files that a process may open.
    """

    tier: str
    service: str
    count: int = 1
    cpus: float = 4.0
    memory: int = 16 * GIB
    nofile: int = 65_536
    given_names: tuple[str, ...] = ()

    @property
    def host_names(self) -> tuple[str, ...]:
        """Return the hosts' names from the target, or else generated names."""
        return self.given_names or tuple(f"{self.tier}{n + 1}" for n in range(self.count))

    @property
    def total_cpus(self) -> float:
        return self.count * self.cpus

    def find_deployment(self, settings: Settings) -> str:
        """Return the deployment that the tier uses with ``settings``."""
        return str(settings.get(f"{self.tier}.service", self.service))

    def read_number(self, settings: Settings, parameter: str, default: float) -> float:
        """Return a parameter's value in ``settings``; ``parameter`` does not include the tier's name."""
        return float(settings.get(f"{self.tier}.{parameter}", default))

    def read_text(self, settings: Settings, parameter: str, default: str) -> str:
        return str(settings.get(f"{self.tier}.{parameter}", default))


@dataclass(frozen=True)
class ChainTopology:
    """A whole chain with its data set; the default is the published chain with one host per tier."""

    lb: TierHosts = TierHosts("lb", "nginx", cpus=8)
    web: TierHosts = TierHosts("web", "apache+mod_php", cpus=4)
    cache: TierHosts = TierHosts("cache", "memcached", cpus=2, memory=8 * GIB)
    store: TierHosts = TierHosts("store", "redis", cpus=4, memory=16 * GIB)
    data: Data = field(default_factory=lambda: Data(pairs=100_000_000))


# Field of ChainTopology, by role in a tier's first deployment.
ROLE_FIELDS = {Role.PROXY: "lb", Role.WEB: "web", Role.CACHE: "cache", Role.STORE: "store"}
TIER_TITLES = {"lb": "load balancer", "web": "web server", "cache": "cache", "store": "store"}


def build_topology(target_file: TargetFile, facts: Mapping[str, HostFacts]) -> ChainTopology:
    """Return the chain of a target. Raises TargetError if a kind of tier is missing or occurs twice."""
    hosts_by_field: dict[str, TierHosts] = {}
    deployments = catalogue_of(target_file.target).deployments
    for tier_name, tier in target_file.target.tiers.items():
        roles = {role for _, role in deployments[tier.service[0]]}
        tier_field = next((f for role, f in ROLE_FIELDS.items() if role in roles), None)
        if tier_field is None or tier_field in hosts_by_field:
            problem = (
                "the model supports only one tier of this kind"
                if tier_field
                else "the model does not support this kind of tier"
            )
            raise target_file.document.build_error(
                ["tiers", tier_name],
                f"tier {tier_name} cannot be simulated: {problem}",
                hint=f"the model consists of {', '.join(TIER_TITLES.values())}. "
                "Remove `simulated:` to use other tiers",
            )
        host_facts = [facts[host] for host in tier.hosts]
        hosts_by_field[tier_field] = TierHosts(
            tier=tier_name,
            service=tier.service[0],
            count=len(tier.hosts),
            cpus=min(machine.cpus for machine in host_facts),
            memory=min(machine.memory for machine in host_facts),
            nofile=min(machine.nofile for machine in host_facts),
            given_names=tier.hosts,
        )
    if missing_tiers := [
        title for tier_field, title in TIER_TITLES.items() if tier_field not in hosts_by_field
    ]:
        raise target_file.document.build_error(
            ["tiers"], f"a simulated stack needs a tier of each kind: {missing_tiers[0]} is missing"
        )
    return ChainTopology(**hosts_by_field, data=target_file.target.data)


MODELLED_PARAMETERS = {
    "lb": frozenset(
        {
            "service",
            "nginx.worker_processes",
            "nginx.worker_connections",
            "nginx.use",
            "nginx.multi_accept",
            "nginx.accept_mutex",
            "nginx.reuseport",
            "nginx.upstream_keepalive",
            "nginx.access_log_buffer",
            "nginx.backlog",
            "apache.ServerLimit",
            "apache.ThreadsPerChild",
            "apache.MaxRequestWorkers",
            "apache.ListenBacklog",
            "sysctl.net.core.somaxconn",
        }
    ),
    "web": frozenset(
        {
            "service",
            "nginx.worker_processes",
            "nginx.worker_connections",
            "nginx.use",
            "php_fpm.pm",
            "php_fpm.max_children",
            "php_fpm.max_requests",
            "apache.MaxRequestWorkers",
            "apache.MaxConnectionsPerChild",
        }
    ),
    "cache": frozenset(
        {
            "memcached.threads",
            "memcached.connections",
            "memcached.memory",
        }
    ),
    "store": frozenset[str](),
}


def is_modelled(topology: ChainTopology, full_name: str) -> bool:
    """True if the model covers the parameter ``full_name`` (``tier.service.parameter``)."""
    parameter_name = ParameterName.parse(full_name)
    return any(
        parameter_name.tier == getattr(topology, field).tier
        and parameter_name.name_within_tier in modelled_names
        for field, modelled_names in MODELLED_PARAMETERS.items()
    )
