"""The syntax of nginx's files: words ended by ``;``, or by a block in braces."""

from __future__ import annotations

import re

from autotune.adopt.syntax import Directive, Word, unreadable

# nginx's own lexis: a comment begins where a word could, and within a word `#`, `}` and quotes are
# letters like any other; braces that are none of its blocks have to be quoted.
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>\#[^\n]*)|(?P<mark>[;{}])"""
    r"""|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
    r"""|(?:\\.|\$\{[^}]*\}|[^\s;{}\\"'])(?:\\.|\$\{[^}]*\}|[^\s;{\\])*)""",
    re.DOTALL,
)


def read(text: str) -> tuple[Directive, ...]:
    """Every directive, those with a block before what is in it. Raises Unreadable."""
    found: list[Directive] = []
    blocks: list[tuple[str, ...]] = []
    words: list[Word] = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise unreadable(text, place, "a quote or an escape has no end")
        if token["word"]:
            words.append(Word(token["word"], place))
        elif token["mark"] == "}":
            if words or not blocks:
                raise unreadable(text, place, "`}` where none belongs")
            blocks.pop()
        elif token["mark"]:
            if not words:
                raise unreadable(text, place, f"`{token['mark']}` without a directive before it")
            found.append(Directive(words[0], tuple(words[1:]), tuple(blocks)))
            if token["mark"] == "{":
                blocks.append(tuple(word.text for word in words))
            words = []
        place = token.end()
    if words or blocks:
        raise unreadable(text, place, "the file ends within a directive or a block")
    return tuple(found)
