"""Full names of parameters: ``tier.service.parameter``, such as ``web.nginx.backlog``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ParameterName:
    """A full name, split into its components. The last component may contain dots, as in the names of
    kernel settings.

    Without ``parameter``, ``tier.service`` is the name of a service, or of the setting that chooses the
    service of a tier.
    """

    tier: str
    service: str
    parameter: str = ""

    @classmethod
    def parse(cls, name: str) -> ParameterName:
        """Return the components of ``name``. Missing components are empty, as in a ``command:``
        target.
        """
        tier, _, remainder = name.partition(".")
        service, _, parameter = remainder.partition(".")
        return cls(tier, service, parameter)

    @property
    def service_prefix(self) -> str:
        """Return ``tier.service``, the first part of the name."""
        return f"{self.tier}.{self.service}"

    @property
    def name_within_tier(self) -> str:
        """Return ``service.parameter``, the part of the name that does not depend on the tier."""
        return str(self).removeprefix(f"{self.tier}.")

    def __str__(self) -> str:
        return f"{self.service_prefix}.{self.parameter}" if self.parameter else self.service_prefix


def select_service_settings(settings: Mapping[str, V], service_prefix: str) -> dict[str, V]:
    """Return the settings of one service, ``tier.service``, by their bare names."""
    name_prefix = f"{service_prefix}."
    return {k[len(name_prefix) :]: v for k, v in settings.items() if k.startswith(name_prefix)}
