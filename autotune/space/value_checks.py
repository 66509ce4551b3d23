"""Find errors in the values and constraints of a target without the facts of its hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.errors import TargetError
from autotune.parameter_name import ParameterName
from autotune.services.base import Role
from autotune.services.registry import catalogue_of
from autotune.space import derived_values
from autotune.space.constraints import parse_constraint
from autotune.space.dimension import Dimension
from autotune.space.facts import PLACEHOLDER_FACTS
from autotune.space.rules import RuleVocabulary, collect_rule_facts
from autotune.space.target_dimensions import build_range_error
from autotune.space.target_values import parse_value
from autotune.space.tier_dimensions import build_stack_dimensions
from autotune.target.model import Scalar, Target
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location


def find_value_errors(file: TargetFile) -> Iterator[TargetError]:
    """Yield errors in the values and constraints of a stack that do not depend on its hosts.

    All services and applications of the target must be known.
    """
    target, catalogue = file.target, catalogue_of(file.target)
    dimensions = {d.name: d for d in build_stack_dimensions(target, PLACEHOLDER_FACTS)}
    yield from _find_constraint_errors(file, dimensions)
    yield from _find_derivation_errors(file, dimensions)
    # The choices of kernel settings depend on the host.
    host_services = {
        tier_service.name
        for tier_name, tier in target.tiers.items()
        for tier_service in catalogue.list_tier_services(tier_name, tier)
        if tier_service.role is Role.HOST
    }
    for location, values in _list_written_values(target):
        dimension = dimensions.get(str(location[1 if location[0] == "parameters" else 2]))
        if not dimension or ParameterName.parse(dimension.name).service_prefix in host_services:
            continue
        if value_error := _find_value_error(file, dimension, location, values):
            yield value_error


def _find_constraint_errors(
    file: TargetFile, dimensions: Mapping[str, Dimension]
) -> Iterator[TargetError]:
    facts = dict.fromkeys(file.target.hosts, PLACEHOLDER_FACTS)
    vocabulary = RuleVocabulary(file.target, dimensions, collect_rule_facts(file.target, facts))
    for index, rule_text in enumerate(file.target.constraints):
        try:
            parse_constraint(file, vocabulary, index, rule_text)
        except TargetError as error:
            yield error


def _find_derivation_errors(
    file: TargetFile, dimensions: Mapping[str, Dimension]
) -> Iterator[TargetError]:
    for name, rule in file.target.parameters.items():
        if rule.derive is None or name not in dimensions:
            continue
        try:
            derived_values.derive_dimension_by_rule(file, dimensions, dimensions[name], rule.derive)
        except TargetError as error:
            yield error


def _find_value_error(
    file: TargetFile, dimension: Dimension, location: Location, values: tuple[Scalar, ...]
) -> TargetError | None:
    """Return the error for the first value that the parameter cannot have, or ``None``."""
    if location[-1] == "range" and values and dimension.choices:
        return build_range_error(file, dimension)
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
