"""Read-only access to studies on disk.

This module writes nothing and takes no lock, so that a running study can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from autotune import foreign_files
from autotune.errors import AutotuneError
from autotune.report.trial_outcomes import ReadingCounts, count_readings
from autotune.strict_parsing import parse_json
from autotune.study import journal
from autotune.study.directory import EVENTS_FILE, describe_lock_holder, is_locked
from autotune.study.journal_records import SessionStart, StudyStart
from autotune.study.reading_records import (
    READINGS_FILE,
    RecordedCall,
    RecordedReading,
    load_reading_records,
)
from autotune.study.state_replay import decode_valid_record, replay_records
from autotune.study.study_state import State
from autotune.study_argument import (
    WORKERS_FILE,
    find_studies_option,
    format_study_argument,
)
from autotune.target.model import Target
from autotune.target.read_target import TARGET_FILE_NAME, read_recorded_target


@dataclass(frozen=True)
class Provenance:
    """Versions and dates of a study; ``None`` if not recorded."""

    autotune: str | None
    versions: Mapping[str, str]
    started: str | None
    concluded: str | None


class DatedEvent(NamedTuple):
    """The kind of a record, and when it was written (ISO 8601)."""

    kind: str
    at: str


@dataclass(frozen=True)
class Study:
    """The state of a study at the time when it was opened. ``records`` are the records in its journal."""

    directory: Path
    target: Target
    records: tuple[Mapping[str, Any], ...]
    state: State

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def argument(self) -> str:
        """Return the study's name for a printed command, with the options that find the study."""
        return format_study_argument(self.directory)

    @property
    def studies_option(self) -> str:
        """Return the option with the directory of the studies; empty for the default directory."""
        return find_studies_option(self.directory)

    @property
    def resume_argument(self) -> str:
        """Return the study's name with the options for `autotune resume`, which continues a shared study
        in its database.
        """
        return format_study_argument(
            self.directory,
            is_shared=self.state.is_shared,
            keeps_winner=self.state.keeps_winner,
        )

    @property
    def target_path(self) -> Path:
        """Return the target file that the study started from, which may no longer exist."""
        return Path(self.first_record.source)

    @cached_property
    def first_record(self) -> StudyStart:
        """Return the first record of the study."""
        return decode_valid_record(StudyStart, self.records[0])

    @property
    def provenance(self) -> Provenance:
        """Return the versions of autotune and its programs, and the dates of the study."""
        sessions = self._list_records("session")
        versions = decode_valid_record(SessionStart, sessions[-1]).versions if sessions else {}
        verdict_times = [str(record.get("at")) for record in self._list_records("verdict")]
        return Provenance(
            self.first_record.autotune,
            dict(sorted(versions.items())),
            self.first_record.started,
            verdict_times[-1] if verdict_times else None,
        )

    @property
    def dated_events(self) -> list[DatedEvent]:
        """Return all events with a date, in the order recorded."""
        dated_records = [
            (str(record["event"]), record.get("at") or record.get("started"))
            for record in self.records
        ]
        return [
            DatedEvent(event_kind, str(timestamp))
            for event_kind, timestamp in dated_records
            if timestamp
        ]

    def _list_records(self, event: str) -> list[Mapping[str, Any]]:
        return [record for record in self.records if record["event"] == event]

    @cached_property
    def readings(self) -> tuple[RecordedReading, ...]:
        """Return every reading of load in chronological order. Raises AutotuneError."""
        return tuple(r for r in self._all_readings if isinstance(r, RecordedReading))

    @cached_property
    def command_calls(self) -> tuple[RecordedCall, ...]:
        """Return every call of a benchmark command in chronological order. Raises AutotuneError."""
        return tuple(r for r in self._all_readings if isinstance(r, RecordedCall))

    @cached_property
    def _all_readings(self) -> tuple[RecordedReading | RecordedCall, ...]:
        with _wrap_read_errors(self.directory / READINGS_FILE):
            return tuple(load_reading_records(self.directory))

    @cached_property
    def reading_counts(self) -> dict[int, ReadingCounts]:
        return count_readings(self._all_readings)

    @property
    def is_database_copy(self) -> bool:
        """True for a copy from a shared database, which shows the workers that were measuring."""
        return foreign_files.exists(self.directory, WORKERS_FILE)

    @property
    def running_process(self) -> str | None:
        """Return the process that is running the study; for a copy, the workers that were running."""
        if self.is_database_copy:
            return ", ".join(_read_workers(self.directory)) or None
        path = self.directory / "lock"
        return (describe_lock_holder(path) or "another process") if is_locked(path) else None


def open_study(directory: Path) -> Study:
    """Return a study from disk. Raises AutotuneError if the study is damaged, and TargetError for an
    invalid target.
    """
    with _wrap_read_errors(directory / EVENTS_FILE):
        records = tuple(journal.read_records(directory / EVENTS_FILE))
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
    # If the lock is not a regular file, this call raises an error before anything is shown.
    is_locked(directory / "lock")
    target = _apply_current_budget(read_recorded_target(directory).target, records)
    return Study(directory, target, records, replay_records(records))


def _apply_current_budget(target: Target, records: Sequence[Mapping[str, Any]]) -> Target:
    """Return the target with the budget of the last session that recorded a budget."""
    sessions = (
        decode_valid_record(SessionStart, record)
        for record in reversed(records)
        if record["event"] == "session"
    )
    budget = next((session.budget for session in sessions if session.budget), None)
    if budget is None:
        return target
    changed_keys = {"trials": budget.trials, "time": budget.seconds}
    return target.model_copy(update={"budget": target.budget.model_copy(update=changed_keys)})


def _read_workers(directory: Path) -> tuple[str, ...]:
    """Return the workers that were measuring when the study was copied. Raises AutotuneError."""
    content = foreign_files.read_bytes(directory, WORKERS_FILE, foreign_files.MAX_SMALL_FILE_BYTES)
    with suppress(ValueError):
        workers = parse_json(content)
        if isinstance(workers, list) and all(isinstance(worker, str) for worker in workers):
            return tuple(workers)
    raise AutotuneError(
        f"{directory / WORKERS_FILE} is not a list of workers: the study is damaged",
        hint=journal.DAMAGED_HINT,
    )


@contextmanager
def _wrap_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AutotuneError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint=journal.DAMAGED_HINT,
        ) from error
