"""What changed between two targets, and whether readings under the old one still count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autotune.target.messages import format_value
from autotune.target.model import Target
from autotune.target.write import written

# Changes under these leave every reading as true as it was. Whatever else changes, the stack, the
# load or the space that was searched is another one.
HARMLESS = (
    ("name",),
    ("budget",),
    ("search",),
    ("try",),
    ("unit",),
    ("timeout",),  # a command's: how long it may take says nothing about what it found
    ("hosts", "*", "user"),  # how to log in
    ("hosts", "*", "port"),
    ("ssh",),
)


@dataclass(frozen=True)
class Difference:
    """One setting that differs: as the files would say it, ``None`` where one does not have it.

    ``breaks``: readings taken under the old target say nothing about the new one.
    """

    path: str
    old: Any
    new: Any
    breaks: bool

    def __str__(self) -> str:
        return f"{self.path}: {_brief(self.old)} → {_brief(self.new)}"


def differences(old: Target, new: Target) -> tuple[Difference, ...]:
    """Every setting that differs, in the order of the new target's file, removed ones last."""
    return tuple(
        Difference(".".join(path), before, after, breaks=not _harmless(path, old, new))
        for path, before, after in _walk((), written(old), written(new))
    )


def _walk(path: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*new, *(key for key in old if key not in new)):
            yield from _walk((*path, key), old.get(key), new.get(key))
    elif old != new or type(old) is not type(new):
        yield path, old, new


def _harmless(path: tuple[str, ...], old: Target, new: Target) -> bool:
    if path == ("load", "max_rate"):
        # Raised, it only lets a peak be found that the old cap hid from no reading there is.
        return new.load.max_rate > old.load.max_rate
    return any(
        len(path) >= len(pattern)
        and all(p in ("*", s) for p, s in zip(pattern, path, strict=False))
        for pattern in HARMLESS
    )


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(_brief(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_brief(item)}' for key, item in value.items())}}}"
    return format_value(value)
