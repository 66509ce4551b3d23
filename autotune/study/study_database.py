"""A PostgreSQL database in which several machines share studies: connections, retries and studies.

autotune's tables are in the same database as Optuna's tables.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
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
from autotune.errors import AutotuneError, UsageError
from autotune.foreign_files import MAX_RECORD_BYTES
from autotune.masking import mask_secrets
from autotune.optimize.storage import ConnectionTracker, find_database_error
from autotune.study import ownership
from autotune.study.database_records import (
    COMPROMISED_HINT,
    append_records,
    decompress_content,
    decompress_record,
    parse_lines,
    read_lines_after,
    read_records_after,
)
from autotune.study.database_schema import (
    COPY_LOCK_KEY,
    SCHEMA_VERSION,
    acquire_lock,
    migrate_tables,
    read_schema_version,
)
from autotune.study.directory import EVENTS_FILE
from autotune.study.journal import JournalLine
from autotune.study.worker_leases import read_leases
from autotune.study_argument import WORKERS_FILE
from autotune.target.messages import suggest_name
from autotune.target.read_target import TARGET_FILE_NAME
from autotune.transports import wait_notices

T = TypeVar("T")

URL_SCHEME, URL_DRIVER = "postgresql", "postgresql+psycopg"
# TCP keepalives detect a dropped connection within a minute.
CONNECT_OPTIONS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 60_000,
}
# Errors that may occur while the database restarts.
RETRIED_ERRORS = (OperationalError, InterfaceError, StorageInternalError)
# total seconds of retries, and seconds between attempts
RETRY_TIMEOUT_SECONDS, RETRY_PAUSE_SECONDS = 600.0, 0.5


@dataclass(frozen=True)
class SharedStudy:
    """A study in the database: id, name, target text and ``first_record``."""

    study_id: int
    name: str
    target_text: str
    first_record: JournalLine


class StudyDatabase:
    """The database at a URL without a password: libpq reads the password from the environment or
    .pgpass.

    A worker keeps two connections open, one of the two for heartbeats. The worker that writes Optuna's
    tables (``optuna_copy``) keeps two more connections. Raises AutotuneError if the database cannot be
    reached or used, or if its tables have a later version.
    """

    def __init__(self, url: str, *, retry_seconds: float = RETRY_TIMEOUT_SECONDS) -> None:
        self.url = _parse_url(url)
        self._retry_seconds, self._is_waiting = retry_seconds, False
        self._storages: list[RDBStorage] = []
        self._connections = ConnectionTracker()  # connections of Optuna's storages
        self.engine: Engine = create_engine(
            self.url,
            pool_size=2,
            pool_pre_ping=True,
            connect_args={**CONNECT_OPTIONS, "application_name": "autotune"},
        )
        try:
            with self.convert_errors():
                self.retry_while_unavailable(self._prepare_tables, was_reached=False)
        except BaseException:
            self.close()
            raise

    def _prepare_tables(self) -> None:
        with self.engine.begin() as connection:
            has_current_tables = read_schema_version(connection) == SCHEMA_VERSION
            if not has_current_tables:
                acquire_lock(connection, 0)
                migrate_tables(connection)
                self._create_optuna_tables()
        if (
            has_current_tables
        ):  # hundreds of workers may connect at once, so they take no lock if the tables exist
            # Optuna's check needs both connections that a worker may have.
            self.engine.dispose()
            self._create_optuna_tables()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        for storage in self._storages:
            storage.remove_session()
        self._connections.close_all()

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert database errors in the ``with`` block to AutotuneError."""
        try:
            yield
        except (SQLAlchemyError, StorageInternalError) as error:
            reason = " ".join(
                mask_secrets(str(find_database_error(error))).partition("(Background on")[0].split()
            )
            raise AutotuneError(
                f"cannot use storage {self.display_url}: {reason}",
                hint="test the connection with `psql` and the same URL; put a password in ~/.pgpass or "
                "PGPASSWORD",
            ) from error

    def retry_while_unavailable(self, action: Callable[[], T], *, was_reached: bool = True) -> T:
        """Return the result of ``action``. The action is repeated as long as the database is
        unavailable.

        ``was_reached`` is true if an earlier call reached the database. Before the first success, the
        URL may be wrong, so ``action`` is repeated only if a server reports a restart. Raises
        AutotuneError.
        """
        deadline = time.monotonic() + self._retry_seconds
        with ExitStack() as wait_notice:
            while True:
                try:
                    return action()
                except RETRIED_ERRORS as error:
                    was_reached = was_reached or _is_restarting(error)
                    if not (was_reached and _is_unavailable(error)) or time.monotonic() > deadline:
                        with self.convert_errors():
                            raise
                    if not self._is_waiting:
                        wait_notice.enter_context(self._show_wait_notice())
                time.sleep(RETRY_PAUSE_SECONDS)

    @contextmanager
    def _show_wait_notice(self) -> Iterator[None]:
        """Show one notice that autotune waits for the database, even if several threads wait."""
        self._is_waiting = True
        try:
            with wait_notices.wait(
                "the storage", "a response from the database", self._retry_seconds
            ):
                yield
        finally:
            self._is_waiting = False

    @property
    def display_url(self) -> str:
        """Return the URL in the form that a user types."""
        return self.url.set(drivername=URL_SCHEME).render_as_string()

    def run_transaction(self, action: Callable[[Connection], T]) -> T:
        """Run ``action`` in a transaction and return its result. The transaction is repeated as long as
        the database is unavailable.
        """

        def attempt_transaction() -> T:
            with self.engine.begin() as connection:
                return action(connection)

        with self.convert_errors():
            return self.retry_while_unavailable(attempt_transaction)

    def run_autocommit(self, action: Callable[[Connection], T]) -> T:
        """Run ``action`` and return its result. Each statement is committed separately, and retries are
        the same as in ``run_transaction``.

        The locks of each statement are released before the next statement is sent.
        """

        def attempt_autocommit() -> T:
            with self.engine.connect() as connection:
                return action(connection.execution_options(isolation_level="AUTOCOMMIT"))

        with self.convert_errors():
            return self.retry_while_unavailable(attempt_autocommit)

    @cached_property
    def optuna_storage(self) -> RDBStorage:
        """Return Optuna's storage in this database."""
        with self.convert_errors():
            return self._open_optuna_storage()

    @contextmanager
    def claim_optuna_writer(self, study: SharedStudy) -> Iterator[RDBStorage | None]:
        """Yield Optuna's storage to the one worker that writes a study to it, and ``None`` to all other
        workers.

        The storage's only database session holds the writer lock. If this session loses its connection,
        all later writes fail.
        """
        lock_query = text("SELECT pg_try_advisory_lock(:first, :second)")
        # Outside the pool, the connection and thus the lock last exactly until the end of this block.
        with self.engine.connect() as connection:
            connection.detach()
            with connection.begin():
                # Records that a power failure loses in this storage are written again from the journal.
                connection.execute(text("SET synchronous_commit = off"))
                lock_parameters = {"first": COPY_LOCK_KEY, "second": study.study_id}
                is_writer = connection.execute(lock_query, lock_parameters).scalar_one()
            session: Any = connection.connection.dbapi_connection
            unused_sessions = [session]

            def connect() -> Any:
                if not unused_sessions:
                    raise StorageInternalError("the session that held the lock was closed")
                return unused_sessions.pop()

            try:
                yield (
                    self._open_optuna_storage(creator=connect, max_overflow=0)
                    if is_writer
                    else None
                )
            finally:
                connection.invalidate()  # a rollback could fail, because the connection may be lost
                session.close()

    def list_study_names(self) -> tuple[str, ...]:
        """Return the names of the studies in the database, sorted."""
        rows = self.run_transaction(
            lambda c: c.execute(text("SELECT name FROM autotune_studies ORDER BY name")).all()
        )
        return tuple(row.name for row in rows)

    def find_study(self, study_name: str) -> SharedStudy:
        """Return the study with this name. Raises AutotuneError, with the nearest name as a hint."""
        row = self.run_transaction(
            lambda c: c.execute(
                text(
                    "SELECT id, target, record FROM autotune_studies JOIN autotune_records ON study = id"
                    " WHERE name = :name AND number = 1"
                ),
                {"name": study_name},
            ).first()
        )
        if row is not None:
            return SharedStudy(row.id, study_name, row.target, decompress_record(row.record))
        study_names = self.list_study_names()
        raise UsageError(
            f"unknown study {study_name!r} in {self.display_url}",
            hint=suggest_name(study_name, study_names)
            if study_names
            else "`autotune run TARGET --beds all --storage URL` starts one",
        )

    def create_study(
        self, study_name: str, target: str, records: Sequence[Mapping[str, object]]
    ) -> bool:
        """Create a study with its first records. Return ``False`` if this database or Optuna already
        uses the name.
        """

        def insert_study(connection: Connection) -> bool:
            acquire_lock(connection, 0)
            name_query = "SELECT 1 FROM autotune_studies WHERE name = :name"
            optuna_names = optuna.study.get_all_study_names(self.optuna_storage)
            if (
                study_name in optuna_names
                or connection.execute(text(name_query), {"name": study_name}).first()
            ):
                return False
            row = connection.execute(
                text(
                    "INSERT INTO autotune_studies (name, target) VALUES (:name, :target) RETURNING id"
                ),
                {"name": study_name, "target": target},
            ).one()
            connection.execute(
                text("INSERT INTO autotune_heads VALUES (:study, 0)"), {"study": row.id}
            )
            append_records(connection, row.id, uuid.uuid4().hex, records)
            return True

        return self.run_transaction(insert_study)

    def read_records(self, study: SharedStudy) -> list[dict[str, Any]]:
        """Return all records of a study, in order."""
        return self.run_transaction(
            lambda connection: read_records_after(connection, study.study_id, 0)
        )

    def copy_study(self, study: SharedStudy, directory: Path) -> Path:
        """Copy a study to ``directory/NAME`` for commands that read studies from disk.

        Readings are not in the database; only the journals of the workers contain them.
        """
        study_directory = _resolve_below(directory, study.name)
        durable_files.make_directory(study_directory, 0o700)
        lines, leases = self.run_transaction(
            lambda connection: (
                read_lines_after(connection, study.study_id, 0),
                read_leases(connection, study.study_id),
            )
        )
        target = study.target_text.encode()
        durable_files.write_file(study_directory / TARGET_FILE_NAME, target, 0o600, sync=False)
        ownership.seal_study(
            study_directory, target, study.first_record
        )  # the user named the database and trusts its targets
        event_lines = b"".join(line + b"\n" for line in lines)
        durable_files.write_file(study_directory / EVENTS_FILE, event_lines, 0o600, sync=False)
        active_workers = [
            f"{lease.location} on bed {bed}" for bed, lease in leases.items() if lease.is_alive
        ]
        durable_files.write_file(
            study_directory / WORKERS_FILE, json.dumps(active_workers).encode(), 0o600, sync=False
        )
        self.copy_files(study, parse_lines(lines), study_directory)
        return study_directory

    def copy_files(
        self, study: SharedStudy, records: Iterable[JournalLine], directory: Path
    ) -> None:
        """Copy the rendered files of trials that are missing in ``directory``."""
        missing_paths: dict[str, list[Path]] = {}
        for record in records:
            for file_name, digest in _list_file_digests(record):
                path = _resolve_below(directory / "configs", f"{record.get('trial')}/{file_name}")
                if not path.exists():
                    missing_paths.setdefault(digest, []).append(path)
        rows = (
            self.run_transaction(
                lambda c: c.execute(
                    text("SELECT digest, content FROM autotune_files WHERE study = :study"),
                    {"study": study.study_id},
                ).all()
            )
            if missing_paths
            else ()
        )
        for row in rows:
            for path in missing_paths.get(row.digest, ()):
                durable_files.make_directory(path.parent)
                content = decompress_content(row.content, MAX_RECORD_BYTES)
                durable_files.write_file(path, content, 0o600, sync=False)

    def _create_optuna_tables(self) -> None:
        """Create Optuna's tables if they are missing. Raises AutotuneError if another version created
        the tables.
        """
        try:
            self._open_optuna_storage(tables_exist=False).engine.dispose()
        except RuntimeError as error:
            raise AutotuneError(
                f"another version of Optuna created the tables of storage {self.display_url}: {error}",
                hint=f"run `optuna storage upgrade --storage {self.display_url}`",
            ) from error

    def _open_optuna_storage(
        self, *, tables_exist: bool = True, **engine_options: Any
    ) -> RDBStorage:
        """Open Optuna's storage; with ``tables_exist``, its tables are neither created nor checked."""
        connection_options = {
            "pool_pre_ping": True,
            "pool_size": 1,
            "connect_args": CONNECT_OPTIONS,
            "pool_events": self._connections.pool_events,
            **engine_options,
        }
        storage = RDBStorage(
            str(self.url),
            engine_kwargs=connection_options,
            skip_table_creation=tables_exist,
            skip_compatibility_check=tables_exist,
        )
        self._storages.append(storage)
        return storage


def _list_file_digests(record: JournalLine) -> list[tuple[str, str]]:
    digest_by_name = record.get("files")
    if record.get("event") != "deployed" or not isinstance(digest_by_name, Mapping):
        return []
    return [
        (file_name, digest)
        for file_name, digest in digest_by_name.items()
        if isinstance(digest, str)
    ]


def _resolve_below(directory: Path, relative_path: str) -> Path:
    """Return ``directory / relative_path``. Raises AutotuneError for a path outside of
    ``directory``.
    """
    path = directory / relative_path
    if "\0" in relative_path or ".." in path.parts or not path.is_relative_to(directory):
        raise AutotuneError(
            f"invalid file name {relative_path!r} in the database: it is outside of {directory}",
            hint=COMPROMISED_HINT,
        )
    return path


def _parse_url(url: str) -> URL:
    """Return the parsed URL. Raises AutotuneError if the URL contains a password, which process lists
    would show.
    """
    if find_spec("psycopg") is None:
        raise AutotuneError(
            "--storage needs psycopg, which is not installed",
            hint="run `pipx inject autotune 'psycopg[binary]'`, or `pipx install --force "
            "'.[postgresql]'` in a checkout",
        )
    try:
        parsed_url = make_url(url)
    except (ArgumentError, ValueError):
        parsed_url = None  # the text may contain a password, so no message repeats it
    if parsed_url is None or parsed_url.get_backend_name() != URL_SCHEME:
        raise UsageError(
            "--storage must be the URL of a PostgreSQL database",
            hint=f"such as {URL_SCHEME}://tuner@db1.example.org/tuning",
        )
    if parsed_url.password or any("password" in option_name for option_name in parsed_url.query):
        raise UsageError(
            "the password in --storage is visible to everyone who can list processes",
            hint="put the password in ~/.pgpass (mode 0600) or in PGPASSWORD",
        )
    return parsed_url.set(drivername=URL_DRIVER)


def _is_unavailable(error: BaseException) -> bool:
    """True if the connection or the server caused the error, not the query. Optuna wraps such errors."""
    return isinstance(_unwrap_error(error), OperationalError | InterfaceError)


def _unwrap_error(error: BaseException) -> BaseException | None:
    return error.__cause__ if isinstance(error, StorageInternalError) else error


def _is_restarting(error: BaseException) -> bool:
    """True if the server reports that it is stopping or starting (SQLSTATE class 57P)."""
    database_error = getattr(_unwrap_error(error), "orig", None)
    # A refused connection has no SQLSTATE, only a message from the server.
    sqlstate = getattr(database_error, "sqlstate", None)
    return (
        sqlstate.startswith("57P") if sqlstate else "the database system is " in str(database_error)
    )
