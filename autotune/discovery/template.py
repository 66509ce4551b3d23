"""A file made into a template that, at the values it was made from, is that file again."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What a template would read as its own, and the carriage returns that it would drop.
_OURS = re.compile(r"\{*\r|\{+[{%#]")


def exchanged(text: str, pieces: Iterable[tuple[int, int, str]]) -> str:
    """A template of ``text`` with some of it, from start to end, in the template's own words.

    Pieces at the same place come in the order they are given.
    """
    found, place = [], 0
    for start, end, own in sorted(pieces, key=lambda piece: piece[:2]):
        found += [_apart(_literal(text[place:start])), own]
        place = end
    return "".join([*found, _literal(text[place:])])


def _apart(literal: str) -> str:
    """Braces that would be taken for part of the variable after them, said by the template."""
    bare = literal.rstrip("{")
    braces = literal[len(bare) :]
    return f'{bare}{{{{ "{braces}" }}}}' if braces else literal


def _literal(text: str) -> str:
    """Text that a template gives back unchanged."""
    return _OURS.sub(lambda ours: '{{ "' + ours[0].replace("\r", "\\r") + '" }}', text)
