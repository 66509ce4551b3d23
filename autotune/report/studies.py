"""Read-only access to studies on disk.

Nothing here writes or takes a lock, so a running study can be read.
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
    """A study as it was when opened. ``records`` are the records of its journal."""

    directory: Path
    target: Target
    records: tuple[Mapping[str, Any], ...]
    state: State

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def source(self) -> Path:
        """The target file that the study started from; it may no longer exist."""
        return Path(str(self.records[0]["source"]))

    @property
    def origin(self) -> dict[str, Any]:
        """Versions of autotune and its programs, and dates; ``None`` if not recorded."""
        begun, session = self.records_of("study")[0], self.records_of("session")[-1]
        return {
            "autotune": begun.get("autotune"),
            "versions": dict(sorted(session.get("versions", {}).items())),
            "started": begun.get("started"),
            "concluded": self.records_of("verdict")[-1].get("at"),
        }

    def records_of(self, event: str) -> list[Mapping[str, Any]]:
        """Return the records of one kind, or one empty record if there are none."""
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
        """The process that runs the study now, or the workers when a copy was made."""
        if foreign_files.exists(self.directory, WORKERS):
            return ", ".join(_workers(self.directory)) or None
        path = self.directory / "lock"
        return (holder(path) or "another process") if is_held(path) else None


def open_study(directory: Path) -> Study:
    """Read a study. Raises AutotuneError if it is damaged, TargetError for a bad target."""
    records = tuple(_records(directory / EVENTS))
    if not records:
        raise AutotuneError(
            f"study {directory.name} stopped before it recorded anything",
            hint="the study is empty: you can delete its directory",
        )
    if not foreign_files.exists(directory, TARGET):
        raise AutotuneError(
            f"study {directory.name} is damaged: its target.yaml is missing",
            hint=journal.DAMAGED,
        )
    is_held(directory / "lock")  # raises now if the lock is not a file, before a view is drawn
    target = read_recorded(directory).target
    declare(target.services)
    return Study(directory, target, records, replay(records))


def _workers(directory: Path) -> tuple[str, ...]:
    """Return the workers that were measuring when a study was copied. Raises AutotuneError."""
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
