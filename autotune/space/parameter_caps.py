"""Values that do not take effect, because the host replaces each of them with a value that it
can use.
"""

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

# Software also rounds values, for example to pages or powers of two. A rounded value differs from the
# requested one by less than this factor.
ROUNDING_FACTOR = 2.0


@dataclass(frozen=True)
class Clamp:
    """The range of values that take effect, as observed in deployments. Values outside this range are
    replaced by its ends.
    """

    minimum: float = -inf
    maximum: float = inf

    def allows(self, effective_value: Value) -> bool:
        """True if ``effective_value`` is inside the range, or is not a positive number."""
        if isinstance(effective_value, str | bool) or effective_value <= 0:
            return True
        return self.minimum <= effective_value <= self.maximum


UNLIMITED_CLAMP = Clamp()


def infer_clamp(requested_value: Value, effective_value: Value) -> Clamp:
    """Return the clamp that one deployment reveals for a parameter.

    Return `UNLIMITED_CLAMP` if the value was only rounded. Also return `UNLIMITED_CLAMP` if either
    value is not positive, because 0 often stands for a default.
    """
    if isinstance(requested_value, str | bool) or isinstance(effective_value, str | bool):
        return UNLIMITED_CLAMP
    if requested_value <= 0 or effective_value <= 0:
        return UNLIMITED_CLAMP
    if requested_value >= ROUNDING_FACTOR * effective_value:
        return Clamp(maximum=float(effective_value))
    return (
        Clamp(minimum=float(effective_value))
        if ROUNDING_FACTOR * requested_value <= effective_value
        else UNLIMITED_CLAMP
    )


@dataclass(frozen=True)
class ParameterCap:
    """The limits of a parameter: the kernel setting ``kernel_key``, and the ``observed_clamp`` from
    deployments.

    ``host_values`` contains the kernel setting's value on each host that does not tune the setting.
    ``tuned_by`` lists the parameters that tune the setting on the other hosts.
    """

    kernel_key: str = ""
    host_values: Mapping[str, int] = field(default_factory=dict)
    tuned_by: tuple[str, ...] = ()
    observed_clamp: Clamp = UNLIMITED_CLAMP

    def find_limit(self, settings: Settings) -> tuple[float, str]:
        """Return the largest value that takes effect under these settings, and the reason for this
        limit.
        """
        limits_with_reasons = [
            (float(value), f"{self.kernel_key} of {host}")
            for host, value in self.host_values.items()
        ]
        limits_with_reasons += [(float(settings[name]), name) for name in self.tuned_by]
        return min(
            [*limits_with_reasons, (self.observed_clamp.maximum, "the limit found in a deployment")]
        )

    def compute_effective_value(self, value: float, settings: Settings) -> tuple[float, str]:
        """Return the value that takes effect if ``value`` is set, and the reason if the two values
        differ.
        """
        maximum, reason = self.find_limit(settings)
        if value > maximum:
            return maximum, f"{reason} = {maximum:.0f} is the largest effective value"
        if 0 < value < self.observed_clamp.minimum:  # 0 often stands for a default
            return (
                self.observed_clamp.minimum,
                f"{self.observed_clamp.minimum:.0f} is the smallest effective value",
            )
        return value, ""


def find_caps(
    target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, HostFacts]
) -> dict[str, ParameterCap]:
    """Return the caps that are known before any deployment, by the parameter's full name."""
    all_dimensions = tuple(dimensions)
    tunable_names = {dimension.name for dimension in all_dimensions}
    caps: dict[str, ParameterCap] = {}
    for dimension in all_dimensions:
        kernel_key, tier = dimension.parameter.capped_by, ParameterName.parse(dimension.name).tier
        if not kernel_key or target.tiers[tier].isolated:
            continue  # an isolated service has its own network namespace
        tuned_parameters = {
            host: kernel.find_kernel_parameter(target, host, kernel_key)
            for host in target.tiers[tier].hosts
        }
        fixed_facts = {
            host: facts[host]
            for host in tuned_parameters
            if tuned_parameters[host] not in tunable_names
        }
        host_values = dict(_list_somaxconn_values(kernel_key, fixed_facts))
        parameters = tuple(
            sorted({name for name in tuned_parameters.values() if name in tunable_names})
        )
        if host_values or parameters:
            caps[dimension.name] = ParameterCap(kernel_key, host_values, parameters)
    return caps


def _list_somaxconn_values(
    kernel_key: str, facts: Mapping[str, HostFacts]
) -> Iterator[tuple[str, int]]:
    for host, host_facts in facts.items():
        if kernel_key == SOMAXCONN and host_facts.somaxconn:
            yield host, host_facts.somaxconn


def narrow_dimension(dimension: Dimension, clamp: Clamp) -> Dimension:
    """Return a numeric dimension without values that have no effect. The baseline stays in the range.

    A range that starts at 0 keeps its low end, because 0 often stands for a default. Without 0, the
    range would also get another scale, which Optuna rejects for an existing parameter.
    """
    if dimension.is_fixed:
        return dimension
    low_bound, high = map(float, dimension.bounds)
    minimum = clamp.minimum if low_bound > 0 else -inf
    low_bound, high = min(max(low_bound, minimum), high), max(min(high, clamp.maximum), low_bound)
    low_bound, high = (
        dimension.to_number(dimension.round_towards(rounding_direction, range_bound))
        for rounding_direction, range_bound in ((inf, low_bound), (-inf, high))
    )
    return replace(dimension, low=low_bound, high=high).widen_to_include(dimension.baseline)


def list_capped_values(
    settings: Settings, dimensions: Iterable[Dimension], caps: Mapping[str, ParameterCap]
) -> tuple[RepairedValue, ...]:
    """Return the values that would not take effect, each with its effective value.

    A value with the same effect as the baseline value is replaced by the baseline value.
    """
    repairs: list[RepairedValue] = []
    for dimension in dimensions:
        if dimension.name not in caps or not conditions_hold(dimension.conditions, settings):
            continue
        requested_value, cap = settings[dimension.name], caps[dimension.name]
        if isinstance(requested_value, str):
            continue
        effective_value, reason = cap.compute_effective_value(float(requested_value), settings)
        effective_baseline, baseline_reason = cap.compute_effective_value(
            float(dimension.baseline), settings
        )
        clamped_value = (
            dimension.baseline
            if effective_value == effective_baseline
            else dimension.clip(effective_value)
        )
        if clamped_value != requested_value:
            repairs.append(
                RepairedValue(
                    reason or baseline_reason, dimension.name, requested_value, clamped_value
                )
            )
    return tuple(repairs)
