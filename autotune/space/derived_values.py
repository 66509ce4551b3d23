"""Values that are computed from other parameters instead of being searched, such as the product of two
settings.

Expressions occur in targets (``derive: ServerLimit * ThreadsPerChild``) and in the catalogue.
Expressions use short names for parameters of the same service, and full names for all other parameters.
Numbers are in base units.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from math import isclose, isfinite

from autotune.services.base import Parameter, Value
from autotune.space.dimension import Dimension
from autotune.space.expression import (
    Expression,
    Name,
    NameValues,
    parse_expression,
    qualify_names,
    replace_names,
)
from autotune.target.messages import find_nearest_name, suggest_name
from autotune.target.read_target import TargetFile

FORMULA_HINT = "a formula contains numbers and parameters, not facts about hosts"
ROUNDING_TOLERANCE = 1e-12  # relative rounding error of an expression


def build_catalogue_expression(parameter: Parameter, prefix: str) -> Expression | None:
    """Return the expression that a service declares for one of its parameters, with full names."""
    return qualify_names(parse_expression(parameter.derive), prefix) if parameter.derive else None


def suggest_sources(formula: str) -> str:
    """Return the hint for a parameter that the catalogue computes by ``formula``."""
    sources = " and ".join(dict.fromkeys(parse_expression(formula).names()))
    return f"set {sources} instead, or write `fixed:` for one value"


def derive_dimension_by_rule(
    file: TargetFile,
    dimensions: Mapping[str, Dimension],
    dimension: Dimension,
    expression_text: str,
) -> Dimension:
    """Return ``dimension`` with the expression that the target gives it. Raises TargetError."""
    location = ["parameters", dimension.name, "derive"]
    if dimension.choices:
        raise file.document.build_error(
            location,
            f"{dimension.name} takes choices: a formula cannot compute it",
            hint="use `fixed:` or `choices:`",
        )
    name_prefix = dimension.name.removesuffix(dimension.parameter.name)
    try:
        expression = qualify_names(parse_expression(expression_text), name_prefix, dimensions)
    except ValueError as error:
        hint = getattr(error, "hint", None)
        raise file.document.build_error(location, str(error), hint=hint) from None
    for name in expression.names():
        if name not in dimensions:
            sibling_names = [
                name_part.removeprefix(name_prefix)
                for name_part in dimensions
                if name_part.startswith(name_prefix)
            ]
            known_names = sorted({*dimensions, *sibling_names})
            hint = FORMULA_HINT
            if find_nearest_name(name, known_names):
                hint = suggest_name(name, known_names)
            raise file.document.build_error(location, f"unknown name {name!r}", hint=hint)
        if isinstance(dimensions[name].baseline, str):
            raise file.document.build_error(
                location,
                f"{name} is text, and a formula needs numbers",
                hint="use only parameters with numbers",
            )
    return replace(dimension, expression=expression)


def resolve_derived(file: TargetFile, dimensions: Mapping[str, Dimension]) -> dict[str, Dimension]:
    """Return the derived dimensions, with computed baselines and presets. The expressions of these
    dimensions contain only searched parameters.

    Raises TargetError if derived values depend on each other in a cycle.
    """
    expressions = {d.name: d.expression for d in dimensions.values() if d.expression is not None}
    graph = {
        name: expressions.keys() & expression.names() for name, expression in expressions.items()
    }

    def substitute_expression(part: Expression) -> Expression | None:
        if not isinstance(part, Name):
            return None
        return expressions.get(part.name) or dimensions[part.name].effective_value

    try:
        for name in TopologicalSorter(graph).static_order():
            expressions[name] = replace_names(expressions[name], substitute_expression)
    except CycleError as error:
        name = next(name for name in graph if name in error.args[1])
        location = ["parameters", name, "derive"]
        hint = "compute it from parameters that do not depend on it"
        raise file.document.build_error(location, f"{name} depends on itself", hint=hint) from None
    derived_dimensions = {
        name: _compute_dimension(replace(dimensions[name], expression=expression), dimensions)
        for name, expression in expressions.items()
    }
    for name, dimension in derived_dimensions.items():
        if not isfinite(float(dimension.baseline)):
            location = ["parameters", name, "derive"]
            message = f"{name} divides by zero in the baseline"
            hint = "set a `default:` above 0 for the divisor"
            raise file.document.build_error(location, message, hint=hint)
    return derived_dimensions


def fix_derived(
    file: TargetFile, dimensions: Mapping[str, Dimension], names: Collection[str]
) -> dict[str, Dimension]:
    """Return the derived dimensions called ``names``, fixed at their computed baselines."""
    computed_dimensions = resolve_derived(file, dimensions) if names else {}
    return {
        name: computed_dimensions[name].fix_at_value(computed_dimensions[name].baseline)
        for name in dimensions
        if name in names
    }


def compute_derived_value(dimension: Dimension, values_by_name: NameValues) -> Value:
    """Return the value of a derived dimension, which is infinite if its expression divides by zero.

    A fraction of a whole number is cut off, except for a rounding error: 29% of 100 is 29.
    """
    assert dimension.expression is not None
    computed_number = dimension.expression.evaluate(values_by_name) / dimension.unit_factor
    # The default of a whole number may be an expression, such as `cpus`.
    is_whole = dimension.is_integer or isinstance(dimension.parameter.stock, int)
    if not is_whole or not isfinite(computed_number):
        return computed_number
    nearest_integer = round(computed_number)
    is_exact = isclose(computed_number, nearest_integer, rel_tol=ROUNDING_TOLERANCE)
    return nearest_integer if is_exact else int(computed_number)


def _compute_dimension(dimension: Dimension, dimensions: Mapping[str, Dimension]) -> Dimension:
    assert dimension.expression is not None
    sources = [dimensions[name] for name in dict.fromkeys(dimension.expression.names())]

    def compute_preset(preset: str) -> Value | None:
        source_values = [getattr(source, preset) for source in sources]
        if all(value is None for value in source_values):
            return None
        values_by_name = {
            source.name: float(source.baseline if value is None else value) * source.unit_factor
            for source, value in zip(sources, source_values, strict=True)
        }
        return compute_derived_value(dimension, values_by_name)

    baseline = compute_preset("baseline")
    assert baseline is not None
    return replace(
        dimension,
        baseline=baseline,
        recommended=compute_preset("recommended"),
        advised=compute_preset("advised"),
        published=compute_preset("published"),
    )
