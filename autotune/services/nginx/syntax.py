"""The syntax of nginx's files: words ended by ``;``, or by a block in braces."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

from autotune.services.base import Settings, Value
from autotune.services.config_files import Directive, Unreadable, Word, unreadable
from autotune.services.readback import Parser, number

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
    place = 0
    while place < len(text) and len(blocks) <= DEEPEST:
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
            yield Directive(words[0], tuple(words[1:]), tuple(blocks))
            if token["mark"] == "{":
                blocks.append(tuple(word.text for word in words))
            words = []
        place = token.end()
    if words or blocks:
        deep = f"more than {DEEPEST} blocks within each other"
        ends = "the file ends within a directive or a block"
        raise unreadable(text, place, deep if len(blocks) > DEEPEST else ends)


def _value(word: str) -> Value:
    return {"on": True, "off": False}.get(word, number(word))


def directives(names: Mapping[str, str], meant: Callable[[str], Value] = _value) -> Parser:
    """Parser of ``nginx -T``: of a directive that is there more than once, the outermost."""

    def parse(text: str) -> Settings:
        values: dict[str, Value] = {}
        depths: dict[str, int] = {}
        for directive in _printed(text):
            name = names.get(directive.name.text)
            if not name or not directive.arguments:
                continue
            if directive.depth < depths.get(name, directive.depth + 1):
                depths[name] = directive.depth
                values[name] = meant(directive.arguments[0].text.strip("\"'"))
        return values

    return parse


def _printed(text: str) -> Iterator[Directive]:
    """Up to what nginx says of the configuration behind it, which is none."""
    with contextlib.suppress(Unreadable):
        yield from _read(text)
