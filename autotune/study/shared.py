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

from autotune import durable, foreign_files
from autotune.deploy.deployed import Deployed
from autotune.errors import AutotuneError, LockedError
from autotune.masking import masked
from autotune.study import journal, storage
from autotune.study.directory import EVENTS
from autotune.study.records import Record, Trial, replay, summed
from autotune.study.storage import Lease, SharedStudy, Storage
from autotune.study.store import Store, now

T = TypeVar("T")
# Events held back until the next record of their test bed: no decision needs them earlier.
WAITING = frozenset({"spent", "warm-up", "bottleneck", "capacities", "memory", "answered"})
WORKER = "worker"  # file in the directory: the worker that last held leases from here


@dataclass(frozen=True)
class Pulse:
    """A heartbeat every so many ``seconds``; a worker that misses ``most`` is set aside.

    Missed heartbeats are counted in heartbeats of the worker that watches. What stops both workers,
    such as a database that is away or CPU steal, sets nobody aside, and no two clocks are compared.
    """

    seconds: float = 5.0
    most: int = 12


class Watch:
    """How many heartbeats in a row each worker has missed, counted once per look at its lease."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Lease, int]] = {}
        self._looks: Counter[str] = Counter()

    def missed(self, bed: str, lease: Lease) -> int:
        before, count = self._last.get(bed, (None, 0))
        same = before is not None and (before.worker, before.beat) == (lease.worker, lease.beat)
        self._last[bed] = lease, count + 1 if same else 0
        self._looks[bed] += 1
        return self._last[bed][1]

    def lives(self, bed: str) -> bool:
        """Whether the bed's worker sent a heartbeat between the last two looks."""
        return self._looks.get(bed, 0) > 1 and self._last[bed][1] == 0

    def forget(self) -> None:
        """The storage was away: heartbeats that could not be written were not missed."""
        self._last.clear()


def check_same(directory: Path, study: SharedStudy) -> None:
    """Raises AutotuneError where a directory has another study of this name."""
    if next(journal.read(directory / EVENTS), study.first) != study.first:
        raise AutotuneError(
            f"{directory} has another study of that name",
            hint="name another place with --studies",
        )


class SharedStore(Store):
    """Every method that records something of a test bed that was set aside raises LeaseLostError."""

    shared = True

    def __init__(
        self, directory: Path, database: Storage, study: SharedStudy, pulse: Pulse | None = None
    ) -> None:
        check_same(directory, study)
        super().__init__(directory)
        self.study, self.database, self.pulse = study, database, pulse or Pulse()
        place = f"process {getpid()} on {socket.gethostname()}"
        self._lease = Lease(uuid.uuid4().hex, place)
        self._number = sum(1 for _ in journal.read(directory / EVENTS))
        self._waiting: dict[str | None, list[Record]] = {}
        self._why: dict[str, str] = {}
        self._noise: list[Record] = []  # large, and new with each trial: the last is enough
        self._files: dict[str, bytes] = {}
        self._decision: Connection | None = None
        self._not_here: list[bytes] = []  # in the storage, and not in the journal yet
        self._watch, self._ended = Watch(), threading.Event()
        self._heart = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        self.refresh()

    def close(self) -> None:
        self._ended.set()
        if self._heart.ident is not None:
            self._heart.join()
        super().close()

    def refresh(self) -> None:
        """Take over what others have recorded."""
        with self._lock:
            self._apply(self.database.transaction(self._new))
            self._keep()

    def join(self, beds: Mapping[str, Record]) -> None:
        """Take part with these test beds, each with the fields of its record.

        The bed of a worker that was killed in this directory is free at once, the bed of any other
        worker when that one has missed its heartbeats. Raises LockedError while that one lives.
        """
        path = self.directory / WORKER
        earlier = None
        with contextlib.suppress(FileNotFoundError):
            earlier = foreign_files.read_bytes(self.directory, WORKER, foreign_files.SMALL).decode()
        durable.write(path, self._lease.worker.encode(), 0o600)
        for bed, described in beds.items():
            self._join(bed, {"event": "joined", "at": now(), "bed": bed, **described}, earlier)
        self.refresh()
        self._heart.start()

    def _join(self, bed: str, record: Record, earlier: str | None) -> None:
        key, watch = uuid.uuid4().hex, Watch()

        def take(connection: Connection) -> Lease | None:
            storage.lock_head(connection, self.study.number)
            holder = storage.leases(connection, self.study.number).get(bed)
            own = holder is None or holder.worker in (earlier, self._lease.worker)
            if holder is not None and not own and watch.missed(bed, holder) < self.pulse.most:
                return holder
            storage.take(connection, self.study.number, bed, self._lease)
            storage.append(connection, self.study.number, key, [record])
            return None

        while (holder := self.database.transaction(take)) is not None:
            if watch.lives(bed):
                raise LockedError(
                    f"bed {bed} is measured on by {holder.place}",
                    hint="wait for it, or end it: `autotune status --storage URL` shows all of them",
                )
            time.sleep(self.pulse.seconds)

    def set_aside(self, bed: str, why: str) -> None:
        """Goes on record only in ``leave``: the bed's lease may be lost, or the storage away."""
        self._why[bed] = masked(why)

    def leave(self, bed: str) -> None:
        """End this bed's lease, so that others go on with what it was measuring. If the storage is
        away, they learn it from the missed heartbeats."""
        why = self._why.pop(bed, "its worker has ended")

        def end(connection: Connection) -> None:
            if storage.release(connection, self.study.number, bed, self._lease):
                record = {"event": "bed", "at": now(), "bed": bed, "set_aside": why}
                records = [*self._noise, *([] if self.state.verdict else [record])]
                storage.append(connection, self.study.number, uuid.uuid4().hex,
                               [*self._waiting.pop(bed, ()), *records])  # fmt: skip

        with contextlib.suppress(SQLAlchemyError), self._lock:
            with self.database.engine.begin() as connection:
                end(connection)
                records = self._new(connection)
            self._apply(records)
            self._keep()

    def look(self) -> None:
        """Send a heartbeat, and end the leases of workers that have missed theirs."""
        with self.database.engine.connect() as connection:
            # No lock outlives its statement.
            connection.execution_options(isolation_level="AUTOCOMMIT")
            storage.beat(connection, self.study.number, self._lease.worker)
            leases = storage.leases(connection, self.study.number)
        for bed, lease in leases.items():
            other = lease.worker != self._lease.worker
            if other and self._watch.missed(bed, lease) >= self.pulse.most:
                self._end(bed, lease)

    def _end(self, bed: str, lease: Lease) -> None:
        why = f"{lease.place} was not heard of any more"
        record = {"event": "bed", "at": now(), "bed": bed, "set_aside": why}
        with self.database.engine.begin() as connection:
            if storage.release(connection, self.study.number, bed, lease):
                storage.append(connection, self.study.number, uuid.uuid4().hex, [record])

    def _beat_on(self) -> None:
        while not self._ended.wait(self.pulse.seconds):
            try:
                self.look()
            except SQLAlchemyError:
                self._watch.forget()

    def decide(self, act: Callable[[], T]) -> T:
        """Run ``act``. Either all that it records is in the storage, or nothing: then it runs again."""

        def attempt() -> T:
            with self._lock:
                self.refresh()  # reads most of what is new while others may still decide
                before = self.state, self._number, {b: [*r] for b, r in self._waiting.items()}
                try:
                    with self.database.engine.begin() as connection:
                        self._apply(
                            storage.deciding_after(connection, self.study.number, self._number)
                        )
                        self._decision = connection
                        result = act()
                except BaseException:
                    self.state, self._number, self._waiting = before
                    self._not_here.clear()
                    raise
                finally:
                    self._decision = None
                self._keep()
                return result

        with self.database.errors():
            return self.database.again(attempt)

    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        with self._lock:
            self._files |= storage.digests_of(deployed.files)
            super().deployed(trial, deployed)

    def _write(self, event: str, **fields: Any) -> None:
        record = {"event": event, **fields}
        with self._lock:
            bed = fields.get("bed") or self._bed_of(fields.get("trial"))
            if event == "noise":
                self._noise = [record]
                return
            waiting = self._waiting.setdefault(bed, [])
            waiting.append(record)
            if event in WAITING:
                self._waiting[bed] = _merged(waiting)
            else:
                self._record(bed, self._waiting.pop(bed))

    def _record(self, bed: str | None, records: Sequence[Record]) -> None:
        files, self._files = self._files, {}
        add = partial(storage.append, study=self.study.number, key=uuid.uuid4().hex, records=records,
                      files=files, lease=(self._lease.worker, bed))  # fmt: skip
        decision = self._decision
        number = add(decision) if decision is not None else self.database.statements(add)
        if number == self._number + 1:  # nobody has added any since: nothing is to be read
            self._apply([journal.line(record) for record in records])
        elif decision is not None:
            self._apply(self._new(decision))
        else:
            self.refresh()
        if decision is None:
            self._keep()

    def _bed_of(self, number: int | None) -> str | None:
        return None if number is None else self.state.by_number(number).bed

    def _new(self, connection: Connection) -> list[bytes]:
        return storage.lines_after(connection, self.study.number, self._number)

    def _apply(self, lines: Sequence[bytes]) -> None:
        self.state = replay(map(json.loads, lines), self.state)
        self._number += len(lines)
        self._not_here += lines

    def _keep(self) -> None:
        """Append to the journal what the storage has for certain."""
        self._events.append_lines(self._not_here)
        self._not_here.clear()


def _merged(records: list[Record]) -> list[Record]:
    """The records, with those of the time that was spent merged into one."""
    spent = [record for record in records if record["event"] == "spent"]
    seconds: Mapping[str, float] = {}
    for record in spent:
        seconds = summed(seconds, record["seconds"])
    others = [record for record in records if record["event"] != "spent"]
    return [*others, {**spent[-1], "seconds": seconds}] if spent else others
