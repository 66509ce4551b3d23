"""A YAML file that remembers where each of its nodes stands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import TargetError

Location = Sequence[str | int]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


@dataclass(frozen=True)
class Document:
    """The tree of a target file and the file it came from."""

    path: Path
    root: Any

    def position(self, location: Location) -> tuple[int, int]:
        """Line and column (from 1) of the key or item at ``location``, or of its nearest parent."""
        node, place = self.root, (1, 1)
        for step in location:
            marks = getattr(node, "lc", None)
            if marks is None or not _holds(node, step):
                break
            line, column = marks.key(step) if isinstance(node, dict) else marks.item(step)
            place, node = (line + 1, column + 1), node[step]
        return place

    def error(self, location: Location, message: str, *, hint: str | None = None) -> TargetError:
        """An error that points at the node at ``location``."""
        line, column = self.position(location)
        return TargetError(f"{self.path}:{line}:{column}: {message}", hint=hint)

    def unknown(self, location: Location, what: str, known: Iterable[str]) -> TargetError:
        """An error for a name that does not exist, with the nearest one that does."""
        names = sorted(known)
        name = str(location[-1])
        meant = nearest(name, names)
        hint = f"did you mean {meant!r}?" if meant else f"known: {', '.join(names)}"
        return self.error(location, f"unknown {what} {name!r}", hint=hint)


def _holds(node: Any, step: str | int) -> bool:
    if isinstance(node, dict):
        return step in node
    return isinstance(node, list) and isinstance(step, int) and step < len(node)


def load(path: Path) -> Document:
    """Read a YAML 1.2 mapping. Raises TargetError (file:line:column) when it is not one."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TargetError(f"{path}:1:1: not a text file: {error.reason}") from error
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        root = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        said = (error.problem or error.context or "not YAML").split("\n", 1)[0]
        raise TargetError(f"{path}:{place}: not valid YAML: {said}") from error
    except YAMLError as error:
        raise TargetError(f"{path}:1:1: not valid YAML: {error}") from error
    if not isinstance(root, dict):
        raise TargetError(
            f"{path}:1:1: a target is a mapping of settings, this is "
            f"{'empty' if root is None else 'a ' + type(root).__name__.replace('Commented', '')}",
            hint="`autotune init` writes a target to start from",
        )
    return Document(path, root)
