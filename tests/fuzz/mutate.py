"""Damaged variants of recorded inputs, as other programs, disks or users may produce them.

The same random generator produces the same inputs. Text is damaged at any position. JSON is also
changed as a document: other values, missing keys, deep nesting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

# Numbers that parsers often mishandle.
NUMBERS = ("0", "-1", "1", "007", "1_000", "0x10", "1e5", "1e999", "-1e999", "inf", "-inf", "nan",
           "Infinity", "NaN", ".", "1.2.3", "1.", "5" * 25, "9" * 400, "9" * 5000, "1e-400",
           "18446744073709551616", "²", "٣", "１", "2.5", "-0", "+3", "")  # fmt: skip
WORDS = ("\0", "\x1b[2J", "\r", "\n", "\r\n", "\t", " ", "\u2028", "\ufeff", "\x85", '"',
         "'", "\\", "{", "}", "[", "]", "<", ">", "=", ":", ",", ";", "#", "%", "|", "$(x)", "{{ 7 }}",
         "{% x %}", "../../x", "/", "-", "true", "null", "yes", "max", "[" * 3000, "(" * 3000,
         '{"a":' * 3000, "a" * 5000, "${" * 500)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**25, 10**400, 0.5, -1.5, 1e308,
    float("inf"), float("-inf"), float("nan"), "", "x", "1", "-1", "²", "\0", "\ud800", "\x1b[2J",
    "inf", "9" * 5000, "x\ny: z", "../../x", [], {}, [[]], [1], ["x"], {"x": 1}, {"": None}, [None],
)  # fmt: skip


def text(random: Random, seeds: Sequence[str]) -> str:
    """Return one of ``seeds`` with up to four changes, or sometimes none."""
    damaged = random.choice(seeds)
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        damaged = random.choice(_DAMAGES)(random, damaged, seeds)
    return damaged


def document(random: Random, seeds: Sequence[str]) -> str:
    """Return JSON with a few values changed; in one of four cases, it is damaged as text instead."""
    if random.random() < 0.25:
        return text(random, seeds)
    try:
        root = json.loads(random.choice(seeds))
    except (ValueError, RecursionError):  # it is already damaged
        return text(random, seeds)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        root = _exchanged(random, root)
    if random.random() < 0.02:
        return '{"a":' * 100_000
    return _json(root)


def lines(random: Random, seeds: Sequence[str]) -> str:
    """Return a journal with one or two lines changed as documents, or damaged as text."""
    if random.random() < 0.2:
        return text(random, seeds)
    whole = random.choice(seeds).splitlines()
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(whole))
        whole[at] = document(random, [whole[at]]).replace("\n", " ")
    if random.random() < 0.2:
        whole.insert(random.randrange(len(whole)), random.choice(whole))
    return "\n".join(whole) + "\n"


def _json(root: object) -> str:
    try:
        return json.dumps(root)
    except ValueError:  # a number with more digits than Python converts to text
        return "9" * 5000


def _exchanged(random: Random, root: Any) -> Any:
    if not isinstance(root, dict | list) or not root or random.random() < 0.02:
        return random.choice(VALUES)
    key = random.choice(list(root) if isinstance(root, dict) else range(len(root)))
    if isinstance(root[key], dict | list) and random.random() < 0.8:
        changed = _exchanged(random, root[key])
    else:
        changed = random.choice(VALUES)
    other = dict(root) if isinstance(root, dict) else list(root)
    other[key] = changed
    if random.random() < 0.15:
        del other[key]
    return other


def _cut(random: Random, old: str, _: Sequence[str]) -> str:
    return old[: random.randrange(len(old) + 1)]


def _removed(random: Random, old: str, _: Sequence[str]) -> str:
    start = random.randrange(len(old) + 1)
    return old[:start] + old[start + random.choice((1, 2, 5, 50)) :]


def _inserted(random: Random, old: str, _: Sequence[str]) -> str:
    at = random.randrange(len(old) + 1)
    return old[:at] + random.choice(random.choice((NUMBERS, WORDS))) + old[at:]


def _doubled(random: Random, old: str, _: Sequence[str]) -> str:
    start = random.randrange(len(old) + 1)
    piece = old[start : start + random.choice((1, 10, 100))]
    return old[:start] + piece * random.choice((2, 2, 3, 20)) + old[start:]


def _joined(random: Random, old: str, seeds: Sequence[str]) -> str:
    other = random.choice(seeds)
    return old[: random.randrange(len(old) + 1)] + other[random.randrange(len(other) + 1) :]


def _other_number(random: Random, old: str, _: Sequence[str]) -> str:
    """Return the text with a number replaced."""
    at = random.randrange(len(old) + 1)
    digits = [i for i in range(at, min(len(old), at + 300)) if old[i].isdigit()][:1]
    if not digits:
        return _inserted(random, old, _)
    start = end = digits[0]
    while end < len(old) and (old[end].isdigit() or old[end] == "."):
        end += 1
    return old[:start] + random.choice(NUMBERS) + old[end:]


def _other_word(random: Random, old: str, _: Sequence[str]) -> str:
    words = old.split(" ")
    words[random.randrange(len(words))] = random.choice(random.choice((NUMBERS, WORDS)))
    return " ".join(words)


_DAMAGES: tuple[Callable[[Random, str, Sequence[str]], str], ...] = (
    _cut, _removed, _inserted, _doubled, _joined, _other_number, _other_number, _other_number,
    _other_word,
)  # fmt: skip
