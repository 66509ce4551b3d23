"""Where studies are: which there are in a directory, and which one is meant."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.target.messages import nearest

ROOT = Path("studies")
EVENTS = "events.jsonl"


def find(name: str, root: Path = ROOT) -> Path:
    """The directory of the study called ``name`` (under ``root``) or at that path.

    Raises AutotuneError with the nearest name, or with the names there are.
    """
    for directory in (root / name, Path(name)):
        if (directory / EVENTS).is_file():
            return directory.resolve()
    raise AutotuneError(f"there is no study {name!r}", hint=_hint(name, names(root)))


def new_directory(root: Path, name: str) -> Path:
    """``root/name``, or ``name-2``, ``name-3`` … where studies of that name exist already."""
    for number in itertools.count(1):
        directory = root / (name if number == 1 else f"{name}-{number}")
        if not directory.exists():
            return directory
    raise AssertionError("counting never ends")


def names(root: Path = ROOT) -> tuple[str, ...]:
    """Names of the studies under ``root``."""
    return tuple(sorted(path.parent.name for path in root.glob(f"*/{EVENTS}")))


def _hint(name: str, studies: Iterable[str]) -> str:
    listed = list(studies)
    if not listed:
        return "`autotune run TARGET` makes one"
    nearest_name = nearest(Path(name).name, listed)
    return f"did you mean {nearest_name!r}?" if nearest_name else f"there is: {', '.join(listed)}"
