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
from autotune.report.trial_outcomes import ReadingCounts, count_readings
from autotune.services.registry import add_declared
from autotune.strict_parsing import parse_json
from autotune.study import journal
from autotune.study.directory import EVENTS_FILE, WORKERS_FILE, describe_lock_holder, is_locked
from autotune.study.record_shapes import CALL_PURPOSE
from autotune.study.study_state import State, replay_records
from autotune.study.study_store import READINGS_FILE, load_readings
from autotune.target.model import Target
from autotune.target.read_target import TARGET_FILE_NAME, read_recorded_target


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
    def target_path(self) -> Path:
        """The target file that the study started from; it may no longer exist."""
        return Path(str(self.records[0]["source"]))

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions of autotune and its programs, and dates; ``None`` if not recorded."""
        first_record, session = self.list_records("study")[0], self.list_records("session")[-1]
        return {
            "autotune": first_record.get("autotune"),
            "versions": dict(sorted(session.get("versions", {}).items())),
            "started": first_record.get("started"),
            "concluded": self.list_records("verdict")[-1].get("at"),
        }

    def list_records(self, event: str) -> list[Mapping[str, Any]]:
        """Return the records of one kind, or one empty record if there are none."""
        return [record for record in self.records if record["event"] == event] or [{}]

    @cached_property
    def readings(self) -> tuple[Mapping[str, Any], ...]:
        """Every reading of load, in the order taken. Raises AutotuneError."""
        return tuple(
            record for record in self._all_readings if record.get("purpose") != CALL_PURPOSE
        )

    @cached_property
    def command_calls(self) -> tuple[Mapping[str, Any], ...]:
        """Every call of a benchmark command, in order. Raises AutotuneError."""
        return tuple(
            record for record in self._all_readings if record.get("purpose") == CALL_PURPOSE
        )

    @cached_property
    def _all_readings(self) -> tuple[Mapping[str, Any], ...]:
        with _wrap_read_errors(self.directory / READINGS_FILE):
            return tuple(load_readings(self.directory))

    @cached_property
    def reading_counts(self) -> dict[int, ReadingCounts]:
        return count_readings(self._all_readings)

    @property
    def running_process(self) -> str | None:
        """The process that runs the study now, or the workers when a copy was made."""
        if foreign_files.exists(self.directory, WORKERS_FILE):
            return ", ".join(_read_workers(self.directory)) or None
        path = self.directory / "lock"
        return (describe_lock_holder(path) or "another process") if is_locked(path) else None


def open_study(directory: Path) -> Study:
    """Read a study. Raises AutotuneError if it is damaged, TargetError for a bad target."""
    records = tuple(_read_events(directory / EVENTS_FILE))
    if not records:
        raise AutotuneError(
            f"study {directory.name} stopped before it recorded anything",
            hint="the study is empty: you can delete its directory",
        )
    if not foreign_files.exists(directory, TARGET_FILE_NAME):
        raise AutotuneError(
            f"study {directory.name} is damaged: its target.yaml is missing",
            hint=journal.DAMAGED_HINT,
        )
    is_locked(directory / "lock")  # raises now if the lock is not a file, before a view is drawn
    target = read_recorded_target(directory).target
    add_declared(target.services)
    return Study(directory, target, records, replay_records(records))


def _read_workers(directory: Path) -> tuple[str, ...]:
    """Return the workers that were measuring when a study was copied. Raises AutotuneError."""
    content = foreign_files.read_bytes(directory, WORKERS_FILE, foreign_files.MAX_SMALL_FILE_BYTES)
    with suppress(ValueError):
        workers = parse_json(content)
        if isinstance(workers, list) and all(isinstance(worker, str) for worker in workers):
            return tuple(workers)
    raise AutotuneError(
        f"{directory / WORKERS_FILE} is not a list of workers: the study is damaged",
        hint=journal.DAMAGED_HINT,
    )


def _read_events(path: Path) -> list[dict[str, Any]]:
    with _wrap_read_errors(path):
        return list(journal.read_records(path))


@contextmanager
def _wrap_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AutotuneError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint=journal.DAMAGED_HINT,
        ) from error
