"""The syntax of nginx's files: words ended by ``;``, or by a block in braces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.services.config_files import Directive, Word, tokens, unreadable

# nginx's own lexis: a comment begins where a word could, and within a word `#`, `}` and quotes are
# letters like any other, as is the brace of `${`; other braces that are no block's have to be quoted.
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>\#[^\n]*)|(?P<mark>[;{}])"""
    r"""|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
    r"""|(?:\\.|\$\{|[^\s;{}\\"'])(?:\\.|\$\{|[^\s;{\\])*)""",
    re.DOTALL,
)
DEEPEST = 100  # nested blocks: each directive has the words of all blocks it is in


def read(text: str) -> Iterator[Directive]:
    """Every directive, those with a block before what is in it. Raises Unreadable."""
    blocks: list[tuple[str, ...]] = []
    words: list[Word] = []
    for token in tokens(text, _TOKEN, "a quote or an escape has no end"):
        place = token.start()
        if token["word"]:
            words.append(Word(token["word"], place))
        elif token["mark"] == "}":
            if words or not blocks:
                raise unreadable(text, place, "`}` where none belongs")
            blocks.pop()
        elif token["mark"]:
            if not words:
                raise unreadable(text, place, f"`{token['mark']}` without a directive before it")
            yield Directive(words[0], tuple(words[1:]), tuple(blocks))
            if token["mark"] == "{":
                blocks.append(tuple(word.text for word in words))
            words = []
            if len(blocks) > DEEPEST:
                raise unreadable(text, place, f"more than {DEEPEST} blocks within each other")
    if words or blocks:
        raise unreadable(text, len(text), "the file ends within a directive or a block")
