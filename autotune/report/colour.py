"""Colour for terminals, and only for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

STYLES = {"good": "32", "bad": "31", "doubt": "33", "strong": "1", "faint": "2", "place": "36"}


def wanted(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether ``stream`` is a terminal that may be coloured (https://no-color.org)."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, *, colour: bool) -> str:
    """``text`` in one of ``STYLES``, or as it is."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and text else text
