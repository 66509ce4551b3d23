"""Build the search space of a target: its dimensions, and the rules that its hosts can satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autotune.errors import TargetError
from autotune.parameter_name import ParameterName
from autotune.services.base import Settings
from autotune.services.registry import catalogue_of
from autotune.space import kernel
from autotune.space.constraints import parse_constraints
from autotune.space.dimension import EMPTY_VALUES, AdoptedValues
from autotune.space.facts import HostFacts
from autotune.space.memory import MemoryCheck, find_rule_host
from autotune.space.parameter_caps import find_caps
from autotune.space.repair import InfeasibleRule
from autotune.space.rules import (
    Rule,
    RuleVocabulary,
    collect_rule_facts,
    list_derived_bounds,
    list_limit_rules,
    list_order_rules,
)
from autotune.space.space import SearchSpace
from autotune.space.target_dimensions import build_dimensions
from autotune.space.target_values import (
    build_declared_dimensions,
    find_fixed_hint,
    read_tried_first,
)
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location


def build_space(
    file: TargetFile, facts: Mapping[str, HostFacts], adopted_values: AdoptedValues = EMPTY_VALUES
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
    rules = parse_constraints(file, vocabulary)
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
