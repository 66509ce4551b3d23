"""Studies on disk, for reading: which there are, which one is meant, what it holds.

Nothing here writes or takes a lock: a study may be read while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune import foreign_files
from autotune.errors import AutotuneError
from autotune.report.trials import ReadingCounts, count_readings
from autotune.services.registry import declare
from autotune.strict import parse_json
from autotune.study import journal
from autotune.study.directory import EVENTS, WORKERS, holder, is_held
from autotune.study.records import State, replay
from autotune.study.shapes import CALL
from autotune.study.store import READINGS, readings_of
from autotune.target.model import Target
from autotune.target.read import TARGET, read_recorded


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

    @property
    def origin(self) -> dict[str, Any]:
        """Versions of autotune and of programs, and dates: ``null`` for what was not recorded."""
        begun, session = self.records_of("study")[0], self.records_of("session")[-1]
        return {
            "autotune": begun.get("autotune"),
            "versions": dict(sorted(session.get("versions", {}).items())),
            "started": begun.get("started"),
            "concluded": self.records_of("verdict")[-1].get("at"),
        }

    def records_of(self, event: str) -> list[Mapping[str, Any]]:
        """The records of a kind; an empty one where there are none."""
        return [record for record in self.records if record["event"] == event] or [{}]

    @cached_property
    def readings(self) -> tuple[Mapping[str, Any], ...]:
        """Every reading of load, in the order taken. Raises AutotuneError."""
        return tuple(record for record in self._recorded if record.get("purpose") != CALL)

    @cached_property
    def calls(self) -> tuple[Mapping[str, Any], ...]:
        """Every call of a benchmark command, in order. Raises AutotuneError."""
        return tuple(record for record in self._recorded if record.get("purpose") == CALL)

    @cached_property
    def _recorded(self) -> tuple[Mapping[str, Any], ...]:
        with _readable(self.directory / READINGS):
            return tuple(readings_of(self.directory))

    @cached_property
    def counts(self) -> dict[int, ReadingCounts]:
        return count_readings(self._recorded)

    @property
    def holder(self) -> str | None:
        """Who is running it right now, in words; for a copy, who was when the copy was made."""
        if foreign_files.exists(self.directory, WORKERS):
            return ", ".join(_workers(self.directory)) or None
        path = self.directory / "lock"
        return (holder(path) or "another process") if is_held(path) else None


def open_study(directory: Path) -> Study:
    """Read a study. Raises AutotuneError when it is damaged, TargetError for its target."""
    records = tuple(_records(directory / EVENTS))
    if not records:
        raise AutotuneError(
            f"study {directory.name} was stopped before anything was done",
            hint="it holds nothing: its directory can be removed",
        )
    if not foreign_files.exists(directory, TARGET):
        raise AutotuneError(
            f"study {directory.name} has lost its target.yaml: the study is damaged",
            hint=journal.DAMAGED,
        )
    is_held(directory / "lock")  # raises here for what is not a file, not while a view is drawn
    target = read_recorded(directory).target
    declare(target.services)
    return Study(directory, target, records, replay(records))


def _workers(directory: Path) -> tuple[str, ...]:
    """Who was measuring when a copy of a shared study was made. Raises AutotuneError."""
    content = foreign_files.read_bytes(directory, WORKERS, foreign_files.SMALL)
    with suppress(ValueError):
        workers = parse_json(content)
        if isinstance(workers, list) and all(isinstance(worker, str) for worker in workers):
            return tuple(workers)
    raise AutotuneError(
        f"{directory / WORKERS} is not a list of workers: the study is damaged",
        hint=journal.DAMAGED,
    )


def _records(path: Path) -> list[dict[str, Any]]:
    with _readable(path):
        return list(journal.read(path))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AutotuneError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint=journal.DAMAGED
        ) from error
