"""The syntax of nginx's files: words ended by ``;``, or by a block in braces."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator

from autotune.services.config_files import Directive, Unreadable, Word, tokens, unreadable

# nginx's own lexis: a comment begins where a word could, and within a word `#`, `}` and quotes are
# letters like any other, as is the brace of `${`; other braces that are no block's have to be quoted.
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>\#[^\n]*)|(?P<mark>[;{}])"""
    r"""|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
    r"""|(?:\\.|\$\{|[^\s;{}\\"'])(?:\\.|\$\{|[^\s;{\\])*)""",
    re.DOTALL,
)
DEEPEST = 100  # blocks: each directive has all it is in


def read(text: str) -> tuple[Directive, ...]:
    """Every directive, those with a block before what is in it. Raises Unreadable."""
    return tuple(_read(text))


def _read(text: str) -> Iterator[Directive]:
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


def outermost(text: str, names: Collection[str]) -> dict[str, str]:
    """What ``nginx -T`` prints of these directives, without quotes: of one that is there more than once,
    the outermost."""
    printed: dict[str, tuple[int, str]] = {}
    with contextlib.suppress(Unreadable):  # what it says behind the configuration is none
        for directive in _read(text):
            name, depth = directive.name.text, directive.depth
            if name in names and directive.arguments and depth < printed.get(name, (depth + 1,))[0]:
                printed[name] = depth, directive.arguments[0].text.strip("\"'")
    return {name: word for name, (_, word) in printed.items()}
