"""The syntax of Apache's files: a directive a line, sections in angle brackets."""

from __future__ import annotations

import re

from autotune.services.config_files import Directive, Word, tokens, unreadable

# A line goes on where a backslash ends it, in a comment too.
_LINE = re.compile(r"(?:\\\r?\n|[^\n])*(?:\n|$)")
_WORD = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:(?!\\\r?\n)\S)+""", re.DOTALL)


def read(text: str) -> tuple[Directive, ...]:
    """Every directive, a section's own before what is in it. Raises Unreadable."""
    parsed: list[Directive] = []
    sections: list[tuple[str, ...]] = []
    for line in tokens(text, _LINE, "it is no line"):
        words = [Word(word[0], word.start()) for word in _WORD.finditer(text, *line.span())]
        if not words or words[0].text.startswith("#"):
            continue
        is_section = words[0].text.startswith("<")
        if is_section:
            words = _without_brackets(text, words)
        if not (is_section and words[0].text.startswith("/")):
            parsed.append(Directive(words[0], tuple(words[1:]), tuple(sections)))
            sections += [tuple(word.text for word in words)] if is_section else []
        elif not sections or sections.pop()[0].lower() != words[0].text[1:].lower():
            raise unreadable(text, words[0].start, f"<{words[0].text}> closes nothing")
    if sections:
        raise unreadable(text, len(text), f"<{sections[-1][0]}> is not closed")
    return tuple(parsed)


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
