"""The joint search space of all tiers: the values to try, and the rules that every trial must
satisfy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, isfinite
from typing import Any

from autotune.errors import AutotuneError, TargetError, TargetErrorCollector, UsageError
from autotune.parameter_name import ParameterName
from autotune.services.base import (
    Bound,
    Effect,
    LoadTrait,
    Parameter,
    Role,
    Settings,
    Value,
    conditions_hold,
)
from autotune.services.registry import SHIPPED, Catalogue, TierService, catalogue_of
from autotune.space import derived_values, kernel
from autotune.space.dimension import (
    BASELINE_NAME,
    EMPTY_VALUES,
    PRESET_NAMES,
    AdoptedValues,
    Dimension,
    build_deployment_choice,
    list_deployments,
)
from autotune.space.expression import parse_comparison, parse_expression
from autotune.space.facts import HostFacts, find_common_facts
from autotune.space.memory import (
    HostMemory,
    MemoryCheck,
    compute_memory_use,
    find_rule_host,
    has_plausible_sizes,
    limit_measured_size,
)
from autotune.space.parameter_caps import (
    Clamp,
    ParameterCap,
    find_caps,
    list_capped_values,
    narrow_dimension,
)
from autotune.space.repair import InfeasibleRule, RepairedValue, repair_settings
from autotune.space.rules import (
    Rule,
    RuleVocabulary,
    collect_rule_facts,
    convert_to_base_units,
    list_derived_bounds,
    list_limit_rules,
    list_order_rules,
)
from autotune.space.target_values import (
    build_declared_dimensions,
    find_fixed_hint,
    parse_value,
    read_tried_first,
)
from autotune.target import runtimes
from autotune.target.messages import find_nearest_name, format_value, suggest_list
from autotune.target.model import ParameterRule, Scalar, Target, Tier
from autotune.target.parameter_selection import (
    is_excluded,
    is_wildcard,
    list_unmatched_patterns,
    unknown_parameter_error,
)
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location

FactsByHost = Mapping[str, HostFacts]
PLACEHOLDER_FACTS = HostFacts(1, 2**30)  # for checks that do not depend on a host
DATABASE_KIND = "a database"
# Software of one kind can take the place of other software of this kind. All other roles serve HTTP.
ROLE_KINDS = {Role.CACHE: "a cache", Role.STORE: "a store", Role.DATABASE: DATABASE_KIND}
CONSTRAINT_NAMES_HINT = (
    "constraints compare numbers: parameters, and facts such as `web.memory` or `count(web.hosts)`"
)
HOST_RUNTIME_HINT = (
    f"write `runtime: {runtimes.DEFAULT_RUNTIME}` in all tiers to tune the services of the hosts"
)
__all__ = ["Candidate", "InfeasibleRule", "RepairedValue", "SearchSpace", "build_space"]


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


def build_space(
    file: TargetFile, facts: FactsByHost, adopted_values: AdoptedValues = EMPTY_VALUES
) -> SearchSpace:
    """Return the space of a target on hosts with these facts and adopted values. Raises
    TargetError.
    """
    target = file.target
    if target.command is not None:
        dimensions, excluded_lines = build_declared_dimensions(file), tuple[str, ...]()
    else:
        facts = kernel.with_recorded_values(target, facts, adopted_values.values)
        dimensions = build_dimensions(file, facts, kernel.exclude_kernel_values(adopted_values))
        unsettable_names, excluded_lines = kernel.find_unsettable_settings(
            target, dimensions, facts
        )
        dimensions = tuple(d for d in dimensions if d.name not in unsettable_names)
    dimensions_by_name = {dimension.name: dimension for dimension in dimensions}
    named_facts = collect_rule_facts(target, facts)
    vocabulary = RuleVocabulary(target, dimensions_by_name, named_facts)
    order_rules = [vocabulary.build_rules(c) for c in list_order_rules(target, dimensions_by_name)]
    # The baseline from a user's files may violate ordering rules, such as a minimum below a maximum,
    # because the software itself corrects such values.
    accepted_rules = [rules for rules in order_rules if _keeps_user_files(target, rules)]
    bound_rules = [vocabulary.build_rules(c) for c in list_derived_bounds(dimensions)]
    rules = _build_target_rules(file, vocabulary)
    for rules_by_deployment in (*order_rules, *bound_rules):
        rules += () if rules_by_deployment in accepted_rules else rules_by_deployment
    space = SearchSpace(
        dimensions,
        tuple(rules),
        named_facts,
        excluded_lines,
        read_tried_first(file, dimensions_by_name),
        target.tune != "all",
        catalogue=catalogue_of(target),
    )
    _check_feasibility(file, space)
    limit_rules = [vocabulary.build_rules(c) for c in list_limit_rules(target)]
    space = _add_rule_groups(space, accepted_rules, are_built_in=False)
    space = _add_rule_groups(space, limit_rules, are_built_in=True)
    space = _limit_to_memory(file, space)
    _check_feasibility(file, space)
    if target.command is None:
        space = replace(space, caps=find_caps(target, dimensions, facts))
    return space


def _keeps_user_files(target: Target, rules: Iterable[Rule]) -> bool:
    """True if the rules concern only tiers whose baselines come from the user's own files."""
    compared_names = (name for rule in rules for name in rule.names())
    tiers = {ParameterName.parse(name).tier for name in compared_names} & target.tiers.keys()
    return all(
        target.edits_host_files(tier) or target.tiers[tier].templates is not None for tier in tiers
    )


def _check_feasibility(target_file: TargetFile, space: SearchSpace) -> None:
    """Raise TargetError if the baseline breaks a rule, or if the rules allow no settings for a
    combination of deployments.
    """
    tried_settings: list[Settings] = [{}, *space.deployments]
    for deployment in tried_settings:
        try:
            broken_rules = space.build_candidate(deployment).repairs
        except InfeasibleRule as error:
            raise _build_infeasible_error(target_file, error, deployment) from None
        if broken_rules and not deployment:
            broken_rule = broken_rules[0]
            message = f"the baseline itself breaks a constraint: {broken_rule.rule}"
            hint = f"relax it, or set another `default:` for {broken_rule.parameter}"
            location = _find_constraint(target_file, broken_rule.rule)
            raise target_file.document.build_error(location, message, hint=hint)


def _build_infeasible_error(
    target_file: TargetFile, error: InfeasibleRule, deployment: Settings
) -> TargetError:
    """Return the error for a rule that no values can satisfy with a combination of deployments."""
    location = _find_rule_location(target_file, error.rule, deployment)
    is_own = location[0] == "constraints"
    fixed_hint = find_fixed_hint(target_file, error.rule.names(), is_own=is_own)
    if not deployment:
        return target_file.document.build_error(
            location,
            f"no values can satisfy {error}",
            hint=fixed_hint or "widen the range of a parameter in it, or relax the rule",
        )
    choices_text = ", ".join(f"{name} {value}" for name, value in deployment.items())
    if fixed_hint is not None:
        message = f"with {choices_text}, no values can satisfy {error}"
        return target_file.document.build_error(location, message, hint=fixed_hint)
    return target_file.document.build_error(
        location,
        f"with {choices_text}, no values can satisfy {error}",
        hint=("" if error.rule.is_built_in else "relax the constraint, ")
        + "widen the range, or remove the software from `service:`",
    )


def _find_constraint(target_file: TargetFile, rule_text: str) -> Location:
    """Return the location of the constraint in ``rule_text``, which may end with the arithmetic."""
    constraints = enumerate(target_file.target.constraints)
    index = next((i for i, c in constraints if f"{rule_text}: ".startswith(f"{c}: ")), None)
    return ["constraints"] if index is None else ["constraints", index]


def _find_rule_location(target_file: TargetFile, rule: Rule, deployment: Settings) -> Location:
    """Return the location in the target that the user should change if a rule cannot be satisfied with
    this combination of deployments.
    """
    location = _find_constraint(target_file, rule.text)
    if len(location) == 2 and not rule.is_built_in:
        return location
    rule_names = {*rule.comparison.left.names(), *rule.comparison.right.names()}
    if named_rules := {
        parameter_name: parameter_rule
        for parameter_name, parameter_rule in target_file.target.parameters.items()
        if parameter_name in rule_names
    }:
        return [
            "parameters",
            max(
                named_rules,
                key=lambda parameter_name: named_rules[parameter_name].fixed is not None,
            ),
        ]
    tier, _, _ = next(iter(deployment), "").partition(".")
    return ["tiers", tier, "service"] if tier else ["constraints"]


def _add_rule_groups(
    space: SearchSpace, rule_groups: Iterable[tuple[Rule, ...]], *, are_built_in: bool
) -> SearchSpace:
    """Return the space with rules added; each of ``rule_groups`` contains one rule per combination of
    deployments.

    If the baseline breaks a rule, candidates may break the rule by the same amount at most.
    """
    constraints, excluded_lines, baseline = [*space.constraints], [*space.excluded], space.baseline
    baseline_numbers, parameter_names = space.to_names(baseline), baseline.keys()
    for rules in rule_groups:
        baseline_rule = next((rule for rule in rules if rule.applies(baseline)), None)
        baseline_excess = (
            baseline_rule.build_baseline_excess(baseline_numbers, parameter_names)
            if baseline_rule
            else None
        )
        constraints += (
            replace(rule, is_built_in=are_built_in, baseline_excess=baseline_excess)
            for rule in rules
        )
        if baseline_rule and not space.is_kept(baseline_rule, baseline):
            arithmetic_text = space.format_arithmetic(
                replace(baseline_rule, baseline_excess=baseline_excess), baseline
            )
            excluded_lines.append(
                "the baseline itself breaks a rule, and no other configuration may exceed the limit "
                f"by more:  {arithmetic_text}"
            )
    return replace(space, constraints=tuple(constraints), excluded=tuple(excluded_lines))


def _limit_to_memory(target_file: TargetFile, space: SearchSpace) -> SearchSpace:
    """Return the space with ranges cut to the hosts' memory. Raises TargetError if the target sets
    values that do not fit.
    """
    rules = [rule for rule in space.constraints if find_rule_host(rule) is not None]
    memory_check = MemoryCheck(target_file, space.dimensions_by_name, rules, space.facts)
    memory_check.check_values()
    limit_by_parameter = memory_check.find_range_limits()
    dimensions = tuple(
        replace(d, high=limit_by_parameter[d.name]) if d.name in limit_by_parameter else d
        for d in space.dimensions
    )
    limited_dimensions = [
        (space.dimensions_by_name[name], limit_by_parameter[name]) for name in limit_by_parameter
    ]
    excluded_lines = (
        f"{dimension.name}: the range ends at {range_limit} {dimension.parameter.unit} instead of "
        f"{dimension.high}, because the memory of the hosts cannot hold more"
        for dimension, range_limit in limited_dimensions
    )
    return replace(space, dimensions=dimensions, excluded=(*space.excluded, *excluded_lines))


def _build_target_rules(target_file: TargetFile, vocabulary: RuleVocabulary) -> list[Rule]:
    rules: list[Rule] = []
    mistakes = TargetErrorCollector()
    for index, rule_text in enumerate(target_file.target.constraints):
        with mistakes.collect():
            rules += _parse_rule(target_file, vocabulary, index, rule_text)
    mistakes.raise_all()
    return rules


def _parse_rule(
    target_file: TargetFile, vocabulary: RuleVocabulary, index: int, rule_text: str
) -> list[Rule]:
    location = ("constraints", index)
    try:
        rules = list(vocabulary.build_rules(parse_comparison(rule_text)))
    except ValueError as error:
        hint = getattr(error, "hint", None)
        raise target_file.document.build_error(location, str(error), hint=hint) from None
    except KeyError as error:
        unknown_name = str(error.args[0])
        nearest_name = find_nearest_name(unknown_name, vocabulary.known_names)
        hint = f"did you mean {nearest_name!r}?" if nearest_name else CONSTRAINT_NAMES_HINT
        raise target_file.document.build_error(
            location, f"unknown name {unknown_name!r}", hint=hint
        ) from None
    if not any(vocabulary.names_parameter(rule) for rule in rules):
        message = f"{format_value(rule_text)} contains no parameter"
        hint = "name a parameter, such as `TIER.SERVICE.PARAMETER <= 64`, or remove it"
        raise target_file.document.build_error(location, message, hint=hint)
    for rule in rules:
        if mistake := vocabulary.find_mistake(rule):
            message, hint = mistake
            raise target_file.document.build_error(location, message, hint=hint)
    return rules


def find_value_errors(file: TargetFile) -> Iterator[TargetError]:
    """Yield errors in the values and constraints of a stack that do not depend on its hosts.

    All services and applications of the target must be known.
    """
    target, catalogue = file.target, catalogue_of(file.target)
    facts = dict.fromkeys(target.hosts, PLACEHOLDER_FACTS)
    dimensions = {
        dimension.name: dimension
        for tier_name, tier in target.tiers.items()
        for dimension in build_tier_dimensions(tier_name, tier, PLACEHOLDER_FACTS, catalogue)
    }
    vocabulary = RuleVocabulary(target, dimensions, collect_rule_facts(target, facts))
    for index, rule_text in enumerate(target.constraints):
        try:
            _parse_rule(file, vocabulary, index, rule_text)
        except TargetError as error:
            yield error
    # The choices of kernel settings depend on the host.
    host_services = {
        tier_service.name
        for tier_name, tier in target.tiers.items()
        for tier_service in catalogue.list_tier_services(tier_name, tier)
        if tier_service.role is Role.HOST
    }
    for name, parameter_rule in target.parameters.items():
        if parameter_rule.derive is not None and name in dimensions:
            try:
                derived_values.derive_dimension_by_rule(
                    file, dimensions, dimensions[name], parameter_rule.derive
                )
            except TargetError as error:
                yield error
    for location, values in _list_written_values(target):
        dimension = dimensions.get(str(location[1 if location[0] == "parameters" else 2]))
        if not dimension or ParameterName.parse(dimension.name).service_prefix in host_services:
            continue
        if value_error := _find_value_error(file, dimension, location, values):
            yield value_error


def _find_value_error(
    file: TargetFile, dimension: Dimension, location: Location, values: tuple[Scalar, ...]
) -> TargetError | None:
    """Return the error for the first value that the parameter cannot have, or ``None``."""
    if location[-1] == "range" and values and dimension.choices:
        return _build_range_error(file, dimension)
    try:
        for value in values:
            parse_value(file, dimension, location, value)
    except TargetError as error:
        return error
    return None


def _list_written_values(target: Target) -> Iterator[tuple[Location, tuple[Scalar, ...]]]:
    """Yield the values that a target sets for parameters, each with its location."""
    for name, rule in target.parameters.items():
        yield ("parameters", name, "range"), rule.range or ()
        yield ("parameters", name, "choices"), rule.choices or ()
        for key in ("fixed", "default"):
            value = getattr(rule, key)
            yield ("parameters", name, key), () if value is None else (value,)
    for index, settings in enumerate(target.try_first):
        yield from ((("try", index, name), (value,)) for name, value in settings.items())


# -- dimensions: what services declare, with the target's rules ----------------------------------


def build_dimensions(
    file: TargetFile, facts: FactsByHost, adopted_values: AdoptedValues = EMPTY_VALUES
) -> tuple[Dimension, ...]:
    """Return every parameter of the target's services. Excluded and fixed parameters have only one
    value (low = high = baseline).

    Raises TargetError for an unknown service or parameter, an empty range, or a default outside the
    range.
    """
    for error in find_unknown_deployments(file):
        raise error
    catalogue = catalogue_of(file.target)
    by_name: dict[str, Dimension] = {}
    for tier_name, tier in file.target.tiers.items():
        common_facts = find_common_facts(facts[host] for host in tier.hosts)
        for dimension in build_tier_dimensions(tier_name, tier, common_facts, catalogue):
            known_dimension = by_name.setdefault(dimension.name, dimension)
            if known_dimension is not dimension:
                # The service has two roles in the tier, and the parameter has an effect in both. Each
                # list starts with the condition on the deployment; the parameter's own conditions
                # follow.
                (choice_name, allowed_values), (_, more_values) = (
                    known_dimension.conditions[0],
                    dimension.conditions[0],
                )
                merged_conditions = (
                    (choice_name, (*allowed_values, *more_values)),
                    *known_dimension.conditions[1:],
                )
                by_name[dimension.name] = replace(known_dimension, conditions=merged_conditions)
    edited_services = {name.rpartition(".")[0] for name in adopted_values.values}
    by_name = {
        name: adopted_values.with_adopted_baseline(dimension)
        for name, dimension in by_name.items()
        if not dimension.parameter.adopted
        or name.rpartition(".")[0] in edited_services
        or name in file.target.parameters
    }
    for name, value in _collect_advised_values(file, facts, by_name):
        by_name[name] = replace(by_name[name], advised=value)
    by_name |= _apply_target_rules(file, by_name, adopted_values)
    by_name |= derived_values.resolve_derived(file, by_name)
    return tuple(by_name.values())


def _apply_target_rules(
    file: TargetFile, dimensions_by_name: Mapping[str, Dimension], adopted_values: AdoptedValues
) -> dict[str, Dimension]:
    """Return the dimensions that the target's rules change. Raises one TargetError with all errors."""
    changed_dimensions: dict[str, Dimension] = {}
    mistakes = TargetErrorCollector()
    for location, pattern in list_unmatched_patterns(file.target, dimensions_by_name):
        with mistakes.collect():
            raise unknown_parameter_error(file.document, location, dimensions_by_name, pattern)
    for parameter_name, rule in file.target.parameters.items():
        if not is_wildcard(parameter_name):
            with mistakes.collect():
                changed_dimensions[parameter_name] = _apply_parameter_rule(
                    file, dimensions_by_name, parameter_name, rule, adopted_values
                )
    mistakes.raise_all()
    return changed_dimensions | _fix_excluded_dimensions(
        file, {**dimensions_by_name, **changed_dimensions}
    )


def _fix_excluded_dimensions(
    file: TargetFile, dimensions: Mapping[str, Dimension]
) -> dict[str, Dimension]:
    """Return the dimensions that the target excludes, fixed at their baselines.

    The baseline of a derived value follows from the baselines of other parameters.
    """
    excluded_dimensions = {
        name: dimension
        for name, dimension in dimensions.items()
        if _is_excluded_or_dropped(file.target, name)
    }
    fixed_dimensions = {
        name: dimension.fix_at_value(dimension.baseline)
        for name, dimension in excluded_dimensions.items()
        if dimension.expression is None
    }
    derived_names = excluded_dimensions.keys() - fixed_dimensions.keys()
    return fixed_dimensions | derived_values.fix_derived(
        file, {**dimensions, **fixed_dimensions}, derived_names
    )


def _is_excluded_or_dropped(target: Target, parameter_name: str) -> bool:
    rule = target.parameters.get(parameter_name)
    return is_excluded(target, parameter_name) or (rule is not None and rule.drop is not None)


def _collect_advised_values(
    target_file: TargetFile, facts: FactsByHost, dimensions_by_name: Mapping[str, Dimension]
) -> Iterator[tuple[str, Value]]:
    """Yield names and values that published tuning tools advise, given the adopted values."""
    for tier_name, tier in target_file.target.tiers.items():
        common_facts = find_common_facts(facts[host] for host in tier.hosts).to_names()
        for tier_service in catalogue_of(target_file.target).list_tier_services(tier_name, tier):
            name_prefix = f"{tier_service.name}."
            current_values = {
                d.parameter.name: d.baseline
                for name, d in dimensions_by_name.items()
                if name.startswith(name_prefix)
            }
            for name, value in tier_service.service.recommend_settings(
                common_facts, current_values
            ).items():
                yield name_prefix + name, value


def _apply_parameter_rule(
    target_file: TargetFile,
    by_name: Mapping[str, Dimension],
    parameter_name: str,
    rule: ParameterRule,
    adopted_values: AdoptedValues,
) -> Dimension:
    """Return the dimension with the target's rule applied. Raises TargetError."""
    if parameter_name not in by_name:
        raise unknown_parameter_error(target_file.document, ["parameters", parameter_name], by_name)
    if parameter_name in adopted_values.skipped and (
        rule.fixed is not None or rule.derive is not None
    ):
        skip_reason = adopted_values.skipped[parameter_name]
        reason = f"{parameter_name} cannot be set on these hosts: {skip_reason}"
        hint = "leave it out of `parameters:`"
        raise target_file.document.build_error(["parameters", parameter_name], reason, hint=hint)
    dimension = by_name[parameter_name]
    _check_derived_rule(target_file, dimension, rule)
    if rule.drop or parameter_name in adopted_values.skipped:
        # An excluded parameter is fixed at its baseline, because configuration files still need a value.
        is_derived = dimension.expression is not None
        return dimension if is_derived else dimension.fix_at_value(dimension.baseline)
    if rule.derive is not None:
        return derived_values.derive_dimension_by_rule(target_file, by_name, dimension, rule.derive)
    adjusted_dimension = _restrict_dimension(target_file, dimension, rule)
    if rule.range is None and rule.choices is None:
        return adjusted_dimension
    # The user gave a range or choices, so the parameter is searched even if guides call it unimportant.
    return replace(
        adjusted_dimension,
        parameter=replace(adjusted_dimension.parameter, effect=Effect.CAPACITY),
        safe_range=None,
    )


def _check_derived_rule(target_file: TargetFile, dimension: Dimension, rule: ParameterRule) -> None:
    """Raise TargetError if the rule sets values of a parameter that the catalogue computes.

    The rule of a study that already started is accepted, because earlier versions ignored it.
    """
    formula = dimension.parameter.derive if target_file.adopted is None else ""
    for key in ("default", "choices") if formula else ():
        if getattr(rule, key) is not None:
            raise target_file.document.build_error(
                ["parameters", dimension.name, key],
                f"{dimension.name} is computed as `{formula}`, so `{key}:` has no effect",
                hint=derived_values.suggest_sources(formula),
            )


def find_unknown_deployments(file: TargetFile) -> Iterator[TargetError]:
    """Yield an error for each service of a tier that is unknown or does not support the tier's
    runtime.
    """
    catalogue = catalogue_of(file.target)
    for tier_name, tier in file.target.tiers.items():
        for index, deployment in enumerate(tier.service):
            if deployment not in catalogue.deployments:
                yield file.document.build_error(
                    ["tiers", tier_name, "service", index],
                    f"unknown service {deployment!r}",
                    hint=suggest_list(deployment, catalogue.deployments)
                    or catalogue.suggest_deployment(deployment),
                )
            elif any(service.keeps_data for service, _ in catalogue.services_of(deployment)):
                yield from _find_data_mismatch(file, tier_name, tier, deployment)
            elif not tier.installed and not all(
                service.can_run_privately for service, _ in catalogue.services_of(deployment)
            ):
                yield file.document.build_error(
                    ["tiers", tier_name, "service", index],
                    f"{deployment} can run only as a unit of its hosts",
                    hint=HOST_RUNTIME_HINT,
                )
        yield from _find_name_clashes(file, tier_name, tier)
        yield from _find_mixed_roles(file, tier_name, tier)


def _find_mixed_roles(file: TargetFile, tier_name: str, tier: Tier) -> Iterator[TargetError]:
    """Yield an error for the first service that cannot take the place of the tier's first service.
    Databases have their own error.
    """
    catalogue = catalogue_of(file.target)
    kinds = [
        (index, key, ROLE_KINDS.get(catalogue.deployments[key][-1][1], "an HTTP server"))
        for index, key in enumerate(tier.service)
        if key in catalogue.deployments
    ]
    if any(kind == DATABASE_KIND for *_, kind in kinds):
        return
    for index, key, kind in kinds:
        _, first_key, first_kind = kinds[0]
        if kind != first_kind:
            yield file.document.build_error(
                ["tiers", tier_name, "service", index],
                f"{first_key} and {key} cannot be alternatives in one tier: {first_key} is {first_kind}, "
                f"and {key} is {kind}",
                hint=f"use `service: {first_key}`, or a separate tier for {key}",
            )
            return


def _find_name_clashes(file: TargetFile, tier_name: str, tier: Tier) -> Iterator[TargetError]:
    """Yield an error for a choice between two services with the same name. Parameters are called
    ``tier.service.parameter``, so different parameters would have the same name.
    """
    catalogue = catalogue_of(file.target)
    deployments = [
        (index, key) for index, key in enumerate(tier.service) if key in catalogue.deployments
    ]
    for deployment_position, (index, other) in enumerate(deployments):
        keys_by_name = {service.name: service.key for service, _ in catalogue.services_of(other)}
        for _, first_deployment in deployments[:deployment_position]:
            for service, _ in catalogue.services_of(first_deployment):
                if keys_by_name.get(service.name, service.key) != service.key:
                    yield file.document.build_error(
                        ["tiers", tier_name, "service", index],
                        f"{first_deployment} and {other} cannot be alternatives in one tier: both have "
                        f"parameters called"
                        f" {tier_name}.{service.name}.…, but these differ",
                        hint=f"use `service: {first_deployment}`, or a separate target for each",
                    )


def _find_data_mismatch(
    target_file: TargetFile, tier_name: str, tier: Tier, deployment: str
) -> Iterator[TargetError]:
    location, message = ["tiers", tier_name, "service"], f"{deployment} must run where its data is"
    if not tier.installed:
        yield target_file.document.build_error(
            location, f"{message}, not as `runtime: {tier.runtime}`", hint=HOST_RUNTIME_HINT
        )
    if len(tier.service) > 1:
        hint = f"use `service: {deployment}`, or a separate target for each"
        yield target_file.document.build_error(
            location, f"{message}: another service does not have this data", hint=hint
        )


def build_tier_dimensions(
    tier_name: str, tier: Tier, facts: HostFacts, catalogue: Catalogue = SHIPPED
) -> Iterator[Dimension]:
    """Yield every parameter of a tier from the catalogue, with bounds computed from its hosts' facts."""
    deployment_choice = build_deployment_choice(tier_name, tier)
    if deployment_choice:
        yield deployment_choice
    for tier_service in catalogue.list_tier_services(tier_name, tier):
        for parameter in tier_service.service.parameters:
            if parameter.roles is None or tier_service.role in parameter.roles:
                dimension = _build_dimension(tier_service, parameter, facts)
                yield (
                    kernel.with_host_value(dimension, facts)
                    if tier_service.role is Role.HOST
                    else dimension
                )


def _build_dimension(
    tier_service: TierService, parameter: Parameter, facts: HostFacts
) -> Dimension:
    name_prefix = f"{tier_service.name}."
    own_conditions = ((name_prefix + name, values) for name, values in parameter.when)

    def compute_bound(bound: Bound | None, round_number: Callable[[float], int] = round) -> Any:
        """Return a bound, computed from the host's facts if it is an expression."""
        if not isinstance(bound, str) or parameter.choices:
            return bound
        number = parse_expression(bound).evaluate(facts.to_names())
        if number == int(number) or number > 100:
            return int(number)
        return round_number(number) if _is_whole(parameter) else number

    dimension = Dimension(
        name=name_prefix + parameter.name,
        parameter=parameter,
        baseline=compute_bound(parameter.stock),
        low=compute_bound(parameter.low, ceil),
        high=compute_bound(parameter.high, floor),
        is_logarithmic=parameter.log,
        choices=parameter.choices,
        recommended=compute_bound(parameter.recommended),
        advised=compute_bound(parameter.recommended),
        published=parameter.published.get(tier_service.role),
        conditions=(*tier_service.when, *own_conditions),
        expression=derived_values.build_catalogue_expression(parameter, name_prefix),
        safe_range=(compute_bound(parameter.safe[0]), compute_bound(parameter.safe[1]))
        if parameter.safe
        else None,
    )
    if parameter.on_demand:
        return dimension.fix_at_value(dimension.baseline)
    # Bounds from a small host's facts must still include the software's default.
    return dimension.widen_to_include(dimension.baseline)


def _is_whole(parameter: Parameter) -> bool:
    """True if a parameter declares whole numbers, apart from expressions of host facts."""
    numbers = [
        n for n in (parameter.stock, parameter.low, parameter.high) if not isinstance(n, str)
    ]
    return bool(numbers) and all(isinstance(n, int) for n in numbers)


def _build_range_error(file: TargetFile, dimension: Dimension) -> TargetError:
    """Return the error for a range of a parameter whose values are choices."""
    choices_text = ", ".join(map(format_value, dimension.choices))
    return file.document.build_error(
        ["parameters", dimension.name, "range"],
        f"{dimension.name} takes choices, not a range",
        hint=f"`choices: [{choices_text}]`, or some of them",
    )


def _restrict_dimension(file: TargetFile, dimension: Dimension, rule: ParameterRule) -> Dimension:
    location = ["parameters", dimension.name]

    def parse_rule_value(value: Scalar, key: str) -> Value:
        return parse_value(file, dimension, [*location, key], value)

    if rule.fixed is not None:
        return dimension.fix_at_value(parse_rule_value(rule.fixed, "fixed"))
    if rule.range is not None:
        if dimension.choices:
            raise _build_range_error(file, dimension)
        low, high = (dimension.to_number(parse_rule_value(value, "range")) for value in rule.range)
        if low >= high:
            raise file.document.build_error(
                [*location, "range"],
                f"{dimension.name}: the range [{low}, {high}] is empty",
                hint="write the lower value first, or `fixed: VALUE` for one value",
            )
        dimension = replace(dimension, low=low, high=high)
    if rule.choices is not None:
        values = tuple(parse_rule_value(value, "choices") for value in rule.choices)
        dimension = replace(dimension, choices=values, low=None, high=None)
    if rule.log is not None:
        dimension = replace(dimension, is_logarithmic=rule.log)
    if rule.default is not None:
        dimension = replace(dimension, baseline=parse_rule_value(rule.default, "default"))
    # The baseline of a derived value is computed later, and rules keep the value within its bounds.
    if dimension.expression is not None or dimension.allows(dimension.baseline):
        return dimension
    raise file.document.build_error(
        [*location, *(["default"] if rule.default is not None else [])],
        f"{dimension.name}: the default {dimension.baseline} is outside {dimension.allowed_range}",
        hint="widen the range, or set `default:` to the current value of the stack",
    )
