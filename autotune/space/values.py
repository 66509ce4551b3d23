"""A value as the user wrote it, as one that a parameter may have."""

from __future__ import annotations

from autotune.services.base import Value
from autotune.space.dimension import Dimension
from autotune.target.document import Location
from autotune.target.model import Scalar
from autotune.target.read import TargetFile
from autotune.target.shown import shown
from autotune.target.units import in_unit


def value_of(file: TargetFile, dimension: Dimension, place: Location, written: Scalar) -> Value:
    """``written`` in the parameter's own unit and kind. Raises TargetError, pointing at ``place``."""
    if dimension.choices:
        return _choice(file, dimension, place, written)
    name = dimension.name
    try:
        number = in_unit(written, dimension.parameter.unit)
    except ValueError as error:
        raise file.document.error(place, f"{name}: {error}") from None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise file.document.error(place, f"{name}: {shown(written)} is not a number")
    if dimension.integer and number != int(number):
        raise file.document.error(place, f"{name}: {written} is not a whole number")
    assert dimension.low is not None
    assert dimension.high is not None
    if not dimension.low <= number <= dimension.high:
        extent = f"[{dimension.low}, {dimension.high}]"
        raise file.document.error(place, f"{name}: {written} is outside {extent}")
    unbounded = dimension.low == float("-inf")
    return number if unbounded else dimension.number(number)


def _choice(file: TargetFile, dimension: Dimension, place: Location, written: Scalar) -> Value:
    for choice in dimension.choices:
        # 1 == True in Python, not in a configuration.
        if choice == written and isinstance(choice, bool) == isinstance(written, bool):
            return choice
    allowed = ", ".join(shown(choice) for choice in dimension.choices)
    message = f"{dimension.name} cannot be {shown(written)}"
    raise file.document.error(place, message, hint=f"it is one of: {allowed}")
