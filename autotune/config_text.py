"""Configuration files as text. Reading and writing preserves all bytes, even invalid ones.

A byte that is not UTF-8, as in an old Latin-1 comment, is a lone surrogate in the text (PEP 383).
"""

from __future__ import annotations


def decode(content: bytes) -> str:
    """Return the text of a file. ``encode`` is the inverse."""
    return content.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes of a text from ``decode``, edited or not."""
    return text.encode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """True if every byte of the text is UTF-8. Names and addresses must be UTF-8, because other
    programs could not use them otherwise.
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_non_utf8(text: str) -> str:
    """Return the text for display and JSON. Each byte that is not UTF-8 is escaped, as in
    ``\\xf6``.
    """
    return encode(text).decode("utf-8", "backslashreplace")
