"""Resource limits for a tier's container, which are tuned only on demand."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.parameter_name import select_service_settings
from autotune.services.base import Parameter, Placement, Role, Service, Settings, Value, on_restart

DOCS = "the Compose specification, cpus and mem_limit"
PARAMETERS = (
    on_restart(
        "cpus",
        "CPU limit of the container; 0 keeps the project's setting.",
        low=0.0,
        high="cpus",
        stock=0.0,
        on_demand=True,
        source=DOCS,
        direction="+",
    ),
    on_restart(
        "memory",
        "Memory limit of the container; 0 keeps the project's setting.",
        low=0,
        high="memory / 1048576",
        stock=0,
        unit="MB",
        on_demand=True,
        source=DOCS,
        direction="+",
    ),
)


class Container(Service):
    """Limits of a container. A change to a limit recreates the container."""

    name = "container"
    title = "container limits"
    role = Role.HOST
    per_deployment = True
    isolated_only = True
    parameters: tuple[Parameter, ...] = PARAMETERS

    def build_container_limits(
        self, placement: Placement, settings: Settings
    ) -> Mapping[str, Value]:
        own_settings = select_service_settings(settings, f"{placement.tier}.{self.name}")
        container_limits = {
            "cpus": own_settings.get("cpus"),
            "mem_limit": own_settings.get("memory"),
        }
        unit_suffixes = {"cpus": "", "mem_limit": "m"}
        return {
            key: f"{value}{unit_suffixes[key]}" for key, value in container_limits.items() if value
        }


SERVICES = (Container(),)
