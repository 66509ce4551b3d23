"""A study in a storage, as one of its workers sees it: a store that other workers record in too.

What a worker records goes to the storage first. This machine's directory of the study has a journal
that repeats the storage's records in their order, and the readings that were taken here.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import getpid
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from autotune import durable_files, foreign_files
from autotune.deploy.deploy_result import DeployResult
from autotune.errors import AutotuneError, LockedError
from autotune.masking import mask_secrets
from autotune.study import journal, study_database
from autotune.study.directory import EVENTS_FILE
from autotune.study.study_database import Lease, SharedStudy, StudyDatabase
from autotune.study.study_state import Record, Trial, add_seconds, replay_records
from autotune.study.study_store import StudyStore, current_timestamp

T = TypeVar("T")
# Events held back until the next record of their test bed: no decision needs them earlier.
DEFERRED_EVENTS = frozenset({"spent", "warm-up", "bottleneck", "capacities", "memory", "answered"})
WORKER_FILE = "worker"  # file in the directory: the worker that last held leases from here


@dataclass(frozen=True)
class HeartbeatPolicy:
    """A heartbeat every so many ``interval_seconds``; a worker that misses ``max_missed`` is set aside.

    Missed heartbeats are counted in heartbeats of the worker that watches. What stops both workers,
    such as a database that is away or CPU steal, sets nobody aside, and no two clocks are compared.
    """

    interval_seconds: float = 5.0
    max_missed: int = 12


class HeartbeatMonitor:
    """How many heartbeats in a row each worker has missed, counted once per look at its lease."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Lease, int]] = {}
        self._looks: Counter[str] = Counter()

    def count_missed(self, bed: str, lease: Lease) -> int:
        before, count = self._last.get(bed, (None, 0))
        same = before is not None and (before.worker, before.heartbeats) == (
            lease.worker,
            lease.heartbeats,
        )
        self._last[bed] = lease, count + 1 if same else 0
        self._looks[bed] += 1
        return self._last[bed][1]

    def is_alive(self, bed: str) -> bool:
        """Whether the bed's worker sent a heartbeat between the last two looks."""
        return self._looks.get(bed, 0) > 1 and self._last[bed][1] == 0

    def reset(self) -> None:
        """The storage was away: heartbeats that could not be written were not missed."""
        self._last.clear()


def check_same_study(directory: Path, study: SharedStudy) -> None:
    """Raises AutotuneError where a directory has another study of this name."""
    if (
        next(journal.read_records(directory / EVENTS_FILE), study.first_record)
        != study.first_record
    ):
        raise AutotuneError(
            f"{directory} has another study of that name",
            hint="name another place with --studies",
        )


class SharedStore(StudyStore):
    """Every method that records something of a test bed that was set aside raises LeaseLostError."""

    is_shared = True

    def __init__(
        self,
        directory: Path,
        database: StudyDatabase,
        study: SharedStudy,
        pulse: HeartbeatPolicy | None = None,
    ) -> None:
        check_same_study(directory, study)
        super().__init__(directory)
        self.study, self.database, self.pulse = study, database, pulse or HeartbeatPolicy()
        location = f"process {getpid()} on {socket.gethostname()}"
        self._lease = Lease(uuid.uuid4().hex, location)
        self._number = sum(1 for _ in journal.read_records(directory / EVENTS_FILE))
        self._waiting: dict[str | None, list[Record]] = {}
        self._why: dict[str, str] = {}
        self._noise: list[Record] = []  # large, and new with each trial: the last is enough
        self._files: dict[str, bytes] = {}
        self._decision: Connection | None = None
        self._not_here: list[bytes] = []  # in the storage, and not in the journal yet
        self._watch, self._ended = HeartbeatMonitor(), threading.Event()
        self._heart = threading.Thread(target=self._run_heartbeats, name="heartbeat", daemon=True)
        self.refresh()

    def close(self) -> None:
        self._ended.set()
        if self._heart.ident is not None:
            self._heart.join()
        super().close()

    def refresh(self) -> None:
        """Take over what others have recorded."""
        with self._lock:
            self._apply_lines(self.database.run_transaction(self._read_new_lines))
            self._flush_journal()

    def join_beds(self, beds: Mapping[str, Record]) -> None:
        """Take part with these test beds, each with the fields of its record.

        The bed of a worker that was killed in this directory is free at once, the bed of any other
        worker when that one has missed its heartbeats. Raises LockedError while that one lives.
        """
        path = self.directory / WORKER_FILE
        earlier = None
        with contextlib.suppress(FileNotFoundError):
            earlier = foreign_files.read_bytes(
                self.directory, WORKER_FILE, foreign_files.MAX_SMALL_FILE_BYTES
            ).decode()
        durable_files.write_file(path, self._lease.worker.encode(), 0o600)
        for bed, described in beds.items():
            self._join_bed(
                bed,
                {"event": "joined", "at": current_timestamp(), "bed": bed, **described},
                earlier,
            )
        self.refresh()
        self._heart.start()

    def _join_bed(self, bed: str, record: Record, earlier_worker: str | None) -> None:
        key, watch = uuid.uuid4().hex, HeartbeatMonitor()

        def take(connection: Connection) -> Lease | None:
            study_database.lock_record_count(connection, self.study.study_id)
            holder = study_database.read_leases(connection, self.study.study_id).get(bed)
            own = holder is None or holder.worker in (earlier_worker, self._lease.worker)
            if (
                holder is not None
                and not own
                and watch.count_missed(bed, holder) < self.pulse.max_missed
            ):
                return holder
            study_database.take_lease(connection, self.study.study_id, bed, self._lease)
            study_database.append_records(connection, self.study.study_id, key, [record])
            return None

        while (holder := self.database.run_transaction(take)) is not None:
            if watch.is_alive(bed):
                raise LockedError(
                    f"bed {bed} is measured on by {holder.location}",
                    hint="wait for it, or end it: `autotune status --storage URL` shows all of them",
                )
            time.sleep(self.pulse.interval_seconds)

    def exclude_bed(self, bed: str, reason: str) -> None:
        """Goes on record only in ``release_bed``: the bed's lease may be lost, or the storage away."""
        self._why[bed] = mask_secrets(reason)

    def release_bed(self, bed: str) -> None:
        """End this bed's lease, so that others go on with what it was measuring. If the storage is
        away, they learn it from the missed heartbeats."""
        reason = self._why.pop(bed, "its worker has ended")

        def end(connection: Connection) -> None:
            if study_database.release_lease(connection, self.study.study_id, bed, self._lease):
                record = {
                    "event": "bed",
                    "at": current_timestamp(),
                    "bed": bed,
                    "set_aside": reason,
                }
                records = [*self._noise, *([] if self.state.verdict else [record])]
                study_database.append_records(connection, self.study.study_id, uuid.uuid4().hex,
                               [*self._waiting.pop(bed, ()), *records])  # fmt: skip

        with contextlib.suppress(SQLAlchemyError), self._lock:
            with self.database.engine.begin() as connection:
                end(connection)
                records = self._read_new_lines(connection)
            self._apply_lines(records)
            self._flush_journal()

    def send_heartbeat(self) -> None:
        """Send a heartbeat, and end the leases of workers that have missed theirs."""
        with self.database.engine.connect() as connection:
            # No lock outlives its statement.
            connection.execution_options(isolation_level="AUTOCOMMIT")
            study_database.send_heartbeat(connection, self.study.study_id, self._lease.worker)
            leases = study_database.read_leases(connection, self.study.study_id)
        for bed, lease in leases.items():
            other = lease.worker != self._lease.worker
            if other and self._watch.count_missed(bed, lease) >= self.pulse.max_missed:
                self._expire_lease(bed, lease)

    def _expire_lease(self, bed: str, lease: Lease) -> None:
        reason = f"{lease.location} was not heard of any more"
        record = {"event": "bed", "at": current_timestamp(), "bed": bed, "set_aside": reason}
        with self.database.engine.begin() as connection:
            if study_database.release_lease(connection, self.study.study_id, bed, lease):
                study_database.append_records(
                    connection, self.study.study_id, uuid.uuid4().hex, [record]
                )

    def _run_heartbeats(self) -> None:
        while not self._ended.wait(self.pulse.interval_seconds):
            try:
                self.send_heartbeat()
            except SQLAlchemyError:
                self._watch.reset()

    def run_decision(self, action: Callable[[], T]) -> T:
        """Run ``action``. Either all that it records is in the storage, or nothing: then it runs
        again."""

        def attempt() -> T:
            with self._lock:
                self.refresh()  # reads most of what is new while others may still decide
                before = self.state, self._number, {b: [*r] for b, r in self._waiting.items()}
                try:
                    with self.database.engine.begin() as connection:
                        self._apply_lines(
                            study_database.lock_decision_lines(
                                connection, self.study.study_id, self._number
                            )
                        )
                        self._decision = connection
                        result = action()
                except BaseException:
                    self.state, self._number, self._waiting = before
                    self._not_here.clear()
                    raise
                finally:
                    self._decision = None
                self._flush_journal()
                return result

        with self.database.convert_errors():
            return self.database.retry(attempt)

    def record_deployment(self, trial: Trial, deployed: DeployResult) -> None:
        with self._lock:
            self._files |= study_database.index_by_digest(deployed.files)
            super().record_deployment(trial, deployed)

    def _record_event(self, event: str, **fields: Any) -> None:
        record = {"event": event, **fields}
        with self._lock:
            bed = fields.get("bed") or self._find_bed(fields.get("trial"))
            if event == "noise":
                self._noise = [record]
                return
            waiting = self._waiting.setdefault(bed, [])
            waiting.append(record)
            if event in DEFERRED_EVENTS:
                self._waiting[bed] = _merge_spent_records(waiting)
            else:
                self._send_records(bed, self._waiting.pop(bed))

    def _send_records(self, bed: str | None, records: Sequence[Record]) -> None:
        files, self._files = self._files, {}
        add = partial(
            study_database.append_records,
            study=self.study.study_id,
            key=uuid.uuid4().hex,
            records=records,
            files=files,
            lease=(self._lease.worker, bed),
        )
        decision = self._decision
        number = add(decision) if decision is not None else self.database.run_autocommit(add)
        if number == self._number + 1:  # nobody has added any since: nothing is to be read
            self._apply_lines([journal.encode_record(record) for record in records])
        elif decision is not None:
            self._apply_lines(self._read_new_lines(decision))
        else:
            self.refresh()
        if decision is None:
            self._flush_journal()

    def _find_bed(self, number: int | None) -> str | None:
        return None if number is None else self.state.find_trial(number).bed

    def _read_new_lines(self, connection: Connection) -> list[bytes]:
        return study_database.read_lines_after(connection, self.study.study_id, self._number)

    def _apply_lines(self, lines: Sequence[bytes]) -> None:
        self.state = replay_records(map(json.loads, lines), self.state)
        self._number += len(lines)
        self._not_here += lines

    def _flush_journal(self) -> None:
        """Append to the journal what the storage has for certain."""
        self._events.append_lines(self._not_here)
        self._not_here.clear()


def _merge_spent_records(records: list[Record]) -> list[Record]:
    """The records, with those of the time that was spent merged into one."""
    spent = [record for record in records if record["event"] == "spent"]
    seconds: Mapping[str, float] = {}
    for record in spent:
        seconds = add_seconds(seconds, record["seconds"])
    others = [record for record in records if record["event"] != "spent"]
    return [*others, {**spent[-1], "seconds": seconds}] if spent else others
