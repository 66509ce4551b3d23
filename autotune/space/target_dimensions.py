"""Build the dimensions of a target: the parameters of its services, changed by the target's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotune.errors import TargetError, TargetErrorCollector
from autotune.services.base import Effect, Value
from autotune.services.registry import catalogue_of
from autotune.space import derived_values
from autotune.space.dimension import EMPTY_VALUES, AdoptedValues, Dimension
from autotune.space.facts import HostFacts, find_common_facts
from autotune.space.service_checks import find_unknown_deployments
from autotune.space.target_values import parse_value
from autotune.space.tier_dimensions import build_tier_dimensions
from autotune.target.messages import format_value
from autotune.target.model import ParameterRule, Scalar, Target
from autotune.target.parameter_selection import (
    is_excluded,
    is_wildcard,
    list_unmatched_patterns,
    unknown_parameter_error,
)
from autotune.target.read_target import TargetFile


def build_dimensions(
    file: TargetFile, facts: Mapping[str, HostFacts], adopted_values: AdoptedValues = EMPTY_VALUES
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
                by_name[dimension.name] = _merge_roles(known_dimension, dimension)
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


def _merge_roles(first: Dimension, second: Dimension) -> Dimension:
    """Return the dimension of a parameter whose service has two roles in a tier. The parameter has an
    effect in both.
    """
    # Each list starts with the condition on the deployment. The parameter's own conditions follow.
    (choice_name, allowed_values), *own_conditions = first.conditions
    _, more_values = second.conditions[0]
    merged_condition = (choice_name, (*allowed_values, *more_values))
    return replace(first, conditions=(merged_condition, *own_conditions))


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
    target_file: TargetFile,
    facts: Mapping[str, HostFacts],
    dimensions_by_name: Mapping[str, Dimension],
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


def build_range_error(file: TargetFile, dimension: Dimension) -> TargetError:
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
            raise build_range_error(file, dimension)
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
