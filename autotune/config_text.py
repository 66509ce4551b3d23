"""Configuration files as text. Reading and writing preserves all bytes, even bytes that are not UTF-8.

A byte that is not UTF-8, as in an old Latin-1 comment, is a lone surrogate in the text (PEP 383).
"""

from __future__ import annotations


def decode(content: bytes) -> str:
    """Return the text of a file. ``encode`` is the inverse."""
    return content.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes of a text that ``decode`` returned, even if the text was edited."""
    return text.encode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """True if every byte of the text is UTF-8. Other programs can use only UTF-8 names and addresses."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_non_utf8(text: str) -> str:
    """Return the text for display and JSON. Each byte that is not UTF-8 is escaped, as in
    ``\\xf6``.
    """
    return encode(text).decode("utf-8", "backslashreplace")
