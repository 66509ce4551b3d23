"""Rules as text in which each term has its unit, such as ``100 * (4 MB + 3 MB) = 700 MB``."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.space.expression import BYTES, SECONDS, Expression, NameValues, Number, Operation
from autotune.target.quantities import SIZE_UNITS

UnitsByName = Mapping[str, str]


def format_terms(
    expression: Expression, names: NameValues, units: UnitsByName, unit: str = ""
) -> str:
    """Return an expression with numbers in place of its names.

    ``units`` maps names to their base units. ``unit`` applies to a term without a unit, such as the
    bare number in ``shared_buffers + 33554432``.
    """
    unit = find_unit(expression, units) or unit
    if not isinstance(expression, Operation):
        return format_quantity(expression.evaluate(names), unit)
    unit_of_operands = "" if expression.symbol in ("*", "/") else unit
    return expression.join_operands(
        [format_terms(operand, names, units, unit_of_operands) for operand in expression.operands]
    )


def find_unit(expression: Expression, units: UnitsByName) -> str:
    """Return the base unit of an expression's value; empty for a count, a share or an unknown unit."""
    if isinstance(expression, Number):
        return expression.unit
    if not isinstance(expression, Operation):
        return units.get(expression.name, "")
    operand_units = [find_unit(operand, units) for operand in expression.operands]
    if expression.symbol in ("*", "/"):
        first_unit, second_unit = operand_units
        if expression.symbol == "/":
            return "" if second_unit else first_unit
        return "" if first_unit and second_unit else first_unit or second_unit
    return next(filter(None, operand_units), "")


def format_quantity(value: float, unit: str) -> str:
    """Return a value in a base unit as text: ``128 MB``, ``300 s``, or ``2048`` for a count."""
    if unit == BYTES:
        return format_bytes(value)
    number_text = f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"
    return f"{number_text} {SECONDS}" if unit == SECONDS else number_text


def format_bytes(size: float) -> str:
    """Return a size in bytes as text with a unit, to three digits."""
    for name in ("TB", "GB", "MB", "KB"):
        if abs(size) >= SIZE_UNITS[name]:
            number = size / SIZE_UNITS[name]
            # The format `g` prints numbers from 999.5 with an exponent.
            return f"{number:.0f} {name}" if abs(number) >= 999.5 else f"{number:.3g} {name}"
    return f"{size:.0f} B"
