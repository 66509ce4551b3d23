"""The syntax of Apache's files: a directive a line, sections in angle brackets."""

from __future__ import annotations

import re

from autotune.services.config_files import Directive, Word, unreadable

# A line goes on where a backslash ends it, in a comment too.
_LINE = re.compile(r"(?:\\\r?\n|[^\n])*(?:\n|$)")
_WORD = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:(?!\\\r?\n)\S)+""", re.DOTALL)


def read(text: str) -> tuple[Directive, ...]:
    """Every directive, a section's own before what is in it. Raises Unreadable."""
    directives: list[Directive] = []
    sections: list[tuple[str, ...]] = []
    place = 0
    while place < len(text):
        line = _LINE.match(text, place)
        assert line is not None
        words = [Word(word[0], word.start()) for word in _WORD.finditer(text, place, line.end())]
        place = line.end()
        if not words or words[0].text.startswith("#"):
            continue
        if not words[0].text.startswith("<"):
            directives.append(Directive(words[0], tuple(words[1:]), tuple(sections)))
            continue
        words = _without_brackets(text, words)
        if not words[0].text.startswith("/"):
            directives.append(Directive(words[0], tuple(words[1:]), tuple(sections)))
            sections.append(tuple(word.text for word in words))
        elif not sections or sections.pop()[0].lower() != words[0].text[1:].lower():
            raise unreadable(text, words[0].start, f"<{words[0].text}> closes nothing")
    if sections:
        raise unreadable(text, place, f"<{sections[-1][0]}> is not closed")
    return tuple(directives)


def _without_brackets(text: str, words: list[Word]) -> list[Word]:
    """The words between ``<`` and the ``>`` that ends the line."""
    first, last = words[0], words[-1]
    if not last.text.endswith(">"):
        raise unreadable(text, first.start, f"{first.text} lacks its `>`")
    words[-1] = Word(last.text[:-1], last.start)
    words[0] = Word(words[0].text[1:], first.start + 1)
    inner = [word for word in words if word.text]
    if not inner:
        raise unreadable(text, first.start, "a section without a name")
    return inner
