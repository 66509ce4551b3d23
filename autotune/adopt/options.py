"""The syntax of memcached's and Redis' files: an option and its values on a line."""

from __future__ import annotations

import re

from autotune.adopt.syntax import Directive, Word

_LINE = re.compile(r"[^\n]*(?:\n|$)")
_WORD = re.compile(r""""(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s]+""")


def read(text: str) -> tuple[Directive, ...]:
    """Every option; a comment takes a whole line, or the rest of one behind a space."""
    found: list[Directive] = []
    place = 0
    while place < len(text):
        line = _LINE.match(text, place)
        assert line is not None
        words: list[Word] = []
        for match in _WORD.finditer(text, place, line.end()):
            if match[0].startswith("#"):
                break
            words.append(Word(match[0], match.start()))
        if words:
            found.append(Directive(words[0], tuple(words[1:])))
        place = line.end()
    return tuple(found)
