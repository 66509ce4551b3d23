"""Parse the parameter values in a target, and build the dimensions of a user's own benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from math import sqrt

from autotune.services.base import Action, Conditions, Parameter, Value
from autotune.space.dimension import Dimension
from autotune.target.corrections import correct_number, correct_range
from autotune.target.messages import suggest_choice
from autotune.target.model import ParameterRule, Scalar
from autotune.target.parameter_selection import unknown_parameter_error
from autotune.target.quantities import convert_to_unit, parse_magnitude
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location

# Words for true and false in a target, as in the configuration files of services and in YAML 1.1.
BOOLEAN_WORDS = {"on": True, "yes": True, "off": False, "no": False}


def parse_value(file: TargetFile, dimension: Dimension, location: Location, text: Scalar) -> Value:
    """Return ``text`` as a value in the parameter's own unit and type. Raises TargetError at
    ``location``.
    """
    choices = (*dimension.choices, *dimension.parameter.choices)
    if isinstance(text, str) and text not in choices and True in choices:
        text = BOOLEAN_WORDS.get(text.lower(), text)
    try:
        number = text if text in choices else convert_to_unit(text, dimension.parameter.unit)
    except ValueError as error:
        raise file.document.build_error(location, f"{dimension.name}: {error}") from None
    try:
        return dimension.convert_value(number)
    except ValueError as error:
        hint = suggest_choice(text, choices) if choices else _suggest_number(dimension, text)
        raise file.document.build_error(location, str(error), hint=hint) from None


def _suggest_number(dimension: Dimension, text: Scalar) -> str:
    """Return the hint for a value that is not a number of this parameter."""
    unit = dimension.parameter.unit
    if bounds := correct_range(text):
        return f"write one number, or `range: {bounds}` without `choices:`"
    if (
        unit
        and isinstance(text, str)
        and (parse_magnitude(text) or ("",))[0] not in ("", "a number")
    ):
        return f"write a whole number of {unit}, such as {dimension.baseline}{unit}"
    number = correct_number(text, "")
    if number is not None:
        return "omit the quotes" if number == text else f"write {number}"
    return f"write a number, such as {dimension.baseline}{unit}"


def parse_bounded_value(
    file: TargetFile, dimension: Dimension, location: Location, text: Scalar
) -> Value:
    """Return a value as `parse_value` does. Raises TargetError for a value outside the dimension's
    bounds or choices.
    """
    dimension = replace(dimension, parameter=replace(dimension.parameter, choices=()))
    value = parse_value(file, dimension, location, text)
    low_bound, high = dimension.low, dimension.high
    if low_bound is not None and high is not None and not low_bound <= float(value) <= high:
        hint = "widen its range, or write a value within it"
        if dimension.is_fixed:
            hint = "remove it here, or replace `fixed:` by a range"
        message = f"{dimension.name}: {text} is outside [{low_bound}, {high}]"
        raise file.document.build_error(location, message, hint=hint)
    return value


def find_fixed_hint(file: TargetFile, names: Iterable[str], *, is_own: bool = True) -> str | None:
    """Return the hint for a rule that values with `fixed:` break. Return ``None`` if the target sets
    the range or the choices of a parameter in it. ``is_own`` is true for a constraint of the target.
    """
    rules = {name: file.target.parameters.get(name) for name in sorted({*names})}
    fixed_rules = {name: rule for name, rule in rules.items() if rule and rule.fixed is not None}
    if not fixed_rules or any(rule and (rule.range or rule.choices) for rule in rules.values()):
        return None
    name, rule = next(iter(fixed_rules.items()))
    location = ("parameters", name)
    place = f"in line {file.document.find_position((*location, 'fixed'))[0]}"
    if location in file.document.origins:
        place = "by --set"
    alternative = ", or remove the constraint" if is_own else ""
    return f"{name} is fixed to {rule.fixed} {place}: write another value there{alternative}"


def read_tried_first(
    file: TargetFile, dimensions: Mapping[str, Dimension]
) -> tuple[dict[str, Value], ...]:
    """Return each configuration of ``try:`` as changes to the baseline, in the order of the file.

    Raises TargetError for an unknown parameter or an invalid value.
    """
    configurations = []
    for index, written_settings in enumerate(file.target.try_first):
        values: dict[str, Value] = {}
        for name, written_value in written_settings.items():
            if name not in dimensions:
                raise unknown_parameter_error(file.document, ["try", index, name], dimensions)
            values[name] = parse_bounded_value(
                file, dimensions[name], ("try", index, name), written_value
            )
        configurations.append(values)
    return tuple(configurations)


def build_declared_dimensions(file: TargetFile) -> tuple[Dimension, ...]:
    """Return every parameter of a user's own benchmark. Raises TargetError for an invalid value.

    A range between integers contains only integers. Without a ``default``, the baseline is the first
    choice or the middle of the range (on a logarithmic scale with ``log: true``).
    """
    rules = file.target.parameters
    dimensions = {name: _build_dimension(file, name, rule) for name, rule in rules.items()}

    @cache  # because parameters may share conditions, the number of ways to them grows exponentially
    def list_conditions(parameter_name: str) -> Conditions:
        """Return the conditions of the parameter, and of the parameters that its conditions name.

        A parameter has no effect if the parameters in its conditions have no effect.
        """
        own_conditions = tuple(
            (other, _parse_condition(file, dimensions[other], parameter_name, values))
            for other, values in (rules[parameter_name].when or {}).items()
        )
        conditions = (c for other, _ in own_conditions for c in list_conditions(other))
        return tuple(dict.fromkeys((*own_conditions, *conditions)))

    return tuple(
        replace(dimension, conditions=list_conditions(name))
        for name, dimension in dimensions.items()
    )


def _parse_condition(
    file: TargetFile, dimension: Dimension, conditional_name: str, values: Iterable[Scalar]
) -> tuple[Value, ...]:
    """Return the values that a condition accepts. A number is converted to the unit of ``dimension``.
    Raises TargetError.
    """
    if dimension.choices:
        return tuple(values)
    location = ("parameters", conditional_name, "when", dimension.name)
    return tuple(parse_value(file, dimension, location, value) for value in values)


def _build_dimension(file: TargetFile, parameter_name: str, rule: ParameterRule) -> Dimension:
    parameter = Parameter(
        "",
        rule.meaning or "",
        stock=0,
        action=Action.NONE,
        source="the target",
        unit=rule.unit or "",
    )
    if rule.range is not None:
        dimension = _apply_range(file, parameter_name, rule, parameter)
    else:
        choices = rule.choices if rule.fixed is None else (rule.fixed,)
        assert choices is not None  # without a range, the loader requires choices
        parameter = replace(parameter, stock=choices[0])
        dimension = Dimension(parameter_name, parameter, choices[0], choices=choices)
    if rule.default is None:
        return dimension
    location = ("parameters", parameter_name, "default")
    return replace(dimension, baseline=parse_bounded_value(file, dimension, location, rule.default))


def _apply_range(
    file: TargetFile, parameter_name: str, rule: ParameterRule, parameter: Parameter
) -> Dimension:
    assert rule.range is not None
    location = ("parameters", parameter_name, "range")
    placeholder_dimension = Dimension(parameter_name, parameter, 0)
    low, high = (parse_value(file, placeholder_dimension, location, end) for end in rule.range)
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if isinstance(low, float) or isinstance(high, float):
        low, high = float(low), float(high)
    if low >= high:
        message = f"{parameter_name}: the range from {low} to {high} is empty"
        raise file.document.build_error(location, message, hint="write the lower value first")
    dimension = Dimension(parameter_name, parameter, low, low, high, is_logarithmic=bool(rule.log))
    range_middle = sqrt(low * high) if rule.log and low > 0 else (low + high) / 2
    return replace(dimension, baseline=dimension.clip(range_middle))
