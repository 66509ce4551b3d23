"""Numbers and JSON that come from outside: what is invalid raises ValueError, never anything else."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address
from math import isfinite
from typing import Any

MAX_NUMBER = 2**64  # more than anything that is counted
_UINT_PATTERN = re.compile(r"[0-9]{1,19}")
_DECIMAL_PATTERN = re.compile(
    r"[+-]?(?:[0-9]{1,300}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
)


def parse_uint(text: str, unit: int = 1) -> int:
    """A count in ASCII digits, times ``unit``; it fits a signed 64-bit number. Raises ValueError."""
    if not _UINT_PATTERN.fullmatch(text) or int(text) * unit >= MAX_NUMBER // 2:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text) * unit


def is_uint(text: str) -> bool:
    """Whether ``parse_uint`` takes it."""
    return _UINT_PATTERN.fullmatch(text) is not None and int(text) < MAX_NUMBER // 2


def is_ip_address(text: str) -> bool:
    """Whether it is an IP address, of either version."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def split_lines(text: str) -> list[str]:
    """The lines of what a program prints: only a line feed ends one, or a carriage return and one.

    `str.splitlines` ends them at separators too that may be in names and values.
    """
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def parse_file_mode(text: str) -> int:
    """The permission bits of a file, such as ``0644``. Raises ValueError."""
    if not re.fullmatch(r"0?[0-7]{1,4}", text):
        raise ValueError(f"{text[:40]!r} are no bits of a file")
    return int(text, 8)


def parse_decimal(text: str) -> float:
    """A number as programs print it, finite and below ``MAX_NUMBER``. Raises ValueError."""
    if not _DECIMAL_PATTERN.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    number = float(text)
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"{text[:40]} is more than anything that is counted")
    return number


def is_decimal(text: str) -> bool:
    """True if ``parse_decimal`` accepts the text."""
    return _DECIMAL_PATTERN.fullmatch(text) is not None and abs(float(text)) <= MAX_NUMBER


def parse_json(text: str | bytes) -> Any:
    """JSON of RFC 8259: numbers are finite, whole ones of 64 bits, text is UTF-8. Raises ValueError."""
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(
            text,
            parse_constant=_reject_json_constant,
            parse_float=_parse_json_float,
            parse_int=_parse_json_int,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\ud" in text.lower():  # half of a surrogate pair raises: UTF-8 has none
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _parse_json_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is not a number that can be used")
    return number


def _parse_json_int(text: str) -> int:
    # The length comes first: the time of reading a number grows with its square.
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"{text[:40]} is not a number that can be used")
    return int(text)


def _reject_json_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")
