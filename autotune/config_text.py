"""Configuration files as text. Reading and writing keeps all bytes, also invalid ones.

A byte that is no UTF-8, such as one of an old Latin-1 comment, is a lone surrogate in the text (PEP 383).
"""

from __future__ import annotations


def decode(content: bytes) -> str:
    """The text of a file; ``encode`` returns its bytes."""
    return content.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a text that ``decode`` returned, edited or not."""
    return text.encode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """True if every byte of the text is UTF-8: names and addresses must be, or no program finds them."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_non_utf8(text: str) -> str:
    """The text for people and for JSON: each byte that is no UTF-8 as an escape, ``\\xf6``."""
    return encode(text).decode("utf-8", "backslashreplace")
