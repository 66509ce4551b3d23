"""Values beyond what the kernel lets take effect: they are the same configuration as the capped value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from autotune.parameter_name import ParameterName
from autotune.services.base import ACCEPTED, Settings, Value, met
from autotune.space import kernel
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.repair import Binding
from autotune.target.model import Target


@dataclass(frozen=True)
class Cap:
    """What limits a parameter: the kernel setting ``key`` of the tier's hosts.

    ``hosts`` are its values by host, ``tuned`` the parameters that set it on other hosts.
    """

    key: str
    hosts: Mapping[str, int] = field(default_factory=dict)
    tuned: tuple[str, ...] = ()

    def limit(self, settings: Settings) -> tuple[float, str]:
        """The largest value that takes effect under these settings, and what limits it."""
        limits = [(float(value), f"{self.key} of {host}") for host, value in self.hosts.items()]
        limits += [(float(settings[name]), name) for name in self.tuned]
        return min(limits)


def caps(
    target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, HostFacts]
) -> dict[str, Cap]:
    """By the full names of parameters, what limits each as far as it is known before a deployment."""
    every = tuple(dimensions)
    names = {dimension.name for dimension in every}
    limits: dict[str, Cap] = {}
    for dimension in every:
        key, tier = dimension.parameter.capped_by, ParameterName.parse(dimension.name).tier
        if not key or target.tiers[tier].isolated:
            continue  # an isolated service has a network of its own
        tuned = {host: kernel.parameter_of(target, host, key) for host in target.tiers[tier].hosts}
        fixed = {host: facts[host] for host in tuned if tuned[host] not in names}
        values = dict(_values(key, fixed))
        parameters = tuple(sorted({name for name in tuned.values() if name in names}))
        if values or parameters:
            limits[dimension.name] = Cap(key, values, parameters)
    return limits


def _values(key: str, facts: Mapping[str, HostFacts]) -> Iterator[tuple[str, int]]:
    for host, of_host in facts.items():
        if key == ACCEPTED and of_host.somaxconn:
            yield host, of_host.somaxconn


def capped(
    settings: Settings, dimensions: Iterable[Dimension], limits: Mapping[str, Cap]
) -> tuple[dict[str, Value], tuple[Binding, ...]]:
    """Settings with the effective values of capped parameters, and what was changed for that.

    A value with the same effect as the baseline's becomes the baseline's.
    """
    result, bindings = dict(settings), list[Binding]()
    for dimension in dimensions:
        if dimension.name not in limits or not met(dimension.when, settings):
            continue
        asked = settings[dimension.name]
        limit, why = limits[dimension.name].limit(settings)
        if isinstance(asked, str):
            continue
        same = min(float(asked), limit) == min(float(dimension.baseline), limit)
        effective = dimension.baseline if same else dimension.clip(min(float(asked), limit))
        if effective != asked:
            result[dimension.name] = effective
            rule = f"{why} = {limit:.0f} is the most that takes effect"
            bindings.append(Binding(rule, dimension.name, asked, effective))
    return result, tuple(bindings)
