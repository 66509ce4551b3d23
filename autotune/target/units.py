"""Quantities as people write them, with their unit, to plain numbers in the base unit.

Base units: seconds, bytes, requests/s, fraction of one. A bare number is refused wherever a unit
would change its meaning.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ%/]*)\s*$")

DURATION = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# Powers of 1024, as nginx, PHP, memcached and Redis read their own sizes.
SIZE = {"B": 1, "KB": 2**10, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40,
        "K": 2**10, "k": 2**10, "M": 2**20, "G": 2**30,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip
RATE = {"/s": 1.0, "/m": 1 / 60, "/min": 1 / 60}
FRACTION = {"%": 0.01}


def _split(text: object) -> tuple[float, str]:
    match = _NUMBER.match(str(text)) if isinstance(text, str | int | float) else None
    if match is None or isinstance(text, bool):
        raise ValueError(f"{text!r} is not a number with a unit")
    return float(match[1]), match[2]


def _quantity(text: object, units: dict[str, float], what: str, example: str) -> float:
    number, unit = _split(text)
    if unit in units:
        return number * units[unit]
    if not unit:
        raise ValueError(f"{text} has no unit; write {what} as {example}")
    raise ValueError(f"unknown unit {unit!r} for {what}; write it as {example}")


def duration(text: object) -> float:
    """Seconds: ``50ms``, ``3 s``, ``45m``, ``2h``. Raises ValueError without a unit."""
    return _quantity(text, DURATION, "a duration", "50ms, 3s or 45m")


def size(text: object) -> int:
    """Bytes: ``64MB``, ``30 MB``, ``2GB`` (powers of 1024). Raises ValueError without a unit."""
    return int(_quantity(text, {k: float(v) for k, v in SIZE.items()}, "a size", "64MB or 2GB"))


def rate(text: object) -> float:
    """Requests/s: ``2000/s``, ``600/min``. Raises ValueError without a unit."""
    return _quantity(text, RATE, "a rate", "2000/s")


def fraction(text: object) -> float:
    """A fraction of one: ``0.1%``. Raises ValueError without the percent sign or beyond 100 %."""
    value = _quantity(text, FRACTION, "a fraction", "0.1%")
    if value > 1:
        raise ValueError(f"{text} is more than 100%")
    return value


def in_unit(value: object, unit: str) -> object:
    """``value`` as a number of ``unit``: ``"8MB"`` is 8 for a parameter counted in MB.

    Text that is no quantity (a choice such as ``dynamic``) and bare numbers pass unchanged: a bare
    number is already in the parameter's own unit. Raises ValueError for a unit of another kind.
    """
    if not isinstance(value, str):
        return value
    match = _NUMBER.match(value)
    if match is None or not match[2]:
        return value
    for units in (DURATION, {k: float(v) for k, v in SIZE.items()}):
        if unit in units and match[2] in units:
            number = float(match[1]) * units[match[2]] / units[unit]
            return int(number) if number == int(number) else number
    expected = f"this parameter is counted in {unit}" if unit else "this parameter has no unit"
    raise ValueError(f"{value!r}: {expected}")


def _seconds_text(value: float) -> str:
    return f"{value * 1000:g}ms" if value < 1 else f"{value:g}s"


def _dump(form: str) -> PlainSerializer:
    return PlainSerializer(lambda value: form.format(value), return_type=str)


Seconds = Annotated[
    float, BeforeValidator(duration), PlainSerializer(_seconds_text, return_type=str)
]
Bytes = Annotated[int, BeforeValidator(size), _dump("{}B")]
PerSecond = Annotated[float, BeforeValidator(rate), _dump("{:g}/s")]
Fraction = Annotated[
    float,
    BeforeValidator(fraction),
    PlainSerializer(lambda value: f"{value * 100:g}%", return_type=str),
]
