"""Convert quantities with units, as users write them, to and from numbers in base units.

Base units are seconds, bytes, requests/s and fractions of one. Except for rates, a number without a unit
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from autotune.strict_parsing import MAX_NUMBER
from autotune.target.corrections import correct_number, correct_quantity
from autotune.target.messages import format_value

AMOUNT_REGEX = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
_QUANTITY_PATTERN = re.compile(rf"\s*({AMOUNT_REGEX})\s*([A-Za-zµ%/]*)\s*")

DURATION_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# Powers of 1024, as nginx, PHP, memcached and Redis interpret sizes.
SIZE_UNITS = {"B": 1, "KB": 2**10, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40,
        "K": 2**10, "k": 2**10, "M": 2**20, "G": 2**30,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip
RATE_UNITS = {"/s": 1.0, "/min": 1 / 60, "/m": 1 / 60}
FRACTION_UNITS = {"%": 0.01}
QuantityWriter = Callable[[Any], str]
UNITS_BY_KIND: Mapping[str, Mapping[str, float]] = {
    "a duration": DURATION_UNITS,
    "a size": SIZE_UNITS,
    "a rate": RATE_UNITS,
    "a fraction": FRACTION_UNITS,
}
EXAMPLES_BY_KIND = {
    "a duration": "50ms, 3s or 45m",
    "a size": "64MB or 2GB",
    "a rate": "2000/s",
    "a fraction": "0.1%",
}


def parse_duration(text: object) -> float:
    """Return the seconds in a text such as ``50ms``, ``3 s``, ``45m`` or ``2h``. Raises ValueError
    if the unit is missing.
    """
    return _parse_quantity(text, "a duration")


def parse_size(text: object) -> int:
    """Return the bytes in a text such as ``64MB``, ``30 MB`` or ``2GB`` (powers of 1024). Raises
    ValueError if the unit is missing.
    """
    return round(_parse_quantity(text, "a size"))


def parse_rate(text: object) -> float:
    """Return the requests/s in a text such as ``2000/s``, ``600/min`` or a bare number. Raises
    ValueError.
    """
    is_number = isinstance(text, str | int | float) and not isinstance(text, bool)
    match = _QUANTITY_PATTERN.fullmatch(str(text)) if is_number else None
    return _parse_quantity(f"{match[1]}/s" if match and not match[2] else text, "a rate")


def parse_fraction(text: object) -> float:
    """Return the fraction of one in a text such as ``0.1%``. Raises ValueError for a text without a
    percent sign, or for a fraction above 100 %.
    """
    value = _parse_quantity(text, "a fraction")
    if value > 1:
        raise ValueError(f"{text} is more than 100%; write 100% or less")
    return value


def parse_magnitude(value: object) -> tuple[str, float] | None:
    """Return the kind of a quantity and its amount in the base unit; ``None`` for other text.

    A bare number is of kind ``"a number"``.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return "a number", float(value)
    match = _QUANTITY_PATTERN.fullmatch(value) if isinstance(value, str) else None
    for kind, units in UNITS_BY_KIND.items():
        if match and match[2] in units:
            return kind, _scale_amount(match[1], units[match[2]])
    return None


def convert_to_unit(value: object, unit: str) -> object:
    """Return ``value`` as a number in ``unit``: ``"8MB"`` is 8 for a parameter in MB.

    Text that is not a quantity (such as the choice ``dynamic``) is returned unchanged. Bare numbers
    are also returned unchanged, because they are already in the parameter's unit. Raises ValueError
    if ``value`` and ``unit`` are quantities of different kinds.
    """
    match = _QUANTITY_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match is None or not match[2]:
        return value
    for units in UNITS_BY_KIND.values():
        if unit in units and match[2] in units:
            number = _scale_amount(match[1], units[match[2]]) / units[unit]
            return int(number) if number == int(number) else number
    expected_text = "this parameter has no unit: write only the number"
    if unit:
        corrections = (
            correct_quantity(value, kind, units)
            for kind, units in UNITS_BY_KIND.items()
            if unit in units
        )
        example = next(filter(None, corrections), f"{match[1]}{unit}")
        expected_text = f"this parameter is counted in {unit}, such as {example}"
    elif (
        match[2] != "%" and (plain_number := correct_number(value, "")) and plain_number != match[1]
    ):
        expected_text += f", such as {plain_number}"
    raise ValueError(f"{value!r}: {expected_text}")


def _parse_quantity(text: object, kind: str) -> float:
    is_number = isinstance(text, int | float) and not isinstance(text, bool)
    match = _QUANTITY_PATTERN.fullmatch(str(text)) if isinstance(text, str) or is_number else None
    if match is None or match[2] not in UNITS_BY_KIND[kind]:
        problem = _describe_quantity_problem(text, kind, match[2] if match else None)
        correction = correct_quantity(text, kind, UNITS_BY_KIND[kind])
        advice = correction or f"{kind} as {EXAMPLES_BY_KIND[kind]}"
        raise ValueError(f"{problem}; write {advice}")
    return _scale_amount(match[1], UNITS_BY_KIND[kind][match[2]])


def _describe_quantity_problem(text: object, kind: str, unit: str | None) -> str:
    """Return the reason why ``text``, with its ``unit``, is not a quantity of this kind."""
    if text is None:
        return "no value given"
    if unit is None:
        return f"{format_value(text)} is not {kind}"
    return f"unknown unit {unit!r}" if unit else f"{text} has no unit"


def _scale_amount(number_text: str, unit_factor: float) -> float:
    # Without Decimal, 0.7% would not become exactly the float 0.007.
    scaled_amount = float(Decimal(number_text) * Decimal(repr(unit_factor)))
    if scaled_amount > MAX_NUMBER:
        raise ValueError(f"{number_text} is too large")
    return scaled_amount


def _format_in_units(value: float, units: Mapping[str, float], *unit_names: str) -> str:
    """Return ``value`` in the first unit of ``unit_names`` in which its number is at least 1, or else in
    the last unit.

    Parsing the result returns exactly ``value``.
    """
    for unit_name in unit_names:
        if value >= units[unit_name] or unit_name == unit_names[-1]:
            break
    # The units are powers of ten, so the division only moves the decimal point.
    amount = Decimal(repr(value)) / Decimal(repr(units[unit_name]))
    plain_number = format(amount, "f")
    return f"{plain_number.rstrip('0').rstrip('.') if '.' in plain_number else plain_number}{unit_name}"


def format_duration(seconds: float) -> str:
    """Return text such as ``50ms`` or ``45m``, as the inverse of ``parse_duration``."""
    for unit_name in ("h", "m"):
        if seconds and seconds % DURATION_UNITS[unit_name] == 0 and seconds < 2**53:
            return f"{seconds / DURATION_UNITS[unit_name]:.0f}{unit_name}"
    return _format_in_units(seconds, DURATION_UNITS, "s", "ms")


def format_size(count: int) -> str:
    """Return text such as ``64MB``, as the inverse of ``parse_size``."""
    unit_name = next((n for n in ("GB", "MB", "KB") if count and count % SIZE_UNITS[n] == 0), "B")
    return f"{count // int(SIZE_UNITS[unit_name])}{unit_name}"


def format_rate(per_second: float) -> str:
    """Return text such as ``2000/s``, as the inverse of ``parse_rate``."""
    return _format_in_units(per_second, RATE_UNITS, "/s")


def format_fraction(fraction: float) -> str:
    """Return text such as ``0.1%``, as the inverse of ``parse_fraction``."""
    return _format_in_units(fraction, FRACTION_UNITS, "%")
