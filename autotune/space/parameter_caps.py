"""Values without effect: each is the same configuration as the value that takes effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from autotune.parameter_name import ParameterName
from autotune.services.base import SOMAXCONN, Settings, Value, conditions_hold
from autotune.space import kernel
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.repair import RepairedValue
from autotune.target.model import Target

# Software also rounds, to pages or powers of two. A rounded value differs by less than this factor.
ROUNDING_FACTOR = 2.0


@dataclass(frozen=True)
class Clamp:
    """The values that take effect, as deployments showed: lower and higher ones are replaced by them."""

    minimum: float = -inf
    maximum: float = inf

    def allows(self, effective: Value) -> bool:
        """True if the value may have taken effect. One that is not a positive number always may."""
        if isinstance(effective, str | bool) or effective <= 0:
            return True
        return self.minimum <= effective <= self.maximum


UNLIMITED = Clamp()


def infer_clamp(asked: Value, effective: Value) -> Clamp:
    """Return the clamp that one deployment shows for a parameter.

    Return `UNLIMITED` for a value that was only rounded. The same holds for a value that is not
    positive: 0 often stands for a default.
    """
    if isinstance(asked, str | bool) or isinstance(effective, str | bool):
        return UNLIMITED
    if asked <= 0 or effective <= 0:
        return UNLIMITED
    if asked >= ROUNDING_FACTOR * effective:
        return Clamp(maximum=float(effective))
    return Clamp(minimum=float(effective)) if ROUNDING_FACTOR * asked <= effective else UNLIMITED


@dataclass(frozen=True)
class ParameterCap:
    """The limits of a parameter: the kernel setting ``kernel_key`` and the ``clamp`` seen in
    deployments.

    ``host_values`` are values of the kernel setting by host. ``tuned_by`` are the parameters that
    set it on others.
    """

    kernel_key: str = ""
    host_values: Mapping[str, int] = field(default_factory=dict)
    tuned_by: tuple[str, ...] = ()
    observed_clamp: Clamp = UNLIMITED

    def find_limit(self, settings: Settings) -> tuple[float, str]:
        """The largest value that takes effect under these settings, and what limits it."""
        limits = [
            (float(value), f"{self.kernel_key} of {host}")
            for host, value in self.host_values.items()
        ]
        limits += [(float(settings[name]), name) for name in self.tuned_by]
        return min([*limits, (self.observed_clamp.maximum, "the limit found in a deployment")])

    def effective(self, value: float, settings: Settings) -> tuple[float, str]:
        """Return the value that takes effect for ``value``, and the reason if they differ."""
        maximum, reason = self.find_limit(settings)
        if value > maximum:
            return maximum, f"{reason} = {maximum:.0f} is the most that takes effect"
        if 0 < value < self.observed_clamp.minimum:  # 0 often stands for a default
            return (
                self.observed_clamp.minimum,
                f"{self.observed_clamp.minimum:.0f} is the least that takes effect",
            )
        return value, ""


def find_caps(
    target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, HostFacts]
) -> dict[str, ParameterCap]:
    """Return each parameter's limit by full name, as far as known before a deployment."""
    every = tuple(dimensions)
    names = {dimension.name for dimension in every}
    limits: dict[str, ParameterCap] = {}
    for dimension in every:
        key, tier = dimension.parameter.capped_by, ParameterName.parse(dimension.name).tier
        if not key or target.tiers[tier].isolated:
            continue  # an isolated service has a separate network
        tuned = {
            host: kernel.find_kernel_parameter(target, host, key)
            for host in target.tiers[tier].hosts
        }
        fixed = {host: facts[host] for host in tuned if tuned[host] not in names}
        values = dict(_kernel_values(key, fixed))
        parameters = tuple(sorted({name for name in tuned.values() if name in names}))
        if values or parameters:
            limits[dimension.name] = ParameterCap(key, values, parameters)
    return limits


def _kernel_values(key: str, facts: Mapping[str, HostFacts]) -> Iterator[tuple[str, int]]:
    for host, of_host in facts.items():
        if key == SOMAXCONN and of_host.somaxconn:
            yield host, of_host.somaxconn


def narrow_dimension(dimension: Dimension, clamp: Clamp) -> Dimension:
    """A numeric dimension without values that take no effect; its baseline stays in the range.

    A range from 0 keeps its low end, because 0 often stands for a default. Without it, a logarithmic
    range would also change its scale, which Optuna refuses for a parameter that it knows.
    """
    if dimension.is_fixed:
        return dimension
    low, high = map(float, dimension.bounds)
    minimum = clamp.minimum if low > 0 else -inf
    low, high = min(max(low, minimum), high), max(min(high, clamp.maximum), low)
    low, high = (
        dimension.to_number(dimension.round_towards(end, at))
        for end, at in ((inf, low), (-inf, high))
    )
    return replace(dimension, low=low, high=high).widened_for(dimension.baseline)


def apply_caps(
    settings: Settings, dimensions: Iterable[Dimension], limits: Mapping[str, ParameterCap]
) -> tuple[dict[str, Value], tuple[RepairedValue, ...]]:
    """Return the settings with the effective values of capped parameters, and the changes.

    A value with the same effect as the baseline's becomes the baseline's.
    """
    result, bindings = dict(settings), list[RepairedValue]()
    for dimension in dimensions:
        if dimension.name not in limits or not conditions_hold(dimension.conditions, settings):
            continue
        requested, cap = settings[dimension.name], limits[dimension.name]
        if isinstance(requested, str):
            continue
        value, reason = cap.effective(float(requested), settings)
        stock, of_stock = cap.effective(float(dimension.baseline), settings)
        effective = dimension.baseline if value == stock else dimension.clip(value)
        if effective != requested:
            result[dimension.name] = effective
            bindings.append(RepairedValue(reason or of_stock, dimension.name, requested, effective))
    return result, tuple(bindings)
