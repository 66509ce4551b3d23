"""Inputs with a wrong structure: misplaced tokens, lines, sections and documents.

`mutate` damages single characters, which most parsers refuse immediately. These inputs look
plausible: directives are swapped, repeated, nested, truncated and taken from other files. Quotes,
heredocs and blocks are not closed. Numbers have other units.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

_TOKEN = re.compile(
    r"""\n|[ \t]+|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_][\w.-]*|\d[\d.]*[A-Za-z%/]*|."""
)
_AMOUNT = re.compile(r"\d[\d.]*[A-Za-z%/]*")
# Bounded, because each may start anywhere, and creating an input must not take longer than parsing
# it.
_BLOCK = re.compile(r"(?m)^[^\n{}]{0,200}\{[^{}]{0,2000}\}\n?")
_SECTION = re.compile(
    r"(?m)^[ \t]*(?:\[[^\]\n]*\]|<[^>\n]*>|[a-z]+(?: \w+)?:?)[ \t]*\n(?:.+\n?){0,60}"
)
NUMBERS = ("0", "1", "-1", "2", "16", "100", "1024", "4294967296", "0.5", "1e3", "007", "")
UNITS = (
    "",
    "k",
    "K",
    "m",
    "M",
    "MB",
    "g",
    "G",
    "s",
    "ms",
    "us",
    "min",
    "h",
    "d",
    "%",
    "/s",
    "kB",
    "KiB",
)
PAIRS = (
    ('"', '"'), ("'", "'"), ("{", "}"), ("[", "]"), ("(", ")"), ("<", ">"), ("${", "}"), ("{{ ", " }}"),
    ("{% if 1 %}", "{% endif %}"), ("<<EOF\n", "\nEOF\n"), ("<<~RUBY\n", "\nRUBY\n"), ('"""', '"""'),
    ("/*", "*/"), ("=begin\n", "\n=end\n"), ("<IfModule x>\n", "\n</IfModule>\n"), ("# ", "\n"),
    ("$(", ")"), ("http {\n", "\n}\n"), ("[x]\n", "\n"),
)  # fmt: skip
# Text between lines and words: line separators of some programs, and text that autotune writes.
MARKS = (
    "\\\n", ";", ",", "=", " = ", ":", "\r\n", "\r", "\x1c", "\x1d", "\x85", "\u2028", "\x0b", "\x0c",
    "\0", "\ufeff", "autotune-masked-1-of-2", "autotune-masked-0-of-0", "include *;\n", "!include x\n",
    "{% raw %}", "-of-1",
)  # fmt: skip
_LONGEST = 40_000  # maximum number of characters in an input
_DEEPEST = 60  # maximum number of levels that one change adds


def text(random: Random, seeds: Sequence[str]) -> str:
    """Return one of ``seeds`` with up to five changes of its structure."""
    damaged = random.choice(seeds)
    for _ in range(random.choice((1, 1, 2, 2, 3, 5))):
        damaged = random.choice(_DAMAGES)(random, damaged, seeds)[:_LONGEST]
    return damaged


def document(random: Random, seeds: Sequence[str]) -> str:
    """Return JSON with parts swapped, nested, repeated or taken from another document."""
    if random.random() < 0.1:
        return text(random, seeds)
    try:
        roots = [json.loads(random.choice(seeds)) for _ in range(2)]
        for _ in range(random.choice((1, 1, 2, 3))):
            roots[0] = _replanted(random, *roots)
        return json.dumps(roots[0])
    except (ValueError, RecursionError):  # it is already damaged
        return text(random, seeds)


def lines(random: Random, seeds: Sequence[str]) -> str:
    """Return a journal whose records are swapped, repeated, removed, taken from another journal, or
    damaged.
    """
    records = random.choice(seeds).splitlines()
    others = random.choice(seeds).splitlines()
    for _ in range(random.choice((1, 2, 3))):
        at, other = random.randrange(len(records)), random.randrange(len(records))
        match random.randrange(6):
            case 0:
                records[at], records[other] = records[other], records[at]
            case 1:
                records[at:at] = [records[other]] * random.choice((1, 2, 30))
            case 2:
                records = records[:at] + records[at + 1 :] or records
            case 3:
                records[at:at] = random.choices(others, k=random.choice((1, 3)))
            case 4:
                records[at] = document(random, [records[at], records[other]]).replace("\n", " ")
            case _:
                records = records[: at + 1]
    return "\n".join(records) + random.choice(("\n", "\n", ""))


def _replanted(random: Random, root: Any, other: Any) -> Any:
    parts, grafts = [*_parts(root)], [part for part, _ in _parts(other)] or [other]
    if not parts:
        return random.choice(grafts)
    _, place = random.choice(parts)
    holder, key = place
    match random.randrange(5):
        case 0:
            holder[key] = random.choice(grafts)
        case 1:
            (theirs, name), mine = random.choice(parts)[1], holder[key]
            holder[key], theirs[name] = theirs[name], mine
        case 2:
            for _ in range(random.choice((1, 3, _DEEPEST))):
                holder[key] = random.choice(([holder[key]], {str(key): holder[key]}))
        case 3:
            del holder[key]
        case _:
            holder[key] = [holder[key]] * random.choice((2, 20))
    return root if not _is_cyclic(root) else other


def _parts(root: Any, deep: int = 0) -> Any:
    if isinstance(root, dict | list) and deep < 12:
        for key in [*root] if isinstance(root, dict) else [*range(len(root))]:
            yield root[key], (root, key)
            yield from _parts(root[key], deep + 1)


def _is_cyclic(root: Any) -> bool:
    try:
        json.dumps(root)
    except (ValueError, RecursionError):
        return True
    return False


def _tokens(old: str) -> list[str]:
    return _TOKEN.findall(old) or [""]


def _piece(random: Random, old: str) -> tuple[int, int]:
    """Return the position of a random token, line, block or section of a text."""
    kind = random.randrange(4)
    if kind == 0:
        places = [m.span() for m in _TOKEN.finditer(old)]
    elif kind == 1:
        places = [m.span() for m in re.finditer(r"[^\n]*\n?", old) if m[0]]
    else:
        places = [m.span() for m in (_BLOCK if kind == 2 else _SECTION).finditer(old)]
    return random.choice(places) if places else (0, len(old))


def _swapped(random: Random, old: str, _: Sequence[str]) -> str:
    (a, b), (c, d) = sorted((_piece(random, old), _piece(random, old)))
    if c < b:
        return old
    return old[:a] + old[c:d] + old[b:c] + old[a:b] + old[d:]


def _repeated(random: Random, old: str, _: Sequence[str]) -> str:
    start, end = _piece(random, old)
    return old[:end] + old[start:end] * random.choice((1, 2, 3, 40)) + old[end:]


def _nested(random: Random, old: str, _: Sequence[str]) -> str:
    start, end = _piece(random, old)
    times = random.choice((1, 1, 2, 5, _DEEPEST))
    before, after = random.choice(PAIRS)
    return old[:start] + before * times + old[start:end] + after * times + old[end:]


def _unended(random: Random, old: str, _: Sequence[str]) -> str:
    """Return an opening or closing mark of a quote, block or heredoc without its counterpart."""
    at = random.choice(_piece(random, old))
    return old[:at] + random.choice(random.choice(PAIRS)) + old[at:]


def _truncated(random: Random, old: str, _: Sequence[str]) -> str:
    start, end = _piece(random, old)
    return old[start:] if random.random() < 0.3 else old[:end]


def _spliced(random: Random, old: str, seeds: Sequence[str]) -> str:
    other = random.choice(seeds)
    at, (start, end) = random.choice(_piece(random, old)), _piece(random, other)
    return old[:at] + other[start:end] + old[at:]


def _removed(random: Random, old: str, _: Sequence[str]) -> str:
    start, end = _piece(random, old)
    return old[:start] + old[end:]


def _counted(random: Random, old: str, _: Sequence[str]) -> str:
    """Return another amount, or the amount with another unit."""
    amounts = [m.span() for m in _AMOUNT.finditer(old)]
    start, end = random.choice(amounts) if amounts else (0, 0)
    number = random.choice((*NUMBERS, old[start:end].rstrip("abcdefghijklmnopqrstuvwxyzKMGTB%/")))
    return old[:start] + number + random.choice(UNITS) + old[end:]


def _renamed(random: Random, old: str, seeds: Sequence[str]) -> str:
    mine, theirs = _tokens(old), _tokens(random.choice(seeds))
    mine[random.randrange(len(mine))] = random.choice(theirs)
    return "".join(mine)


def _marked(random: Random, old: str, _: Sequence[str]) -> str:
    at = random.choice(_piece(random, old))
    return old[:at] + random.choice(MARKS) + old[at:]


_DAMAGES: tuple[Callable[[Random, str, Sequence[str]], str], ...] = (
    _swapped, _repeated, _nested, _unended, _truncated, _spliced, _removed, _counted, _counted, _renamed,
    _marked,
)  # fmt: skip
