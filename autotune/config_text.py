"""Configuration files as text. Reading and writing preserves all bytes, even bytes that are not UTF-8.

A byte that is not UTF-8, as in an old Latin-1 comment, is a lone surrogate in the text (PEP 383).
"""

from __future__ import annotations

import re

_NON_UTF8_PATTERN = re.compile("[\udc80-\udcff]")  # the bytes 128 to 255 as lone surrogates


def decode(content: bytes) -> str:
    """Return the text of a file. ``encode`` is the inverse."""
    return content.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes of a text that ``decode`` returned, even if the text was edited."""
    return text.encode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """True if every byte of the text is UTF-8. Other programs can use only UTF-8 names and addresses."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_non_utf8(text: str, escape_start: str = "\\x") -> str:
    """Return the text for display. Each byte that is not UTF-8 is escaped, as in ``\\xf6``.

    In a JSON document, an escape must start with two backslashes (``escape_start``).
    """
    return _NON_UTF8_PATTERN.sub(lambda match: f"{escape_start}{ord(match[0]) & 0xFF:02x}", text)
