"""A database in which several machines share a study: its records, its files, and who works on it.

The tables lie beside Optuna's. The records of a study are numbered without gaps, in the order in which
their transactions ended: every reader has the same state after the same record. A worker holds a lease
for each of its test beds, and what it writes counts only while it does.
"""

from __future__ import annotations

import json
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError, SQLAlchemyError

from autotune import durable_files
from autotune.errors import AutotuneError
from autotune.masking import mask_secrets
from autotune.optimize.storage import ConnectionTracker, find_database_error
from autotune.study import journal, ownership
from autotune.study.directory import EVENTS_FILE, WORKERS_FILE
from autotune.target.messages import find_nearest_name
from autotune.target.read_target import TARGET_FILE_NAME
from autotune.transports import wait_notices

Record = Mapping[str, Any]
T = TypeVar("T")

URL_SCHEME, URL_DRIVER = "postgresql", "postgresql+psycopg"
# Each migrates the tables from one version to the next. Append; never change one.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE autotune_studies (
        id SERIAL PRIMARY KEY, name TEXT NOT NULL UNIQUE, target TEXT NOT NULL);
    CREATE TABLE autotune_heads (
        study INTEGER PRIMARY KEY REFERENCES autotune_studies, head INTEGER NOT NULL);
    CREATE TABLE autotune_records (
        study INTEGER NOT NULL REFERENCES autotune_studies, number INTEGER NOT NULL,
        key TEXT UNIQUE, record BYTEA NOT NULL, PRIMARY KEY (study, number));
    CREATE TABLE autotune_workers (
        study INTEGER NOT NULL REFERENCES autotune_studies, bed TEXT NOT NULL, worker TEXT NOT NULL,
        place TEXT NOT NULL, beat BIGINT NOT NULL DEFAULT 0, at TIMESTAMPTZ NOT NULL DEFAULT now(),
        PRIMARY KEY (study, bed))
    """,
    """
    CREATE TABLE autotune_files (
        study INTEGER NOT NULL REFERENCES autotune_studies, digest TEXT NOT NULL,
        content BYTEA NOT NULL, PRIMARY KEY (study, digest))
    """,
    # All that is done while the head is locked, as one call: the lock is never held across the network.
    # Each statement inside sees what was committed before it began. NULL: the lease is lost.
    """
    CREATE FUNCTION autotune_append(
        of_study INTEGER, with_key TEXT, by_worker TEXT, on_bed TEXT, contents BYTEA[])
    RETURNS INTEGER LANGUAGE plpgsql AS $$
    DECLARE last INTEGER;
    BEGIN
        SELECT head INTO last FROM autotune_heads WHERE study = of_study FOR UPDATE;
        IF by_worker IS NOT NULL AND NOT EXISTS (SELECT 1 FROM autotune_workers WHERE study = of_study
            AND worker = by_worker AND bed = COALESCE(on_bed, bed)) THEN RETURN NULL; END IF;
        IF EXISTS (SELECT 1 FROM autotune_records WHERE key = with_key) THEN RETURN 0; END IF;
        INSERT INTO autotune_records
            SELECT of_study, last + place, CASE WHEN place = 1 THEN with_key END, content
            FROM unnest(contents) WITH ORDINALITY AS numbered (content, place);
        UPDATE autotune_heads SET head = last + cardinality(contents) WHERE study = of_study;
        RETURN last + 1;
    END $$
    """,
    # Whoever decides waits for the lock and reads what is new in one call: the second statement of a
    # function sees what was committed while the first one waited.
    """
    CREATE FUNCTION autotune_decide(locks INTEGER, of_study INTEGER, from_number INTEGER)
    RETURNS SETOF BYTEA LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(locks, of_study);
        RETURN QUERY SELECT record FROM autotune_records
            WHERE study = of_study AND number > from_number ORDER BY number;
    END $$
    """,
)
STATEMENT_PATTERN = re.compile(r"(?:\$\$.*?\$\$|[^;])+", re.DOTALL)
SCHEMA_VERSION = len(MIGRATIONS)
COPY_LOCK_KEY = (
    0x6175  # first key of the advisory lock for writing Optuna's tables; the second is a study
)
LOCK_KEY = (
    0x6174  # first key of all other advisory locks; the second is a study, or 0 for the tables
)
# A connection that the network has dropped is given up within a minute.
CONNECT_OPTIONS = {"connect_timeout": 10, "keepalives_idle": 15, "keepalives_interval": 5,
           "keepalives_count": 4, "tcp_user_timeout": 60_000}  # fmt: skip
# From a database that is restarted.
RETRIED_ERRORS = (OperationalError, InterfaceError, StorageInternalError)
# Seconds in which it must be back, and between attempts.
RETRY_TIMEOUT_SECONDS, RETRY_PAUSE_SECONDS = (
    600.0,
    0.5,
)
ALIVE_SECONDS = 60.0  # seconds since its last heartbeat that a worker is shown as running


class LeaseLostError(AutotuneError):
    """A test bed was set aside meanwhile: what this worker did there does not count any more."""


@dataclass(frozen=True)
class SharedStudy:
    """A study in the database, by its number there; ``first_record`` is its first record."""

    study_id: int
    name: str
    target_text: str
    first_record: Record


class StudyDatabase:
    """A database by its URL, which holds no password: libpq takes it from the environment or .pgpass.

    A worker keeps two connections open, one of them for its heartbeats. The worker that writes Optuna's
    tables (``optuna_copy``) keeps two more.
    Raises AutotuneError where it cannot be reached, is of a later version or cannot be used.
    """

    def __init__(self, url: str, *, retry_seconds: float = RETRY_TIMEOUT_SECONDS) -> None:
        self.url = _parse_url(url)
        self._within, self._is_awaited = retry_seconds, False
        self._opened: list[RDBStorage] = []
        self._connections = ConnectionTracker()  # of Optuna's storages
        self.engine: Engine = create_engine(
            self.url, pool_size=2, pool_pre_ping=True,
            connect_args={**CONNECT_OPTIONS, "application_name": "autotune"},
        )  # fmt: skip
        try:
            with self.convert_errors():
                self.retry(self._prepare_tables, was_reached=False)
        except BaseException:
            self.close()
            raise

    def _prepare_tables(self) -> None:
        with self.engine.begin() as connection:
            current = _read_schema_version(connection) == SCHEMA_VERSION
            if not current:
                _acquire_lock(connection, 0)
                _migrate_tables(connection)
                self._create_optuna_tables()
        if current:  # nothing to create, so no lock: hundreds of workers open it at once
            self.engine.dispose()  # Optuna checks its tables on two, all that a worker may have
            self._create_optuna_tables()

    def close(self) -> None:
        """Cut its connections."""
        self.engine.dispose()
        for opened in self._opened:
            opened.remove_session()
        self._connections.close_all()

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Raises what goes wrong with the database meanwhile as an AutotuneError."""
        try:
            yield
        except (SQLAlchemyError, StorageInternalError) as error:
            reason = " ".join(
                mask_secrets(str(find_database_error(error))).partition("(Background on")[0].split()
            )
            raise AutotuneError(
                f"storage {self.display_url} cannot be used: {reason}",
                hint="`psql` with the same URL shows whether it can be reached; a password belongs in "
                "~/.pgpass or PGPASSWORD",
            ) from error

    def retry(self, action: Callable[[], T], *, was_reached: bool = True) -> T:
        """What ``action`` returns, repeated while the database is away. If it was never
        ``was_reached``, its
        URL may be wrong: the server must first say that it restarts. Raises AutotuneError."""
        end = time.monotonic() + self._within
        with ExitStack() as away:
            while True:
                try:
                    return action()
                except RETRIED_ERRORS as error:
                    was_reached = was_reached or _is_restarting(error)
                    if not (was_reached and _is_unavailable(error)) or time.monotonic() > end:
                        with self.convert_errors():
                            raise
                    if not self._is_awaited:
                        away.enter_context(self._await_result())
                time.sleep(RETRY_PAUSE_SECONDS)

    @contextmanager
    def _await_result(self) -> Iterator[None]:
        """One line at a time says that the database is away, however many threads wait for it."""
        self._is_awaited = True
        try:
            with wait_notices.wait("the storage", "an answer of the database", self._within):
                yield
        finally:
            self._is_awaited = False

    @property
    def display_url(self) -> str:
        """The URL, as a user types it."""
        return self.url.set(drivername=URL_SCHEME).render_as_string()

    def run_transaction(self, action: Callable[[Connection], T]) -> T:
        """What ``action`` returns, run in a transaction; repeated while the database is away."""

        def attempt() -> T:
            with self.engine.begin() as connection:
                return action(connection)

        with self.convert_errors():
            return self.retry(attempt)

    def run_autocommit(self, action: Callable[[Connection], T]) -> T:
        """The same, but each statement commits by itself: none holds a lock when the next is sent."""

        def attempt() -> T:
            with self.engine.connect() as connection:
                return action(connection.execution_options(isolation_level="AUTOCOMMIT"))

        with self.convert_errors():
            return self.retry(attempt)

    @cached_property
    def optuna_storage(self) -> RDBStorage:
        """Optuna's storage in the same database."""
        with self.convert_errors():
            return self._open_optuna_storage()

    @contextmanager
    def claim_optuna_writer(self, study: SharedStudy) -> Iterator[RDBStorage | None]:
        """Optuna's storage for the one worker that writes a study to it; ``None`` for all others. Its
        only session holds the lock for it: once that session is cut, every write fails."""
        lock = text("SELECT pg_try_advisory_lock(:first, :second)")
        with self.engine.connect() as connection:
            connection.detach()  # out of the pool: the lock ends with this connection
            with connection.begin():
                # What a database forgets when it loses power is written again, from the records.
                connection.execute(text("SET synchronous_commit = off"))
                key = {"first": COPY_LOCK_KEY, "second": study.study_id}
                own = connection.execute(lock, key).scalar_one()
            session: Any = connection.connection.dbapi_connection
            sessions = [session]

            def connect() -> Any:
                if not sessions:
                    raise StorageInternalError("the session that held the lock was cut")
                return sessions.pop()

            try:
                yield self._open_optuna_storage(creator=connect, max_overflow=0) if own else None
            finally:
                connection.invalidate()  # it may be cut: there is nothing to roll back
                session.close()

    def list_study_names(self) -> tuple[str, ...]:
        """The names of the studies in it."""
        rows = self.run_transaction(
            lambda c: c.execute(text("SELECT name FROM autotune_studies ORDER BY name")).all()
        )
        return tuple(row.name for row in rows)

    def find_study(self, name: str) -> SharedStudy:
        """The study of this name. Raises AutotuneError, with the nearest one."""
        row = self.run_transaction(lambda c: c.execute(text(
            "SELECT id, target, record FROM autotune_studies JOIN autotune_records ON study = id"
            " WHERE name = :name AND number = 1"
        ), {"name": name}).first())  # fmt: skip
        if row is not None:
            return SharedStudy(row.id, name, row.target, decompress_record(row.record))
        near = find_nearest_name(name, self.list_study_names())
        raise AutotuneError(
            f"unknown study {name!r} in {self.display_url}",
            hint=f"did you mean {near!r}?"
            if near
            else "`autotune run TARGET --storage URL` begins one",
        )

    def create_study(self, name: str, target: str, records: Sequence[Record]) -> bool:
        """Create a study with its first records; ``False`` if it or Optuna has a study of that name."""

        def insert(connection: Connection) -> bool:
            _acquire_lock(connection, 0)
            used = "SELECT 1 FROM autotune_studies WHERE name = :name"
            others = optuna.study.get_all_study_names(self.optuna_storage)
            if name in others or connection.execute(text(used), {"name": name}).first():
                return False
            row = connection.execute(text(
                "INSERT INTO autotune_studies (name, target) VALUES (:name, :target) RETURNING id"
            ), {"name": name, "target": target}).one()  # fmt: skip
            connection.execute(
                text("INSERT INTO autotune_heads VALUES (:study, 0)"), {"study": row.id}
            )
            append_records(connection, row.id, uuid.uuid4().hex, records)
            return True

        return self.run_transaction(insert)

    def read_records(self, study: SharedStudy) -> list[dict[str, Any]]:
        """All records of a study, in their order."""
        return self.run_transaction(
            lambda connection: read_records_after(connection, study.study_id, 0)
        )

    def copy_study(self, study: SharedStudy, directory: Path) -> Path:
        """Put a study into ``directory/NAME``, for whoever reads studies on disk; its readings are
        in the journals of the workers that took them."""
        location = _resolve_below(directory, study.name)
        durable_files.make_directory(location, 0o700)
        lines, running = self.run_transaction(
            lambda connection: (
                read_lines_after(connection, study.study_id, 0),
                read_leases(connection, study.study_id),
            )
        )
        target = study.target_text.encode()
        durable_files.write_file(location / TARGET_FILE_NAME, target, 0o600, sync=False)
        # The user named the storage, and trusts its targets.
        ownership.seal_study(location, target, study.first_record)
        events = b"".join(line + b"\n" for line in lines)
        durable_files.write_file(location / EVENTS_FILE, events, 0o600, sync=False)
        living = [
            f"{lease.location} on bed {bed}" for bed, lease in running.items() if lease.is_alive
        ]
        durable_files.write_file(
            location / WORKERS_FILE, json.dumps(living).encode(), 0o600, sync=False
        )
        self.copy_files(study, map(json.loads, lines), location)
        return location

    def copy_files(self, study: SharedStudy, records: Iterable[Record], directory: Path) -> None:
        """The rendered files of all trials, as far as they are not in ``directory`` already."""
        missing: dict[str, list[Path]] = {}
        for record in records:
            if record["event"] == "deployed":
                for name, digest in (record.get("files") or {}).items():
                    path = _resolve_below(directory / "configs", f"{record['trial']}/{name}")
                    if not path.exists():
                        missing.setdefault(digest, []).append(path)
        rows = self.run_transaction(lambda c: c.execute(
            text("SELECT digest, content FROM autotune_files WHERE study = :study"),
            {"study": study.study_id},
        ).all()) if missing else ()  # fmt: skip
        for row in rows:
            for path in missing.get(row.digest, ()):
                durable_files.make_directory(path.parent)
                durable_files.write_file(path, zlib.decompress(row.content), 0o600, sync=False)

    def _create_optuna_tables(self) -> None:
        """Make Optuna's tables if need be. Raises AutotuneError for those of another version."""
        try:
            self._open_optuna_storage(tables_exist=False).engine.dispose()
        except RuntimeError as error:
            raise AutotuneError(
                f"storage {self.display_url} is of another version of Optuna: {error}",
                hint=f"optuna storage upgrade --storage {self.display_url}",
            ) from error

    def _open_optuna_storage(self, *, tables_exist: bool = True, **more: Any) -> RDBStorage:
        """``tables_exist``: the tables are there, and of this version."""
        options = {"pool_pre_ping": True, "pool_size": 1, "connect_args": CONNECT_OPTIONS,
                   "pool_events": self._connections.pool_events, **more}  # fmt: skip
        opened = RDBStorage(
            str(self.url),
            engine_kwargs=options,
            skip_table_creation=tables_exist,
            skip_compatibility_check=tables_exist,
        )
        self._opened.append(opened)
        return opened


@dataclass(frozen=True)
class Lease:
    """Who measures on a test bed: ``worker`` is the worker's id, ``location`` says in words where it
    runs. ``heartbeats`` counts up while it lives (``None`` stands for any count), and ``is_alive`` is
    whether it did lately, by the database's clock."""

    worker: str
    location: str
    heartbeats: int | None = None
    is_alive: bool = True


def read_leases(connection: Connection, study: int) -> dict[str, Lease]:
    """The leases of a study, by test bed."""
    rows = connection.execute(text(
        "SELECT bed, worker, place, beat, at > now() - make_interval(secs => :living) AS living"
        " FROM autotune_workers WHERE study = :study"
    ), {"study": study, "living": ALIVE_SECONDS})  # fmt: skip
    return {row.bed: Lease(row.worker, row.place, row.beat, row.living) for row in rows}


def take_lease(connection: Connection, study: int, bed: str, lease: Lease) -> None:
    """Take the lease of a test bed, whoever held it before."""
    connection.execute(text(
        "INSERT INTO autotune_workers (study, bed, worker, place) VALUES (:study, :bed, :worker, :place)"
        " ON CONFLICT (study, bed) DO UPDATE SET worker = :worker, place = :place, beat = 0, at = now()"
    ), {"study": study, "bed": bed, "worker": lease.worker, "place": lease.location})  # fmt: skip


def release_lease(connection: Connection, study: int, bed: str, lease: Lease) -> bool:
    """End this lease of a test bed unless it has changed; whether it was ended."""
    lock_record_count(connection, study)
    return bool(
        connection.execute(
            text(
                "DELETE FROM autotune_workers WHERE study = :study AND bed = :bed AND worker = :worker"
                " AND beat = COALESCE(:beat, beat)"
            ),
            {"study": study, "bed": bed, "worker": lease.worker, "beat": lease.heartbeats},
        ).rowcount
    )


def send_heartbeat(connection: Connection, study: int, worker: str) -> None:
    """A heartbeat, for all test beds of a worker."""
    connection.execute(text(
        "UPDATE autotune_workers SET beat = beat + 1, at = now()"
        " WHERE study = :study AND worker = :worker"
    ), {"study": study, "worker": worker})  # fmt: skip


def lock_record_count(connection: Connection, study: int) -> int:
    """How many records there are; until this transaction ends, nobody else adds one."""
    query = text("SELECT head FROM autotune_heads WHERE study = :study FOR UPDATE")
    return int(connection.execute(query, {"study": study}).scalar_one())


def lock_decision_lines(connection: Connection, study: int, number: int) -> list[bytes]:
    """The same as ``read_lines_after``; until this transaction ends, nobody else decides what comes
    next."""
    rows = connection.execute(
        text("SELECT autotune_decide(:locks, :study, :number)"),
        {"locks": LOCK_KEY, "study": study, "number": number},
    )
    return _decompress_lines(rows.scalars())


def append_records(
    connection: Connection,
    study: int,
    key: str,
    records: Sequence[Record],
    files: Mapping[str, bytes] | None = None,
    lease: tuple[str, str | None] | None = None,
) -> int:
    """Add records, and files by their digests. A second call with the same ``key`` adds nothing: for
    callers that do not know whether the first was committed. Returns the number of the first record
    added, 0 for none.

    Raises LeaseLostError where this worker no longer holds this bed or, for ``None``, no bed at all.
    """
    if not records:
        return 0
    if files:
        _insert_files(connection, study, files)
    worker, bed = lease or (None, None)
    number: int | None = connection.execute(text(
        "SELECT autotune_append(:study, :key, CAST(:worker AS text), CAST(:bed AS text),"
        " CAST(:contents AS bytea[]))"
    ), {"study": study, "key": key, "worker": worker, "bed": bed,
        "contents": [compress_record(record) for record in records]}).scalar_one()  # fmt: skip
    if number is None:
        raise LeaseLostError(
            f"{f'bed {bed}' if bed else 'this worker'} was not heard of for too long and set aside",
            hint="`autotune worker TARGET --bed … --storage URL` joins the study again",
        )
    return number


def _insert_files(connection: Connection, study: int, files: Mapping[str, bytes]) -> None:
    """Add the files that are not there yet: most trials change one or two. They are sorted, so that no
    two workers wait for each other."""
    there = set(connection.execute(text(
        "SELECT digest FROM autotune_files WHERE study = :study AND digest = ANY(:digests)"
    ), {"study": study, "digests": list(files)}).scalars())  # fmt: skip
    new = [{"study": study, "digest": digest, "content": zlib.compress(files[digest], 9)}
           for digest in sorted(files.keys() - there)]  # fmt: skip
    if new:
        connection.execute(text(
            "INSERT INTO autotune_files VALUES (:study, :digest, :content) ON CONFLICT DO NOTHING"
        ), new)  # fmt: skip


def read_records_after(connection: Connection, study: int, number: int) -> list[dict[str, Any]]:
    """The records after this number, in their order."""
    return [json.loads(line) for line in read_lines_after(connection, study, number)]


def read_lines_after(connection: Connection, study: int, number: int) -> list[bytes]:
    """The same, as lines of a journal."""
    rows = connection.execute(text(
        "SELECT record FROM autotune_records WHERE study = :study AND number > :number ORDER BY number"
    ), {"study": study, "number": number})  # fmt: skip
    return _decompress_lines(rows.scalars())


def _decompress_lines(contents: Iterable[bytes]) -> list[bytes]:
    # Anyone who may write there may write line breaks. In valid JSON they are only between values.
    return [zlib.decompress(content).replace(b"\n", b" ") for content in contents]


def _resolve_below(directory: Path, name: str) -> Path:
    """The path of a name from another worker. Raises AutotuneError if it is not in ``directory``."""
    path = directory / name
    if "\0" in name or ".." in path.parts or not path.is_relative_to(directory):
        raise AutotuneError(
            f"the storage names {name!r}, which would be outside of {directory}",
            hint="somebody who may write to it did that: use no other worker of it before you know who",
        )
    return path


def index_by_digest(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    return {sha256(content).hexdigest(): content for content in contents.values()}


def _parse_url(url: str) -> URL:
    """The URL, which must not show a secret to all who can list processes. Raises AutotuneError."""
    if find_spec("psycopg") is None:
        raise AutotuneError(
            "--storage needs psycopg, which is not installed",
            hint="pipx inject autotune 'psycopg[binary]', or install autotune[postgresql]",
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None  # what it says may hold a password: no message repeats it
    if parsed is None or parsed.get_backend_name() != URL_SCHEME:
        raise AutotuneError(
            "--storage is the URL of a PostgreSQL database",
            hint=f"such as {URL_SCHEME}://tuner@db1.example.org/tuning",
        )
    if parsed.password or any("password" in name for name in parsed.query):
        raise AutotuneError(
            "a password in --storage can be read by all who can list processes",
            hint="put it into ~/.pgpass (HOST:PORT:DATABASE:USER:PASSWORD, mode 0600) or PGPASSWORD",
        )
    return parsed.set(drivername=URL_DRIVER)


def _is_unavailable(error: BaseException) -> bool:
    """Whether the database itself failed, not the query; Optuna wraps such errors in its own."""
    return isinstance(_unwrap_error(error), OperationalError | InterfaceError)


def _unwrap_error(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, StorageInternalError) else error


def _is_restarting(error: BaseException) -> bool:
    """Whether the server itself says that it is shutting down or starting (SQLSTATE class 57P)."""
    answer = getattr(_unwrap_error(error), "orig", None)
    # A refused connection has no SQLSTATE, only the server's message.
    state = getattr(answer, "sqlstate", None)
    return state.startswith("57P") if state else "the database system is " in str(answer)


def _acquire_lock(connection: Connection, key: int) -> None:
    connection.execute(
        text("SELECT pg_advisory_xact_lock(:first, :second)"), {"first": LOCK_KEY, "second": key}
    )


def _read_schema_version(connection: Connection) -> int:
    """The version of the tables; 0 where there are none."""
    if connection.execute(text("SELECT to_regclass('autotune_schema')")).scalar() is None:
        return 0
    return connection.execute(text("SELECT max(version) FROM autotune_schema")).scalar() or 0


def _migrate_tables(connection: Connection) -> None:
    """Bring the tables to today's version. Raises AutotuneError for those of a later one."""
    connection.execute(
        text("CREATE TABLE IF NOT EXISTS autotune_schema (version INTEGER NOT NULL)")
    )
    version = _read_schema_version(connection)
    if version > SCHEMA_VERSION:
        raise AutotuneError(
            f"the storage has tables of version {version}, and this autotune knows up to "
            f"{SCHEMA_VERSION}",
            hint="use the version of autotune that the other workers have",
        )
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in STATEMENT_PATTERN.findall(statements):
            connection.execute(text(statement))
        connection.execute(text("INSERT INTO autotune_schema VALUES (:v)"), {"v": number})


def compress_record(record: Record) -> bytes:
    return zlib.compress(journal.encode_record(record), 9)


def decompress_record(content: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(zlib.decompress(content))
    return record
