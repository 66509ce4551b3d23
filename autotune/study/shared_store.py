"""The store of a study in a shared database, for one of the workers.

A worker's records go to the database first. The study's directory on this machine contains a journal
with all records in the database's order, and the readings of this worker.
"""

from __future__ import annotations

import contextlib
import socket
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
from autotune.periodic_task import PeriodicTask
from autotune.study import database_records, journal, worker_leases
from autotune.study.directory import EVENTS_FILE
from autotune.study.state_replay import replay_records
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_state import Trial
from autotune.study.study_store import StudyStore, format_current_timestamp
from autotune.study.worker_leases import Lease

T = TypeVar("T")
# Events that are sent with the next record of their test bed, because no decision needs them earlier.
DEFERRED_EVENTS = frozenset({"spent", "warm-up", "bottleneck", "capacities", "memory", "answered"})
WORKER_FILE = "worker"  # contains the id of the last worker that used this directory


@dataclass(frozen=True)
class HeartbeatPolicy:
    """The heartbeat interval, and the number of missed heartbeats after which a bed is removed.

    At each of its heartbeats, a worker counts the missed heartbeats of other workers. An event that
    stops all workers, such as CPU steal or an unavailable database, therefore removes no bed. The
    clocks of workers are not compared.
    """

    interval_seconds: float = 5.0
    max_missed: int = 12


class HeartbeatMonitor:
    """The number of consecutive heartbeats that each worker has missed, updated at each check."""

    def __init__(self) -> None:
        self._last_leases: dict[str, tuple[Lease, int]] = {}
        self._check_counts: Counter[str] = Counter()

    def count_missed_heartbeats(self, bed: str, lease: Lease) -> int:
        earlier_lease, missed_count = self._last_leases.get(bed, (None, 0))
        is_same_lease = earlier_lease is not None and (
            earlier_lease.worker,
            earlier_lease.heartbeats,
        ) == (
            lease.worker,
            lease.heartbeats,
        )
        self._last_leases[bed] = lease, missed_count + 1 if is_same_lease else 0
        self._check_counts[bed] += 1
        return self._last_leases[bed][1]

    def is_alive(self, bed: str) -> bool:
        """True if the bed's worker sent a heartbeat between the last two checks."""
        return self._check_counts.get(bed, 0) > 1 and self._last_leases[bed][1] == 0

    def reset_counts(self) -> None:
        """Reset all counts: heartbeats that an unavailable database rejected do not count as missed."""
        self._last_leases.clear()


def check_same_study(directory: Path, study: SharedStudy) -> None:
    """Raise AutotuneError if a directory contains a different study with this name."""
    if (
        next(journal.read_records(directory / EVENTS_FILE), study.first_record)
        != study.first_record
    ):
        raise AutotuneError(
            f"{directory} contains another study of that name",
            hint="choose another directory with --studies",
        )


class SharedStore(StudyStore):
    """A store that several workers share.

    Methods that record something for a removed test bed raise LeaseLostError.
    """

    is_shared = True

    def __init__(
        self,
        directory: Path,
        database: StudyDatabase,
        study: SharedStudy,
        heartbeat_policy: HeartbeatPolicy | None = None,
    ) -> None:
        check_same_study(directory, study)
        super().__init__(directory)
        self.study, self.database, self.heartbeat_policy = (
            study,
            database,
            heartbeat_policy or HeartbeatPolicy(),
        )
        worker_location = f"process {getpid()} on {socket.gethostname()}"
        self._lease = Lease(uuid.uuid4().hex, worker_location)
        self._record_count = sum(1 for _ in journal.read_records(directory / EVENTS_FILE))
        self._waiting_records: dict[str | None, list[dict[str, Any]]] = {}
        self._exclusion_reasons: dict[str, str] = {}
        # A noise record is large and replaces the previous noise record, so only the last noise record
        # is sent.
        self._noise_records: list[dict[str, Any]] = []
        self._files: dict[str, bytes] = {}
        self._decision: Connection | None = None
        self._unwritten_lines: list[
            bytes
        ] = []  # lines that are in the database but not in the journal yet
        self._monitor = HeartbeatMonitor()
        self._heartbeat_task = PeriodicTask(
            "heartbeat", self.heartbeat_policy.interval_seconds, self._try_to_send_heartbeat
        )
        self.refresh_state()

    def close(self) -> None:
        self._heartbeat_task.stop()
        super().close()

    def refresh_state(self) -> None:
        """Read the records of other workers."""
        with self._lock:
            self._apply_journal_lines(self.database.run_transaction(self._read_new_lines))
            self._flush_journal()

    def join_beds(self, beds: Mapping[str, Mapping[str, object]]) -> None:
        """Join the study with these test beds, each with the fields of its record.

        A bed is available immediately if its worker used this directory and was killed. Any other bed
        is available once its worker has missed too many heartbeats. Raises LockedError if the worker of
        a bed is running.
        """
        path = self.directory / WORKER_FILE
        earlier_worker = None
        with contextlib.suppress(FileNotFoundError):
            earlier_worker = foreign_files.read_bytes(
                self.directory, WORKER_FILE, foreign_files.MAX_SMALL_FILE_BYTES
            ).decode()
        durable_files.write_file(path, self._lease.worker.encode(), 0o600)
        for bed, bed_fields in beds.items():
            self._join_bed(
                bed,
                {"event": "joined", "at": format_current_timestamp(), "bed": bed, **bed_fields},
                earlier_worker,
            )
        self.refresh_state()
        self._heartbeat_task.start()

    def _join_bed(self, bed: str, record: Mapping[str, object], earlier_worker: str | None) -> None:
        record_key, monitor = uuid.uuid4().hex, HeartbeatMonitor()

        def take_bed(connection: Connection) -> Lease | None:
            database_records.lock_record_count(connection, self.study.study_id)
            holder = worker_leases.read_leases(connection, self.study.study_id).get(bed)
            is_bed_free = holder is None or holder.worker in (earlier_worker, self._lease.worker)
            if (
                holder is not None
                and not is_bed_free
                and monitor.count_missed_heartbeats(bed, holder) < self.heartbeat_policy.max_missed
            ):
                return holder
            worker_leases.take_lease(connection, self.study.study_id, bed, self._lease)
            database_records.append_records(connection, self.study.study_id, record_key, [record])
            return None

        while (holder := self.database.run_transaction(take_bed)) is not None:
            if monitor.is_alive(bed):
                raise LockedError(
                    f"bed {bed} is used by {holder.location}",
                    hint="wait for it or stop it; `autotune status --storage URL` shows all workers",
                )
            time.sleep(self.heartbeat_policy.interval_seconds)

    def exclude_bed(self, bed: str, reason: str) -> None:
        """Keep the reason in memory until ``release_bed`` records it, because the database may be
        unavailable now.
        """
        self._exclusion_reasons[bed] = mask_secrets(reason)

    def release_bed(self, bed: str) -> None:
        """Release this bed's lease, so that other workers repeat its trial.

        If the database is unavailable, other workers detect the missed heartbeats instead.
        """
        reason = self._exclusion_reasons.pop(bed, "its worker has stopped")

        def release(connection: Connection) -> None:
            if worker_leases.release_lease(connection, self.study.study_id, bed, self._lease):
                record = {
                    "event": "bed",
                    "at": format_current_timestamp(),
                    "bed": bed,
                    "set_aside": reason,
                }
                final_records = [*self._noise_records, *([] if self.state.verdict else [record])]
                database_records.append_records(
                    connection,
                    self.study.study_id,
                    uuid.uuid4().hex,
                    [*self._waiting_records.pop(bed, ()), *final_records],
                )

        with contextlib.suppress(SQLAlchemyError), self._lock:
            with self.database.engine.begin() as connection:
                release(connection)
                new_lines = self._read_new_lines(connection)
            self._apply_journal_lines(new_lines)
            self._flush_journal()

    def send_heartbeat(self) -> None:
        """Send a heartbeat, and remove the leases of workers that have missed too many heartbeats."""
        with self.database.engine.connect() as connection:
            # With autocommit, no lock is held after its statement.
            connection.execution_options(isolation_level="AUTOCOMMIT")
            worker_leases.send_heartbeat(connection, self.study.study_id, self._lease.worker)
            leases = worker_leases.read_leases(connection, self.study.study_id)
        for bed, lease in leases.items():
            is_other_worker = lease.worker != self._lease.worker
            if (
                is_other_worker
                and self._monitor.count_missed_heartbeats(bed, lease)
                >= self.heartbeat_policy.max_missed
            ):
                self._expire_lease(bed, lease)

    def _expire_lease(self, bed: str, lease: Lease) -> None:
        reason = f"missed heartbeats of {lease.location}"
        record = {"event": "bed", "at": format_current_timestamp(), "bed": bed, "set_aside": reason}
        with self.database.engine.begin() as connection:
            if worker_leases.release_lease(connection, self.study.study_id, bed, lease):
                database_records.append_records(
                    connection, self.study.study_id, uuid.uuid4().hex, [record]
                )

    def _try_to_send_heartbeat(self) -> None:
        try:
            self.send_heartbeat()
        except SQLAlchemyError:
            self._monitor.reset_counts()

    def run_decision(self, action: Callable[[], T]) -> T:
        """Run ``action``, and store its records together. If the records cannot be stored, ``action``
        runs again.
        """

        def attempt_decision() -> T:
            with self._lock:
                self.refresh_state()  # reads most new records before the lock is taken
                saved_state = (
                    self.state,
                    self._record_count,
                    {bed_name: [*r] for bed_name, r in self._waiting_records.items()},
                )
                try:
                    with self.database.engine.begin() as connection:
                        self._apply_journal_lines(
                            database_records.lock_and_read_lines(
                                connection, self.study.study_id, self._record_count
                            )
                        )
                        self._decision = connection
                        action_result = action()
                except BaseException:
                    self.state, self._record_count, self._waiting_records = saved_state
                    self._unwritten_lines.clear()
                    raise
                finally:
                    self._decision = None
                self._flush_journal()
                return action_result

        with self.database.convert_errors():
            return self.database.retry_while_unavailable(attempt_decision)

    def record_deployment(self, trial: Trial, deploy_result: DeployResult) -> None:
        with self._lock:
            self._files |= database_records.index_by_digest(deploy_result.files)
            super().record_deployment(trial, deploy_result)

    def _record_event(self, event: str, **fields: Any) -> None:
        record = {"event": event, **fields}
        with self._lock:
            bed = fields.get("bed") or self._find_bed(fields.get("trial"))
            if event == "noise":
                self._noise_records = [record]
                return
            waiting_records = self._waiting_records.setdefault(bed, [])
            waiting_records.append(record)
            if event in DEFERRED_EVENTS:
                self._waiting_records[bed] = _merge_spent_records(waiting_records)
            else:
                self._send_records(bed, self._waiting_records.pop(bed))

    def _send_records(self, bed: str | None, records: Sequence[Mapping[str, object]]) -> None:
        files, self._files = self._files, {}
        append_batch = partial(
            database_records.append_records,
            study=self.study.study_id,
            retry_key=uuid.uuid4().hex,
            records=records,
            files=files,
            lease=(self._lease.worker, bed),
        )
        decision = self._decision
        record_number = (
            append_batch(decision)
            if decision is not None
            else self.database.run_autocommit(append_batch)
        )
        # no other worker has added records in the meantime
        if record_number == self._record_count + 1:
            self._apply_journal_lines([journal.encode_record(record) for record in records])
        elif decision is not None:
            self._apply_journal_lines(self._read_new_lines(decision))
        else:
            self.refresh_state()
        if decision is None:
            self._flush_journal()

    def _find_bed(self, trial_number: int | None) -> str | None:
        return None if trial_number is None else self.state.find_trial(trial_number).bed

    def _read_new_lines(self, connection: Connection) -> list[bytes]:
        return database_records.read_lines_after(
            connection, self.study.study_id, self._record_count
        )

    def _apply_journal_lines(self, lines: Sequence[bytes]) -> None:
        self.state = replay_records(database_records.parse_lines(lines), self.state)
        self._record_count += len(lines)
        self._unwritten_lines += lines

    def _flush_journal(self) -> None:
        """Append the committed lines to the journal."""
        self._events.append_lines(self._unwritten_lines)
        self._unwritten_lines.clear()


def _merge_spent_records(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records, with all records of time spent merged into one record."""
    spent_records = [record for record in records if record["event"] == "spent"]
    total_seconds: Mapping[str, float] = {}
    for record in spent_records:
        total_seconds = _add_seconds_by_activity(total_seconds, record["seconds"])
    other_records = [record for record in records if record["event"] != "spent"]
    return (
        [*other_records, {**spent_records[-1], "seconds": total_seconds}]
        if spent_records
        else other_records
    )


def _add_seconds_by_activity(
    seconds: Mapping[str, float], added_seconds: Mapping[str, float]
) -> Mapping[str, float]:
    """Return the sums of seconds by activity."""
    return {
        **seconds,
        **{
            activity: seconds.get(activity, 0.0) + value
            for activity, value in added_seconds.items()
        },
    }
