"""The dimensions of a user's own benchmark, as its target declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt

from autotune.services.base import Action, Parameter, Value
from autotune.space.dimension import Dimension
from autotune.space.values import value_of, value_within
from autotune.target.model import ParameterRule
from autotune.target.read import TargetFile

When = tuple[tuple[str, tuple[Value, ...]], ...]


def dimensions(file: TargetFile) -> tuple[Dimension, ...]:
    """Every declared parameter. Raises TargetError for a value it cannot have.

    A range between whole numbers has whole numbers. Without a ``default`` the baseline is the first
    choice, or the middle of the range (of its logarithm with ``log: true``).
    """
    rules = file.target.parameters
    return tuple(
        replace(_dimension(file, name, rule), when=_conditions(rules, name))
        for name, rule in rules.items()
    )


def _dimension(file: TargetFile, name: str, rule: ParameterRule) -> Dimension:
    dimension = _choice(name, rule) if rule.range is None else _range(file, name, rule)
    if rule.default is None:
        return dimension
    place = ("parameters", name, "default")
    return replace(dimension, baseline=value_within(file, dimension, place, rule.default))


def _choice(name: str, rule: ParameterRule) -> Dimension:
    choices = rule.choices if rule.fixed is None else (rule.fixed,)
    assert choices is not None  # `kinds` has seen to it
    return Dimension(name, _parameter(rule, choices[0]), choices[0], choices=choices)


def _range(file: TargetFile, name: str, rule: ParameterRule) -> Dimension:
    assert rule.range is not None
    parameter = _parameter(rule, 0)
    anything = Dimension(name, parameter, 0)
    place = ("parameters", name, "range")
    low, high = (value_of(file, anything, place, end) for end in rule.range)
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if isinstance(low, float) or isinstance(high, float):
        low, high = float(low), float(high)
    if low >= high:
        raise file.document.error(place, f"{name}: the range from {low} to {high} is empty")
    dimension = Dimension(name, parameter, low, low, high, log=bool(rule.log))
    return replace(dimension, baseline=_middle(dimension, low, high))


def _middle(dimension: Dimension, low: float, high: float) -> Value:
    return dimension.clip(sqrt(low * high) if dimension.log and low > 0 else (low + high) / 2)


def _parameter(rule: ParameterRule, stock: Value) -> Parameter:
    return Parameter(
        name="",
        stock=stock,
        action=Action.NONE,
        meaning=rule.meaning or "",
        source="the target",
        unit=rule.unit or "",
    )


def _conditions(rules: Mapping[str, ParameterRule], name: str) -> When:
    """Its own, and those of the parameters they name: one without effect gives others none."""
    own = tuple((rules[name].when or {}).items())
    return (*own, *(condition for other, _ in own for condition in _conditions(rules, other)))
