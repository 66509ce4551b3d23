"""Texts in Markdown pages, and in the templates of the report and the exports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"\s*(?:```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_NO_PROSE = re.compile(r"\s*(?:[#|!<]|\[[^\]]+\]:|$)")
_BLOCK_TAG = re.compile(
    r"</?(?:p|li|ul|ol|h\d|td|th|tr|table|thead|tbody|div|section|main|header|footer|nav|details"
    r"|summary|figure|figcaption|dt|dd|dl|label|button|caption|option|select|svg|title|pre)\b[^>]*>"
)
_HIDDEN = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->|\{#.*?#\}", re.S)
_STATEMENT = re.compile(r"\{%.*?%\}", re.S)
_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.S)
_TAG = re.compile(r"<[^>]*>")
_QUOTED = re.compile(r"\"([^\"$]*[a-z]{2,} [a-z]{2,}[^\"]*)\"|'([^']*[a-z]{2,} [a-z]{2,}[^']*)'")
_THREE_WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")


@dataclass(frozen=True)
class Block:
    """A paragraph or a list item, with the number of its first line."""

    line: int
    text: str
    is_item: bool = False


def markdown(source: str) -> Iterator[Block]:
    """Yield the paragraphs and list items of a Markdown page, without headings, tables and code."""
    first, lines, is_item, in_code = 0, list[str](), False, False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence, item = bool(_FENCE.match(line)), _ITEM.match(line)
        if in_code or is_fence or item or _NO_PROSE.match(line):
            if lines:
                yield Block(first, " ".join(lines), is_item)
            lines = []
        in_code ^= is_fence
        if in_code or is_fence or _NO_PROSE.match(line):
            continue
        if not lines:
            first, is_item = number, bool(item)
        lines.append(line[item.end() :].strip() if item else line.strip())


def template(name: str, source: str) -> Iterator[Block]:
    """Yield the texts of a template, which produces a page, a Markdown file or a script."""
    source = _HIDDEN.sub(_lines_kept, source)
    if ".html" in name:
        yield from _html(source)
    elif ".md" in name:
        yield from markdown(_EXPRESSION.sub("{…}", _STATEMENT.sub("", source)))
    else:
        yield from _script(source)


def _lines_kept(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _html(source: str) -> Iterator[Block]:
    source = _STATEMENT.sub(lambda match: "\0" + _lines_kept(match), source)
    source = _EXPRESSION.sub(lambda match: "{…}" + _lines_kept(match), source)
    source = _BLOCK_TAG.sub(lambda match: "\0" + _lines_kept(match), source)
    line = 1
    for part in source.split("\0"):
        text = " ".join(_TAG.sub("", part).split())
        if _THREE_WORDS.search(text):
            yield Block(line + len(part) - len(part.lstrip("\n")), text)
        line += part.count("\n")


def _script(source: str) -> Iterator[Block]:
    """Yield the comments and the quoted sentences of a script."""
    for number, line in enumerate(source.splitlines(), 1):
        stripped = _EXPRESSION.sub("{…}", _STATEMENT.sub("", line)).strip()
        if stripped.startswith(("# ", "; ", "// ")):
            if _THREE_WORDS.search(stripped):
                yield Block(number, stripped.lstrip("#;/ "))
            continue
        for match in _QUOTED.finditer(stripped):
            text = match[1] or match[2]
            if _THREE_WORDS.search(text):
                yield Block(number, text)
