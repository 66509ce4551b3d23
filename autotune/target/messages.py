"""How messages word values, names and mistakes of YAML: short, and in the words of the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError, StreamMark

LONGEST = 40  # characters of a value

# What the parser's message contains → what to say, what to do. The first that fits is said.
WORDS: tuple[tuple[str, str, str | None], ...] = (
    (r"character '\\t'", "a tab where YAML wants spaces", "indent with spaces"),
    (
        r"character '(?P<it>.)' that cannot start",
        "a value cannot start with '{it}'",
        "put it in quotes",
    ),
    (
        r"mapping values are not allowed",
        "a ':' that does not belong here",
        "check the indentation of this line and the one above, or quote text that has ': ' in it",
    ),
    (
        r"expected <block end>",
        "indented differently from the lines it belongs with",
        "start it in the same column as the keys or items beside it",
    ),
    (r"expected ',' or '(?P<it>.)'", "a ',' or the closing '{it}' is missing", None),
    (r"expected the node content", "a value is missing before this", None),
    (
        r"expected '<document start>'",
        "this does not go on from what is above it",
        "a target is one setting a line, such as `name: shop`",
    ),
    (r"unexpected end of stream", "a quote that is never closed", None),
    (r"could not find expected ':'", "a key without its ':'", None),
    (r"undefined alias '(?P<it>.*)'", "'*{it}' refers to an anchor that is not there", None),
    (r"another document", "a second target in the same file", "one target a file"),
    (r"unknown escape character", "an unknown escape in a quoted text", "use single quotes"),
)
# Where these begin, not where the parser gave up, is what has to be mended.
BEGINS_EARLIER = ("quoted scalar", "simple key", "flow mapping", "flow sequence")


def same(one: object, other: object) -> bool:
    """Whether two values are the same in a configuration file, where 1 is not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def format_value(value: object) -> str:
    """``'many'``, ``true``, ``12``, ``nothing``, ``a list``, ``a mapping``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST else value[: LONGEST - 1] + "…")
    if isinstance(value, int | float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(str(value), str(value))
    return "a mapping" if isinstance(value, dict) else "a list"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def instead(name: str, known: Iterable[str]) -> str:
    """The hint for a name that does not exist: the nearest one that does, or all of them."""
    names = list(known)
    if not names:
        return "there are none"
    meant = nearest(name, names)
    return f"did you mean {meant!r}?" if meant else f"expected one of: {', '.join(names)}"


def explain_yaml_error(error: MarkedYAMLError) -> tuple[StreamMark | None, str, str | None]:
    """Where the mistake is, what it is, and what to do about it."""
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    begins = error.context_mark
    if begins and mark and begins.line < mark.line and any(c in context for c in BEGINS_EARLIER):
        mark = begins
    for pattern, words, hint in WORDS:
        if found := re.search(pattern, problem):
            return mark, f"not valid YAML: {words.format(**found.groupdict())}", hint
    said = (problem or context).split("\n", 1)[0]
    return mark, f"not valid YAML: {said}", None
