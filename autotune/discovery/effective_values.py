"""Read the values that the running software reports, to confirm the values in its files.

The value that a parser finds in a file is only a hypothesis. If the software reports a different
value, the parameter is not tuned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.programs import locate_programs
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tier_adoption import adopt_tier
from autotune.discovery.tiers import DiscoveredInstance, DiscoveredTier, find_instances
from autotune.services.base import AdoptedConfig, Endpoint, Placement, Readback, Service, Value
from autotune.target.model import Tier
from autotune.target.runtimes import DEFAULT_RUNTIME
from autotune.transports.base import Transport

# long, because application servers load the application before they print options
READ_TIMEOUT_SECONDS = 120.0
_PLACEHOLDER_TIER = "tier"  # used as the tier's name while values are read


@dataclass(frozen=True)
class _ServiceQuery:
    """A service in a discovered deployment, with the service's own configuration files."""

    instance: DiscoveredInstance
    service: Service
    adopted_config: AdoptedConfig

    @property
    def key(self) -> tuple[str, int, str]:
        return self.instance.deployment, self.instance.port, self.service.name

    def list_readbacks(self, programs: Mapping[str, str]) -> tuple[Readback, ...]:
        """Return the commands that print the service's effective values, or no commands if a
        program is missing.
        """
        if any(name not in programs for name in self.service.programs):
            return ()
        running_service = self.instance.services[self.service.name]
        return self.service.list_readbacks(
            Placement(
                tier=_PLACEHOLDER_TIER,
                host=self.instance.host.name,
                role=running_service.role,
                directory="/nonexistent",
                listen=Endpoint(self.instance.host.address, self.instance.port),
                installed=True,
                programs={name: programs[name] for name in self.service.programs},
                adopted=self.adopted_config,
            )
        )


def read_effective_values(transport: Transport, host: DiscoveredHost) -> DiscoveredHost:
    """Read the values that running services report, and return the host with these values."""
    queries = [query for instance in find_instances(host)[0] for query in _list_queries(instance)]
    program_paths = locate_programs(transport, [query.service for query in queries])
    programs = {name: path for name, path in program_paths.items() if path}
    readbacks = [
        (query, readback) for query in queries for readback in query.list_readbacks(programs)
    ]
    command_results = run_commands(
        transport,
        [Command(readback.adoption_argv or readback.argv) for _, readback in readbacks],
        timeout=READ_TIMEOUT_SECONDS,
    )
    effective_values: dict[tuple[str, int, str], dict[str, Value]] = {}
    for (query, readback), command_result in zip(readbacks, command_results, strict=True):
        effective_values.setdefault(query.key, {}).update(readback.parse(command_result.stdout))
    return replace(host, effective=effective_values)


def _list_queries(instance: DiscoveredInstance) -> Iterator[_ServiceQuery]:
    adopted_tier = adopt_tier(DiscoveredTier(_PLACEHOLDER_TIER, (instance,)))
    tier_model = Tier(
        hosts=(instance.host.name,), service=(instance.deployment,), runtime=DEFAULT_RUNTIME
    )
    for tier_service in instance.host.catalogue.list_tier_services(_PLACEHOLDER_TIER, tier_model):
        service_name = tier_service.service.name
        config = adopted_tier.adopted_configs.get(
            f"{_PLACEHOLDER_TIER}.{instance.host.name}.{service_name}"
        )
        if service_name in instance.services and config is not None:
            yield _ServiceQuery(instance, tier_service.service, config)
