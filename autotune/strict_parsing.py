"""Strict parsers for numbers, JSON and gzip data from other programs. Invalid input raises only
ValueError.
"""

from __future__ import annotations

import json
import re
import zlib
from ipaddress import ip_address
from math import isfinite
from typing import Any

MAX_NUMBER = 2**64  # larger than any real count
_UINT_PATTERN = re.compile(r"[0-9]{1,19}")
_DECIMAL_PATTERN = re.compile(
    r"[+-]?(?:[0-9]{1,300}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
)


def parse_uint(text: str, factor: int = 1) -> int:
    """Return a number in ASCII digits, times ``factor``. Raises ValueError unless the product fits a
    signed 64-bit integer.
    """
    if not _UINT_PATTERN.fullmatch(text) or int(text) * factor >= MAX_NUMBER // 2:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text) * factor


def is_uint(text: str) -> bool:
    """True if ``parse_uint`` accepts the text."""
    return _UINT_PATTERN.fullmatch(text) is not None and int(text) < MAX_NUMBER // 2


def is_ip_address(text: str) -> bool:
    """True if the text is an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def split_lines(text: str) -> list[str]:
    """Return the lines of a program's output. Lines end with LF or CR LF.

    `str.splitlines` also splits at separators that names and values may contain, so it is not used.
    """
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def parse_file_mode(text: str) -> int:
    """Return the mode of a file, such as ``0644``. Raises ValueError."""
    if not re.fullmatch(r"0?[0-7]{1,4}", text):
        raise ValueError(f"{text[:40]!r} is not a file mode")
    return int(text, 8)


def parse_decimal(text: str) -> float:
    """Return a decimal number. Raises ValueError for other text, or for a number above ``MAX_NUMBER``."""
    if not _DECIMAL_PATTERN.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    number = float(text)
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"{text[:40]} is too large")
    return number


def is_decimal(text: str) -> bool:
    """True if ``parse_decimal`` accepts the text."""
    return _DECIMAL_PATTERN.fullmatch(text) is not None and abs(float(text)) <= MAX_NUMBER


def decompress_gzip(content: bytes, max_bytes: int) -> bytes:
    """Return the content of gzip data. Raises ValueError for invalid data, or if the content is larger
    than ``max_bytes``.
    """
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)  # 16 selects the gzip format
    try:
        plain_content = decompressor.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(plain_content) > max_bytes:
        raise ValueError(f"more than {max_bytes >> 20} MB")
    if not decompressor.eof:
        raise ValueError("incomplete compressed data")
    return plain_content


def parse_json(text: str | bytes) -> Any:
    """Return the value of RFC 8259 JSON with finite numbers and UTF-8 text. Raises ValueError.

    Integers must fit in 64 bits.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(
            text,
            parse_constant=_reject_json_constant,
            parse_float=_parse_json_float,
            parse_int=_parse_json_int,
        )
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if "\\ud" in text.lower():  # raise an error for half of a surrogate pair
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _parse_json_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is not a usable number")
    return number


def _parse_json_int(text: str) -> int:
    # Check the length first, because the time to parse a number grows with its square.
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"{text[:40]} is not a usable number")
    return int(text)


def _reject_json_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")
