"""Studies on disk, for reading: which there are, which one is meant, what it holds.

Nothing here writes or takes a lock: a study may be read while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.report.tally import Tally, tally
from autotune.study import journal, lock
from autotune.study.directory import EVENTS, ROOT, find, names
from autotune.study.records import State, replay
from autotune.study.store import CALL
from autotune.target.model import Target
from autotune.target.read import read

__all__ = ["EVENTS", "Listed", "Study", "find", "listing", "names", "open_study"]


@dataclass(frozen=True)
class Study:
    """A study as it stood when it was opened. ``records`` are those of its journal."""

    directory: Path
    target: Target
    records: tuple[Mapping[str, Any], ...]
    state: State

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def source(self) -> Path:
        """The target file that it was begun with, which may be gone."""
        return Path(str(self.records[0]["source"]))

    @cached_property
    def readings(self) -> tuple[Mapping[str, Any], ...]:
        """Every reading of load, in the order taken. Raises AutotuneError."""
        return tuple(record for record in self._taken if record.get("purpose") != CALL)

    @cached_property
    def calls(self) -> tuple[Mapping[str, Any], ...]:
        """Every call of a benchmark command, in order. Raises AutotuneError."""
        return tuple(record for record in self._taken if record.get("purpose") == CALL)

    @cached_property
    def _taken(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(_records(self.directory / "readings.jsonl"))

    @cached_property
    def tallies(self) -> dict[int, Tally]:
        return tally(self._taken)

    @property
    def holder(self) -> str | None:
        """Who is running it right now, in words."""
        path = self.directory / "lock"
        return (lock.holder(path) or "another process") if lock.is_held(path) else None


@dataclass(frozen=True)
class Listed:
    """A line of the list of studies. ``verdict`` is ``None`` while there is none."""

    name: str
    started: str | None
    trials: int
    verdict: str | None
    running: bool


def open_study(directory: Path) -> Study:
    """Read a study. Raises AutotuneError when it is damaged, TargetError for its target."""
    records = tuple(_records(directory / EVENTS))
    if not records:
        raise AutotuneError(
            f"study {directory.name} was stopped before anything was done",
            hint="start it again with `autotune run TARGET`",
        )
    if not (directory / "target.yaml").exists():
        raise AutotuneError(
            f"study {directory.name} has lost its target.yaml: the study is damaged",
            hint="put the file back from a copy, or move the study's directory away",
        )
    return Study(directory, read(directory / "target.yaml").target, records, replay(records))


def listing(root: Path = ROOT) -> tuple[Listed, ...]:
    """The studies under ``root``, the newest first. Raises AutotuneError for a damaged one."""
    found = []
    for name in names(root):
        state = replay(_records(root / name / EVENTS))
        verdict = state.verdict["verdict"] if state.verdict else None
        running = lock.is_held(root / name / "lock")
        found.append(Listed(name, state.started, len(state.finished()), verdict, running))
    return tuple(sorted(found, key=lambda study: study.started or "", reverse=True))


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        return list(journal.read(path))
    except OSError as error:
        raise AutotuneError(f"{path} cannot be read: {error.strerror}") from error
