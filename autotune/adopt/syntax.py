"""What a configuration file says and where, so that a value in it can be exchanged and no more.

Directives come in the order of the file, each with the blocks it is in. Whatever is between them –
spaces, comments, line ends – is not looked at: it stays in the text, which the places refer to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Unreadable(ValueError):
    """A file does not have the syntax it should; the message says in which line."""


@dataclass(frozen=True)
class Word:
    """A name or an argument as it is written, quotes included, and where it begins."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Directive:
    """``within`` are the blocks around it, the outermost first, each by its words."""

    name: Word
    arguments: tuple[Word, ...] = ()
    within: tuple[tuple[str, ...], ...] = ()

    @property
    def depth(self) -> int:
        return len(self.within)


Reader = Callable[[str], tuple[Directive, ...]]


def unreadable(text: str, place: int, what: str) -> Unreadable:
    return Unreadable(f"line {text.count(chr(10), 0, place) + 1}: {what}")
