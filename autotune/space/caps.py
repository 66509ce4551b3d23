"""Values without an effect of their own: they are the same configuration as the value in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from autotune.parameter_name import ParameterName
from autotune.services.base import ACCEPTED, Settings, Value, met
from autotune.space import kernel
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.repair import Binding
from autotune.target.model import Target

# Software also rounds, to pages or powers of two. A rounded value differs by less than this factor.
ROUNDED = 2.0


@dataclass(frozen=True)
class Clamp:
    """The values that take effect, as deployments showed: lower and higher ones are replaced by them."""

    least: float = -inf
    most: float = inf

    def allows(self, effective: Value) -> bool:
        """True if the value may have taken effect. One that is not a positive number always may."""
        if isinstance(effective, str | bool) or effective <= 0:
            return True
        return self.least <= effective <= self.most


UNLIMITED = Clamp()


def clamp_of(asked: Value, effective: Value) -> Clamp:
    """What one deployment shows about a parameter; `UNLIMITED` for a value that was only rounded, and for
    one that is not a positive number: 0 often stands for a default."""
    if isinstance(asked, str | bool) or isinstance(effective, str | bool):
        return UNLIMITED
    if asked <= 0 or effective <= 0:
        return UNLIMITED
    if asked >= ROUNDED * effective:
        return Clamp(most=float(effective))
    return Clamp(least=float(effective)) if ROUNDED * asked <= effective else UNLIMITED


@dataclass(frozen=True)
class Cap:
    """What limits a parameter: the kernel setting ``key`` of the tier's hosts, and the ``clamp`` that
    deployments showed.

    ``hosts`` are values of the kernel setting by host, ``tuned`` the parameters that set it on others.
    """

    key: str = ""
    hosts: Mapping[str, int] = field(default_factory=dict)
    tuned: tuple[str, ...] = ()
    clamp: Clamp = UNLIMITED

    def limit(self, settings: Settings) -> tuple[float, str]:
        """The largest value that takes effect under these settings, and what limits it."""
        limits = [(float(value), f"{self.key} of {host}") for host, value in self.hosts.items()]
        limits += [(float(settings[name]), name) for name in self.tuned]
        return min([*limits, (self.clamp.most, "the limit that a deployment showed")])

    def effective(self, value: float, settings: Settings) -> tuple[float, str]:
        """What takes effect in place of ``value``, and the reason if it is another value."""
        most, why = self.limit(settings)
        if value > most:
            return most, f"{why} = {most:.0f} is the most that takes effect"
        if 0 < value < self.clamp.least:  # 0 often stands for a default
            return self.clamp.least, f"{self.clamp.least:.0f} is the least that takes effect"
        return value, ""


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


def narrowed(dimension: Dimension, clamp: Clamp) -> Dimension:
    """A numeric dimension without values that take no effect; its baseline stays in the range.

    A range from 0 keeps its low end, because 0 often stands for a default. Without it, a logarithmic
    range would also change its scale, which Optuna refuses for a parameter that it knows.
    """
    if dimension.fixed:
        return dimension
    low, high = map(float, dimension.bounds)
    least = clamp.least if low > 0 else -inf
    low, high = min(max(low, least), high), max(min(high, clamp.most), low)
    low, high = (
        dimension.number(dimension.towards(end, at)) for end, at in ((inf, low), (-inf, high))
    )
    return replace(dimension, low=low, high=high).including(dimension.baseline)


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
        asked, cap = settings[dimension.name], limits[dimension.name]
        if isinstance(asked, str):
            continue
        value, why = cap.effective(float(asked), settings)
        stock, of_stock = cap.effective(float(dimension.baseline), settings)
        effective = dimension.baseline if value == stock else dimension.clip(value)
        if effective != asked:
            result[dimension.name] = effective
            bindings.append(Binding(why or of_stock, dimension.name, asked, effective))
    return result, tuple(bindings)
