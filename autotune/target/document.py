"""A YAML file that remembers where each of its nodes stands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import TargetError

Location = Sequence[str | int]
Place = tuple[int, int]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


@dataclass(frozen=True)
class Document:
    """The tree of a target file, as plain values, and the file it came from.

    ``places`` has the line and column (from 1) of each key and each item of a list.
    """

    path: Path
    root: dict[str, Any]
    places: Mapping[tuple[str | int, ...], Place]

    def position(self, location: Location) -> Place:
        """Line and column (from 1) of the key or item at ``location``, or of its nearest parent."""
        steps = tuple(location)
        while steps and steps not in self.places:
            steps = steps[:-1]
        return self.places[steps] if steps else (1, 1)

    def error(self, location: Location, message: str, *, hint: str | None = None) -> TargetError:
        """An error that points at the node at ``location``."""
        line, column = self.position(location)
        return TargetError(f"{self.path}:{line}:{column}: {message}", hint=hint)

    def unknown(self, location: Location, what: str, known: Iterable[str]) -> TargetError:
        """An error for a name that does not exist, with the nearest one that does."""
        name = str(location[-1])
        return self.error(location, f"unknown {what} {name!r}", hint=instead(name, sorted(known)))


def instead(name: str, known: Iterable[str]) -> str:
    """The hint for a name that does not exist: the nearest one that does, or all of them."""
    names = list(known)
    meant = nearest(name, names)
    return f"did you mean {meant!r}?" if meant else f"there is: {', '.join(names) or 'none'}"
