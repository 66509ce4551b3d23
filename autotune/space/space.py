"""The joint search space of all tiers: the values to try, and the rules that every trial must
satisfy.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite

from autotune.errors import AutotuneError, UsageError
from autotune.services.base import Effect, LoadTrait, Settings, Value, conditions_hold
from autotune.services.registry import SHIPPED, Catalogue
from autotune.space import derived_values
from autotune.space.dimension import BASELINE_NAME, PRESET_NAMES, Dimension, list_deployments
from autotune.space.memory import (
    HostMemory,
    compute_memory_use,
    find_rule_host,
    has_plausible_sizes,
    limit_measured_size,
)
from autotune.space.parameter_caps import (
    Clamp,
    ParameterCap,
    list_capped_values,
    narrow_dimension,
)
from autotune.space.repair import RepairedValue, repair_settings
from autotune.space.rules import Rule, convert_to_base_units


@dataclass(frozen=True)
class Candidate:
    """Complete settings of all tiers that satisfy every rule, and the necessary repairs.

    ``capped_parameters`` are parameters whose suggested value would not take effect and was replaced by
    the effective value.
    """

    settings: Settings
    repairs: tuple[RepairedValue, ...] = ()
    capped_parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchSpace:
    """The search space. ``facts`` are additional names for rules, such as ``web.memory`` and
    ``count(web)``.

    ``excluded`` lists the parameters left out or narrowed because of the hosts, and the rules that the
    baseline breaks. ``try_first`` contains the configurations that the user wants to try first, as
    changes to the baseline. ``caps`` limit the effective values of parameters, by name.
    ``searches_core_first`` is true if parameters known to matter are searched before the rest.
    ``catalogue`` contains the services of the target.
    """

    dimensions: tuple[Dimension, ...]
    constraints: tuple[Rule, ...]
    facts: Mapping[str, float]
    excluded: tuple[str, ...] = ()
    try_first: tuple[Settings, ...] = ()
    searches_core_first: bool = True
    caps: Mapping[str, ParameterCap] = field(default_factory=dict)
    catalogue: Catalogue = SHIPPED

    @property
    def tunable_dimensions(self) -> tuple[Dimension, ...]:
        """Return the dimensions that have more than one value, and an effect under at least some
        settings.
        """
        choices_by_name = {d.name: d.choices for d in self.dimensions if d.choices}
        return tuple(
            d
            for d in self.dimensions
            if d.expression is None
            and not d.is_fixed
            and d.find_unmet_condition(choices_by_name) is None
        )

    @property
    def core_dimensions(self) -> tuple[Dimension, ...]:
        """Return the tunable dimensions that are searched first: the dimensions known to matter, or
        else all dimensions.
        """
        core_dimensions = tuple(d for d in self.tunable_dimensions if d.is_core)
        return (
            core_dimensions
            if core_dimensions and self.searches_core_first
            else self.tunable_dimensions
        )

    @cached_property
    def dimensions_by_name(self) -> Mapping[str, Dimension]:
        """Return the dimensions by name."""
        return {d.name: d for d in self.dimensions}

    @property
    def baseline(self) -> dict[str, Value]:
        return {d.name: d.baseline for d in self.dimensions}

    @cached_property
    def deployments(self) -> tuple[dict[str, Value], ...]:
        """Return every combination of the tiers' deployments, the baseline's combination first.

        Each item contains the settings that select the combination. A target without choices of
        deployments has one combination, which is empty.
        """
        return list_deployments(self.dimensions)

    def preset_settings(
        self, preset_name: str, deployment: Settings | None = None
    ) -> dict[str, Value]:
        """Return the complete settings of one of `NAMED_SETTINGS`, clipped to this space's bounds.

        ``deployment`` is one of `deployments`; the default is the baseline's deployment.
        """
        settings: dict[str, Value] = {}
        for dimension in self.dimensions:
            value = getattr(dimension, preset_name)
            is_baseline = value is None or preset_name == BASELINE_NAME
            settings[dimension.name] = dimension.baseline if is_baseline else dimension.clip(value)
        return {**settings, **(deployment or {})}

    def iterate_presets(
        self, preset_names: Iterable[str] = PRESET_NAMES
    ) -> Iterator[tuple[str, Settings]]:
        """Yield the name and the settings of each preset, for every deployment."""
        for preset_name in preset_names:
            for deployment in self.deployments:
                yield preset_name, self.preset_settings(preset_name, deployment)

    def without_choice(self, parameter_name: str, choice: Value) -> SearchSpace:
        """Return the space in which the parameter ``parameter_name`` cannot have the value ``choice``."""
        dimensions = tuple(
            replace(d, choices=tuple(c for c in d.choices if c != choice))
            if d.name == parameter_name
            else d
            for d in self.dimensions
        )
        return replace(self, dimensions=dimensions)

    def with_fixed_parameters(self, parameter_names: Container[str]) -> SearchSpace:
        """Return the space with ``parameter_names`` fixed at their baselines."""
        dimensions = tuple(
            d.fix_at_value(d.baseline) if d.name in parameter_names else d for d in self.dimensions
        )
        return replace(self, dimensions=dimensions)

    def with_load_traits(self, traits: frozenset[LoadTrait]) -> SearchSpace:
        """Return the space for a load with these traits, which add some parameters to the core."""
        return self.with_core_parameters(
            {d.name for d in self.dimensions if d.parameter.decides & traits}
        )

    def with_core_parameters(self, parameter_names: Container[str]) -> SearchSpace:
        """Return the space with ``parameter_names`` added to the core."""
        dimensions = tuple(
            replace(d, parameter=replace(d.parameter, effect=Effect.CAPACITY))
            if d.name in parameter_names
            else d
            for d in self.dimensions
        )
        return replace(self, dimensions=dimensions)

    def with_measured_memory(self, rss: Mapping[str, int]) -> SearchSpace:
        """Return the space with the measured memory of processes, in bytes by `tier.service`."""
        measured_sizes = {f"rss({size_name})": float(size) for size_name, size in rss.items()}
        limited_sizes = {
            size_name: limit_measured_size(self.facts[size_name], size)
            for size_name, size in measured_sizes.items()
            if size_name in self.facts
        }
        facts = {**self.facts, **limited_sizes}
        # Sizes may come from an export, and an implausible size must not allow candidates to break
        # rules.
        constraints = tuple(
            rule if has_plausible_sizes(rule, facts) else replace(rule, baseline_excess=None)
            for rule in self.constraints
        )
        return replace(self, facts=facts, constraints=constraints)

    @property
    def memory_limited_hosts(self) -> frozenset[str]:
        """Return the hosts whose memory a built-in rule limits."""
        return frozenset(filter(None, map(find_rule_host, self.constraints)))

    def without_memory_allowance(self, hosts: Collection[str]) -> SearchSpace:
        """Return the space in which no candidate may exceed the memory limit of one of ``hosts``, even
        if the baseline does.
        """
        constraints = tuple(
            replace(rule, baseline_excess=None) if find_rule_host(rule) in hosts else rule
            for rule in self.constraints
        )
        return replace(self, constraints=constraints)

    def active_parameters(self, settings: Settings) -> frozenset[str]:
        """Return the names of the parameters that have an effect under ``settings``."""
        return frozenset(d.name for d in self.dimensions if conditions_hold(d.conditions, settings))

    def check_effect(self, name: str, setting: str, configurations: Iterable[Settings]) -> None:
        """Raise UsageError, with ``setting``, if the parameter ``name`` has no effect in any of the
        configurations, whose settings override the baseline.
        """
        dimension = self.dimensions_by_name[name]
        if dimension.expression is not None:
            sources = " and ".join(dict.fromkeys(dimension.expression.names()))
            raise UsageError(
                f"{setting} has no effect: it is computed as `{dimension.expression}`",
                hint=f"change {sources} instead",
            )
        if any(name in self.active_parameters({**self.baseline, **c}) for c in configurations):
            return
        required_settings = " ".join(
            f"--set {parent_name}={values[0]}" for parent_name, values in dimension.conditions
        )
        raise UsageError(
            f"{setting} has no effect under these settings", hint=f"add {required_settings}"
        )

    def select_active_settings(self, settings: Settings) -> dict[str, Value]:
        """Return ``settings`` without values that have no effect."""
        active_names = self.active_parameters(settings)
        return {name: value for name, value in settings.items() if name in active_names}

    def build_candidate(self, suggested: Settings, kept_names: Collection[str] = ()) -> Candidate:
        """Return a candidate: the suggested values, completed from the baseline and repaired until
        every rule holds. Parameters in ``kept_names`` are changed last (see `repair_settings`).

        Raises InfeasibleRule if no change satisfies the rules.
        """
        complete_settings = {**self.baseline, **suggested}
        cap_repairs = list_capped_values(complete_settings, self.dimensions, self.caps)
        complete_settings |= {repair.parameter: repair.repaired for repair in cap_repairs}
        rules = [rule for rule in self.constraints if rule.applies(complete_settings)]
        settings, rule_repairs = repair_settings(
            complete_settings, self.dimensions_by_name, rules, self.facts, kept_names
        )
        capped_names = tuple(repair.parameter for repair in cap_repairs)
        return Candidate(
            {**settings, **self._compute_derived(settings)},
            (*cap_repairs, *rule_repairs),
            capped_names,
        )

    def with_clamps(self, clamps: Mapping[str, Clamp]) -> SearchSpace:
        """Return the space without the values that have no effect according to deployments."""
        numeric_names = {d.name for d in self.dimensions if not d.choices and d.expression is None}
        applicable_clamps = {name: clamp for name, clamp in clamps.items() if name in numeric_names}
        if not applicable_clamps:
            return self
        dimensions = tuple(
            narrow_dimension(d, applicable_clamps[d.name]) if d.name in applicable_clamps else d
            for d in self.dimensions
        )
        clamped_caps = {
            name: replace(self.caps.get(name, ParameterCap()), observed_clamp=new_clamp)
            for name, new_clamp in applicable_clamps.items()
        }
        return replace(self, dimensions=dimensions, caps={**self.caps, **clamped_caps})

    def get_effective_settings(self, suggested: Settings) -> dict[str, Value]:
        """Return the suggested values, each replaced by its effective value if it would not take
        effect.
        """
        settings = {**self.baseline, **suggested}
        capped_values = list_capped_values(settings, self.dimensions, self.caps)
        effective_values = {capped.parameter: capped.repaired for capped in capped_values}
        return {name: effective_values.get(name, value) for name, value in suggested.items()}

    def validate_settings(self, settings: Settings) -> None:
        """Raise AutotuneError unless ``settings`` contains only parameters of the space with valid
        values.
        """
        for name, value in settings.items():
            if problem := _describe_value_problem(self.dimensions_by_name, name, value):
                raise AutotuneError(
                    f"settings in the study do not fit its target: {problem[:200]}",
                    hint="its records or the hosts have changed: start a new study",
                )

    def replace_impossible_values(self, settings: Settings, instead: Settings) -> dict[str, Value]:
        """Return ``settings`` with each value that is invalid for its parameter, or that the target
        fixes, replaced by the parameter's value in ``instead``.

        A program may compute the value of a fixed parameter itself, and such a value may break a rule.
        """
        return {
            name: instead[name] if self._is_impossible(name, value) else value
            for name, value in settings.items()
        }

    def _is_impossible(self, parameter_name: str, value: Value) -> bool:
        if _describe_value_problem(self.dimensions_by_name, parameter_name, value):
            return True
        return self.dimensions_by_name[parameter_name].is_fixed

    def has_same_effect(self, parameter_name: str, value: Value, settings: Settings) -> bool:
        """True if ``value`` takes effect unchanged, and is also the effective value of the parameter
        under ``settings``.
        """
        current_value = settings.get(parameter_name)
        if current_value == value or parameter_name not in self.caps or isinstance(value, str):
            return current_value == value
        effective_values = (
            self.caps[parameter_name].compute_effective_value(float(v), settings)
            for v in (value, settings[parameter_name])
        )
        return all(effective_value == float(value) for effective_value, _ in effective_values)

    def complete_without_repair(self, settings: Settings) -> Candidate:
        """Return a candidate with the settings completed but not repaired, because a repeated
        measurement must use the same settings.

        If a derived value is infinite, the result contains its baseline, because records are JSON.
        """
        complete_settings = {**self.baseline, **settings}
        derived_settings = {
            name: value if isfinite(float(value)) else self.baseline[name]
            for name, value in self._compute_derived(complete_settings).items()
        }
        return Candidate({**complete_settings, **derived_settings})

    def is_kept(self, rule: Rule, settings: Settings) -> bool:
        return rule.is_kept(self.to_names(settings))

    def compute_relative_excess(self, rule: Rule, settings: Settings) -> float:
        """Return the result of `Rule.compute_relative_excess` for these settings."""
        return rule.compute_relative_excess(self.to_names(settings))

    def format_arithmetic(self, rule: Rule, settings: Settings) -> str:
        """Return the rule as text, with the values of its two sides."""
        return rule.format_arithmetic(self.to_names(settings))

    def compute_memory_use(self, settings: Settings) -> tuple[HostMemory, ...]:
        """Return the maximum memory use of each host under these settings."""
        return tuple(compute_memory_use(self.constraints, settings, self.to_names(settings)))

    def to_names(self, settings: Settings) -> dict[str, float]:
        """Return all facts, and these settings in base units."""
        return {**self.facts, **convert_to_base_units(settings, self.dimensions)}

    def _compute_derived(self, settings: Settings) -> dict[str, Value]:
        derived_dimensions = [d for d in self.dimensions if d.expression is not None]
        if not derived_dimensions:
            return {}
        values_by_name = self.to_names(settings)
        return {
            d.name: derived_values.compute_derived_value(d, values_by_name)
            for d in derived_dimensions
        }


def _describe_value_problem(
    dimensions: Mapping[str, Dimension], parameter_name: str, value: Value
) -> str:
    """Return the reason why the parameter ``parameter_name`` cannot have this value, or an empty text."""
    if parameter_name not in dimensions:
        return f"the target has no {parameter_name!r}"
    try:
        dimensions[parameter_name].convert_value(value)
    except ValueError as error:
        return str(error) or f"{parameter_name} cannot have this value"
    return ""
