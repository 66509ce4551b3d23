"""Warnings of parameter values and of configurations to try that are probably mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from autotune.errors import TargetError
from autotune.parameter_name import ParameterName
from autotune.services.base import Value
from autotune.space.derived_values import suggest_sources
from autotune.space.dimension import Dimension
from autotune.space.facts import PLACEHOLDER_FACTS, HostFacts
from autotune.space.target_values import build_declared_dimensions, parse_value
from autotune.space.tier_dimensions import build_stack_dimensions
from autotune.target.consistency_checks import TargetMistake
from autotune.target.messages import format_count
from autotune.target.model import Scalar, Target
from autotune.target.parameter_selection import (
    is_excluded,
    list_unmatched_patterns,
    matches_pattern,
)
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location, YamlDocument

LARGE_FACTS = HostFacts(256, 2**42, nofile=2**20)  # a host that is larger than those in use
MAX_COMPARED_PATTERNS = 200  # the time grows with the square of the number of patterns
# Values beyond the usual bounds by more than these factors are probably in another unit.
HIGH_FACTOR, LOW_FACTOR, UNKNOWN_FACTOR = 16, 8, 64
# A number that YAML reads differently from its spelling in other languages
_UNUSUAL_NUMBER = re.compile(
    r"(?:[\w.-]{1,100}\s{0,9}:\s{1,99})?([+-]?(?:0[0-9]+|0[xXoO][0-9A-Fa-f]+|[0-9]+(?:_[0-9]+)+))(?=[\s,\]}]|$)"
)
Dimensions = Mapping[str, Dimension]
_VALUE_KEYS = ("range", "choices", "fixed", "default")


def find_value_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield values of parameters that are probably mistakes. A target with an error has no such
    warnings.
    """
    lines = file.document.text.split("\n")
    yield from _find_unusual_numbers(file.document, lines, file.document.root, ())
    try:
        dimensions = build_dimensions(file, PLACEHOLDER_FACTS)
        yield from list(_find_doubts(file, dimensions))
    except (TargetError, KeyError, ValueError):
        return


def build_dimensions(file: TargetFile, facts: HostFacts) -> dict[str, Dimension]:
    """Return all parameters of a target by name, with bounds for hosts with these facts. Raises
    TargetError for an invalid value, and KeyError for an unknown service.
    """
    return {dimension.name: dimension for dimension in list_dimensions(file, facts)}


def list_dimensions(file: TargetFile, facts: HostFacts) -> Iterable[Dimension]:
    """Return all parameters of a target as `build_dimensions` does. A parameter is repeated for each
    role of its service in a tier.
    """
    if file.target.command is not None:
        return build_declared_dimensions(file)
    return build_stack_dimensions(file.target, facts)


def has_single_value(target: Target, name: str) -> bool:
    """True if a rule gives the parameter a single value."""
    rule = target.parameters.get(name)
    is_set = rule is not None and (rule.fixed is not None or rule.drop is not None)
    return is_set or is_excluded(target, name)


def read_written_values(
    file: TargetFile, dimension: Dimension, keys: tuple[str, ...] = _VALUE_KEYS
) -> Iterator[tuple[Location, Scalar, Value]]:
    """Yield each value that a rule sets with one of ``keys``. Each item contains the location, the
    value in the file, and the value in the unit of the parameter.
    """
    rule = file.target.parameters.get(dimension.name)
    for key in keys if rule is not None else ():
        location: Location = ("parameters", dimension.name, key)
        rule_value = getattr(rule, key)
        for value in rule_value if isinstance(rule_value, tuple) else (rule_value,):
            if value is not None:
                yield location, value, parse_value(file, dimension, location, value)


def _find_doubts(file: TargetFile, dimensions: Dimensions) -> Iterator[TargetMistake]:
    yield from _find_repeated_configurations(file, dimensions)
    if file.target.command is not None:
        return
    yield from _find_unusual_values(file, dimensions)
    yield from _find_capped_values(file, dimensions)
    yield from _find_computed_ranges(file, dimensions)
    yield from _find_tuning_doubts(file.target, dimensions)
    if file.target.simulated is None:
        yield from _find_excluded_trials(file, dimensions)


def _find_unusual_numbers(
    document: YamlDocument, lines: Sequence[str], value: object, location: Location
) -> Iterator[TargetMistake]:
    """Yield numbers such as 010, which other programs read as octal."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for step, entry in entries:
            yield from _find_unusual_numbers(document, lines, entry, (*location, step))
    elif isinstance(value, int) and not isinstance(value, bool):
        line, column = document.find_position(location)
        line_text = lines[line - 1] if line <= len(lines) else ""
        match = _UNUSUAL_NUMBER.match(line_text[column - 1 : column + 199])
        if match and match[1] != str(value):
            message = f"{match[1]} is read as {value}"
            yield TargetMistake(location, message, f"write {value}")


def _find_unusual_values(file: TargetFile, dimensions: Dimensions) -> Iterator[TargetMistake]:
    """Yield values far outside the bounds of the catalogue, which are probably in another unit."""
    large_dimensions = build_dimensions(file, LARGE_FACTS)
    for name in file.target.parameters.keys() & dimensions.keys():
        dimension, rule = dimensions[name], file.target.parameters[name]
        if dimension.choices:
            continue
        low, high = _find_plausible_bounds(dimension, large_dimensions[name])
        for location, written_value, value in read_written_values(file, dimension):
            number = float(value)
            if low <= number <= high or number <= 0:
                continue
            unit = dimension.parameter.unit
            size = "low" if number < low else "high"
            stock = dimension.parameter.stock
            usual = f"{dimension.baseline if isinstance(stock, str) else stock}{unit}"
            message = f"{name}: {written_value} is unusually {size} (default {usual})"
            hint = f"a number without a unit is in {unit}: write a unit, such as {usual}"
            if not unit or isinstance(written_value, str):
                hint = (
                    f"check its unit and digits, and write a value such as {rule.default or usual}"
                )
            yield TargetMistake(location, message, hint)
            break


def _find_plausible_bounds(small: Dimension, large: Dimension) -> tuple[float, float]:
    if small.low is None or large.high is None:
        return float("-inf"), float("inf")
    if small.parameter.on_demand:
        stock = abs(float(small.baseline))
        return stock / UNKNOWN_FACTOR, (stock or float("inf")) * UNKNOWN_FACTOR
    return float(small.low) / LOW_FACTOR, float(large.high) * HIGH_FACTOR


def _find_capped_values(file: TargetFile, dimensions: Dimensions) -> Iterator[TargetMistake]:
    """Yield values above a kernel setting that the target fixes below them."""
    for name, dimension in dimensions.items():
        kernel_name = f"{ParameterName.parse(name).tier}.sysctl.{dimension.parameter.capped_by}"
        kernel_rule = file.target.parameters.get(kernel_name)
        limit = kernel_rule.fixed if kernel_rule else None
        if not dimension.parameter.capped_by or not isinstance(limit, int):
            continue
        values = list(read_written_values(file, dimension, ("range", "choices", "fixed")))
        if values and float(values[-1][2]) > limit:
            location, written_value, _ = values[-1]
            message = (
                f"{name} above {limit} has no effect, because {kernel_name} is fixed at {limit}"
            )
            yield TargetMistake(location, message, f"raise {kernel_name} to {written_value}")


def _find_computed_ranges(file: TargetFile, dimensions: Dimensions) -> Iterator[TargetMistake]:
    """Yield ranges of parameters that the catalogue computes from other parameters."""
    for name, rule in file.target.parameters.items():
        formula = dimensions[name].parameter.derive if name in dimensions else ""
        if formula and rule.range is not None:
            message = f"{name} is not searched: it is computed as `{formula}`"
            yield TargetMistake(("parameters", name, "range"), message, suggest_sources(formula))


def _find_repeated_configurations(
    file: TargetFile, dimensions: Dimensions
) -> Iterator[TargetMistake]:
    """Yield configurations to try that repeat another configuration or the baseline."""
    target, first_indexes = file.target, dict[frozenset[tuple[str, Value]], int]()
    baseline = {
        name: value
        for name, dimension in dimensions.items()
        for _, _, value in read_written_values(file, dimension, ("default",))
    }
    for index, settings in enumerate(target.try_first):
        values = {
            name: parse_value(file, dimensions[name], ("try", index, name), value)
            for name, value in settings.items()
        }
        first_index = first_indexes.setdefault(frozenset(values.items()), index)
        if values and first_index != index:
            message = f"this configuration repeats number {first_index + 1} of `try:`"
            yield TargetMistake(("try", index), message, "remove it, or change a value")
        elif values and all(baseline.get(name) == values[name] for name in values):
            message = "this configuration is equal to the baseline, which is measured anyway"
            yield TargetMistake(("try", index), message, "remove it, or change a value")
    if len(target.try_first) >= target.budget.trials:
        count = format_count(len(target.try_first), "configuration")
        message = f"`try:` lists {count}, but the budget is {target.budget.trials} trials"
        hint = f"raise `budget: {{trials: …}}` far above {len(target.try_first)}, or try fewer"
        yield TargetMistake(("try",), message, hint)


def _find_excluded_trials(file: TargetFile, dimensions: Dimensions) -> Iterator[TargetMistake]:
    """Yield values to try that a rule of the target excludes."""
    for index, settings in enumerate(file.target.try_first):
        for name, written_value in settings.items():
            location: Location = ("try", index, name)
            value = parse_value(file, dimensions[name], location, written_value)
            if problem := _describe_exclusion(file, dimensions[name], value):
                hint = f"remove it here, or change the rule of {name}"
                yield TargetMistake(location, f"{name}: {written_value} {problem}", hint)


def _describe_exclusion(file: TargetFile, dimension: Dimension, value: Value) -> str | None:
    rule = file.target.parameters.get(dimension.name)
    if has_single_value(file.target, dimension.name) and (rule is None or rule.fixed is None):
        return "cannot be tried, because the parameter is excluded from the search"
    formula = "derive:" if rule and rule.derive is not None else dimension.parameter.derive
    if formula and (rule is None or rule.fixed is None):
        return f"cannot be tried, because `{formula}` computes the value"
    if rule is None:
        return None
    values = [
        allowed_value
        for _, _, allowed_value in read_written_values(
            file, dimension, ("range", "choices", "fixed")
        )
    ]
    if rule.range is not None and not float(values[0]) <= float(value) <= float(values[1]):
        return f"is outside the range from {rule.range[0]} to {rule.range[1]}"
    if rule.fixed is not None and value not in values:
        return f"cannot be tried, because `fixed: {rule.fixed}` sets the value"
    return "is not among the choices" if rule.choices and value not in values else None


def _find_tuning_doubts(target: Target, dimensions: Dimensions) -> Iterator[TargetMistake]:
    patterns = () if isinstance(target.tune, str) else target.tune[:MAX_COMPARED_PATTERNS]
    for index, pattern in enumerate(patterns):
        wider_patterns = (*patterns[:index], *(p for p in patterns[index:] if p != pattern))
        owner = next((p for p in wider_patterns if matches_pattern(pattern, p)), None)
        if owner is not None:
            message = f"`tune:` lists {pattern} twice"
            if owner != pattern:
                message = f"{pattern} is part of {owner}, which `tune:` also lists"
            yield TargetMistake(("tune", index), message, "remove one of them")
    if list_unmatched_patterns(target, dimensions):
        return
    if dimensions and all(has_single_value(target, name) for name in dimensions):
        location: Location = ("parameters",) if target.parameters else ("tune",)
        message = "nothing to tune: every parameter is fixed or excluded"
        yield TargetMistake(location, message, "give a parameter a range in `parameters:`")
