"""Values as the user wrote them, as those that parameters may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.services.base import Value
from autotune.space.dimension import Dimension
from autotune.target.document import Location
from autotune.target.messages import format_value
from autotune.target.model import Scalar
from autotune.target.read import TargetFile
from autotune.target.units import in_unit


def value_of(file: TargetFile, dimension: Dimension, place: Location, written: Scalar) -> Value:
    """``written`` in the parameter's own unit and kind. Raises TargetError, pointing at ``place``."""
    choices = (*dimension.choices, *dimension.parameter.choices)
    try:
        number = written if written in choices else in_unit(written, dimension.parameter.unit)
    except ValueError as error:
        raise file.document.error(place, f"{dimension.name}: {error}") from None
    try:
        return dimension.typed(number)
    except ValueError as error:
        allowed = ", ".join(format_value(choice) for choice in dict.fromkeys(choices))
        hint = f"it is one of: {allowed}" if dimension.choices else None
        raise file.document.error(place, str(error), hint=hint) from None


def value_within(file: TargetFile, dimension: Dimension, place: Location, written: Scalar) -> Value:
    """The same, within the dimension's bounds and choices."""
    dimension = replace(dimension, parameter=replace(dimension.parameter, choices=()))
    value = value_of(file, dimension, place, written)
    low, high = dimension.low, dimension.high
    if low is not None and high is not None and not low <= float(value) <= high:
        raise file.document.error(place, f"{dimension.name}: {written} is outside [{low}, {high}]")
    return value


def known(file: TargetFile, dimensions: Sequence[Dimension]) -> tuple[dict[str, Value], ...]:
    """What each configuration of ``try:`` has otherwise than the baseline, in the order written.

    Raises TargetError for a parameter there is not, or a value that it cannot have.
    """
    by_name = {dimension.name: dimension for dimension in dimensions}
    configurations = []
    for index, entry in enumerate(file.target.known):
        for name in entry:
            if name not in by_name:
                raise file.document.unknown(["try", index, name], "parameter", by_name)
        configurations.append(
            {
                name: value_within(file, by_name[name], ("try", index, name), written)
                for name, written in entry.items()
            }
        )
    return tuple(configurations)
