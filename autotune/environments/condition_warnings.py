"""Warnings of settings whose conditions never hold, so that the settings have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.environments.value_warnings import list_dimensions
from autotune.errors import TargetError
from autotune.services.base import Value
from autotune.space.dimension import Dimension, is_deployment_choice
from autotune.space.facts import PLACEHOLDER_FACTS
from autotune.space.target_values import parse_value
from autotune.target.consistency_checks import TargetMistake
from autotune.target.model import Scalar
from autotune.target.overrides import list_assigned_parameters
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location


@dataclass(frozen=True)
class _WrittenValues:
    """The parameters of a target by name, and the values that its rules allow.

    ``dimensions`` lists one dimension of a parameter for each of its roles in a tier. ``baseline``
    contains only values that do not depend on the hosts.
    """

    dimensions: Mapping[str, tuple[Dimension, ...]]
    allowed: Mapping[str, tuple[Value, ...]]
    baseline: Mapping[str, Value]

    def is_template_value(self, name: str) -> bool:
        """True if only templates of a target contain the parameter, so that they need its value."""
        dimensions = self.dimensions.get(name, ())
        return any(dimension.parameter.adopted for dimension in dimensions)

    def find_unmet(
        self, name: str, known_values: Mapping[str, tuple[Value, ...]]
    ) -> tuple[str, Value] | None:
        """Return a condition of the parameter that ``known_values`` cannot meet, with a value that
        would meet it; ``None`` if the parameter may have an effect.
        """
        unmet = [
            dimension.find_unmet_condition(known_values)
            for dimension in self.dimensions.get(name, ())
        ]
        return unmet[0] if unmet and None not in unmet else None


def find_settings_without_effect(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield rules and configurations to try first that set a parameter without an effect. A target
    with an error has no such warnings.
    """
    try:
        target_values = _read_values(file)
        tried = [
            _read_configuration(file, target_values, i) for i in range(len(file.target.try_first))
        ]
    except (TargetError, KeyError):
        return
    assigned_names = list_assigned_parameters(file.document)
    for name, rule in file.target.parameters.items():
        is_set = any(v is not None for v in (rule.range, rule.choices, rule.fixed))
        is_given = is_set or name in assigned_names
        if target_values.is_template_value(name) and rule.fixed is not None:
            continue
        if is_given and (unmet := target_values.find_unmet(name, target_values.allowed)):
            message = f"{name} has no effect: it requires `{_format_setting(*unmet)}`"
            hint = f"allow this value under `parameters:`, or remove {name}"
            yield TargetMistake(("parameters", name), message, hint)
    for index, settings in enumerate(file.target.try_first):
        for name in settings:
            if unmet := target_values.find_unmet(name, tried[index]):
                setting_text = _format_setting(*unmet)
                message = f"{name} has no effect: it requires `{setting_text}`"
                hint = f"add `{setting_text}` to this configuration, or remove {name}"
                yield TargetMistake(("try", index, name), message, hint)


def _read_values(file: TargetFile) -> _WrittenValues:
    """Raise TargetError for an invalid value, and KeyError for an unknown service."""
    grouped_dimensions = _group_dimensions(file)
    allowed: dict[str, tuple[Value, ...]] = {}
    baseline: dict[str, Value] = {}
    for name, dimensions in grouped_dimensions.items():
        if is_deployment_choice(name) or file.target.command is not None:
            baseline[name] = dimensions[0].baseline
        rule = file.target.parameters.get(name)
        if rule is None:
            continue
        location: Location = ("parameters", name)
        fixed = None if rule.fixed is None else (rule.fixed,)
        if values := fixed or rule.choices:
            allowed[name] = _parse_values(file, dimensions[0], location, values)
        default = rule.fixed if rule.default is None else rule.default
        if default is not None:
            (baseline[name],) = _parse_values(file, dimensions[0], location, (default,))
    return _WrittenValues(grouped_dimensions, allowed, baseline)


def _group_dimensions(file: TargetFile) -> dict[str, tuple[Dimension, ...]]:
    groups: dict[str, tuple[Dimension, ...]] = {}
    for dimension in list_dimensions(file, PLACEHOLDER_FACTS):
        groups[dimension.name] = (*groups.get(dimension.name, ()), dimension)
    return groups


def _read_configuration(
    file: TargetFile, target_values: _WrittenValues, index: int
) -> dict[str, tuple[Value, ...]]:
    """Return the known values of a configuration in ``try:``, completed from the baseline."""
    values: dict[str, tuple[Value, ...]] = {
        name: (value,) for name, value in target_values.baseline.items()
    }
    for name, value in file.target.try_first[index].items():
        dimension = target_values.dimensions[name][0]
        values[name] = _parse_values(file, dimension, ("try", index, name), (value,))
    return values


def _parse_values(
    file: TargetFile, dimension: Dimension, location: Location, values: tuple[Scalar, ...]
) -> tuple[Value, ...]:
    return tuple(parse_value(file, dimension, location, value) for value in values)


def _format_setting(name: str, value: Value) -> str:
    return f"{name}: {str(value).lower() if isinstance(value, bool) else value}"
