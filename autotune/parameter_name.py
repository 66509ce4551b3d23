"""How a parameter is called everywhere: ``tier.service.parameter``, as in ``web.nginx.backlog``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ParameterName:
    """A full name in its three parts; the last may have dots, as kernel values do.

    ``tier.service`` alone, without ``parameter``, names a service, or a tier's choice of one.
    """

    tier: str
    service: str
    parameter: str = ""

    @classmethod
    def parse(cls, name: str) -> ParameterName:
        """Parts that ``name`` does not have are empty, as in the names of a ``command:`` target."""
        tier, _, rest = name.partition(".")
        service, _, parameter = rest.partition(".")
        return cls(tier, service, parameter)

    @property
    def service_prefix(self) -> str:
        """``tier.service``."""
        return f"{self.tier}.{self.service}"

    @property
    def name_within_tier(self) -> str:
        """``service.parameter``, the same on all tiers."""
        return str(self).removeprefix(f"{self.tier}.")

    def __str__(self) -> str:
        return f"{self.service_prefix}.{self.parameter}" if self.parameter else self.service_prefix


def select_service_settings(settings: Mapping[str, V], service_prefix: str) -> dict[str, V]:
    """Those of one service, ``tier.service``, by their bare names."""
    prefix = f"{service_prefix}."
    return {k[len(prefix) :]: v for k, v in settings.items() if k.startswith(prefix)}
