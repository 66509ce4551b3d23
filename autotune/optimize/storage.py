"""Optuna's storage in a SQLite file, and the errors of its database."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import SQLITE_FULL
from typing import Any
from urllib.parse import quote

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from autotune import foreign_files
from autotune.errors import INVALID_CONTENT_ERRORS, AutotuneError, describe_invalid_content
from autotune.foreign_files import ForeignFileError
from autotune.sqlite_schema import TRUSTED_SCHEMA_PRAGMA, find_active_object
from autotune.study_argument import format_study_argument

# Optuna commits once for each parameter of each trial. With a write-ahead log, those commits need not
# wait for the disk. Nothing is lost if the process is killed. After a power failure, at most the last
# trials are missing, and are recorded again from the study's own journal. The file is never damaged.
SQLITE_PRAGMAS = (TRUSTED_SCHEMA_PRAGMA, "journal_mode = WAL", "synchronous = NORMAL")
# SQLite opens these files next to a database, and follows links.
COMPANION_SUFFIXES = ("-journal", "-wal", "-shm")
# The last bytes of a rollback journal that names another journal. SQLite deletes the named file.
# Only transactions over several databases create such journals.
_SUPER_JOURNAL_MARK = bytes.fromhex("d9d505f920a163d7")


class ConnectionTracker:
    """The open connections of an SQLAlchemy engine, tracked by the events of its connection pool.

    Optuna creates the engine in a constructor that may raise an error. After such an error, only the
    pool's events give access to the open connections.
    """

    def __init__(self, *pragmas: str, check: Callable[[Any], None] | None = None) -> None:
        self._pragmas, self._check = pragmas, check
        self._open_connections: set[Any] = set()

    @property
    def pool_events(self) -> list[tuple[Any, str]]:
        """Return the value for ``pool_events`` of ``create_engine``."""
        return [(self._add_connection, "connect"), (self._remove_connection, "close")]

    def close_all(self) -> None:
        """Close all open connections."""
        while self._open_connections:
            self._open_connections.pop().close()

    def _add_connection(self, connection: Any, _: object) -> None:
        self._open_connections.add(connection)
        for pragma in self._pragmas:
            connection.execute(f"PRAGMA {pragma}").close()
        if self._check is not None:
            self._check(connection)

    def _remove_connection(self, connection: Any, _: object) -> None:
        self._open_connections.discard(connection)


@contextmanager
def open_sqlite(path: Path) -> Iterator[RDBStorage]:
    """Yield Optuna's storage in the file at ``path``, which is created if necessary.

    Other programs can open the file at the same time. Every connection is closed at the end of the
    ``with`` block. Raises SQLAlchemyError or StorageInternalError (see ``translate_storage_errors``).
    """

    def check_schema(connection: sqlite3.Connection) -> None:
        if (name := find_active_object(connection)) is not None:
            raise AutotuneError(
                f"{path} contains {name!r}, which Optuna does not create",
                hint=f"remove the database: `autotune resume {format_study_argument(path.parent)}` "
                "rebuilds it from the study's journal",
            )

    connections = ConnectionTracker(*SQLITE_PRAGMAS, check=check_schema)
    try:
        # SQLAlchemy decodes `%` in a path and cuts it at `?`. Optuna formats `{`.
        url = f"sqlite:///{quote(str(path.resolve()))}"
        storage = RDBStorage(url, engine_kwargs={"pool_events": connections.pool_events})
        yield storage
        storage.remove_session()
    finally:
        connections.close_all()


def check_database_files(directory: Path, name: str) -> Path:
    """Return the path of a database that SQLite may open. The directory belongs to this account.

    Raises ForeignFileError if SQLite could change or delete a file elsewhere.
    """
    for suffix in COMPANION_SUFFIXES:
        foreign_files.check_writable_path(
            directory, name + suffix, foreign_files.MAX_DATABASE_BYTES
        )
    journal_name = name + COMPANION_SUFFIXES[0]
    with (
        suppress(FileNotFoundError),
        foreign_files.open_file(
            directory, journal_name, foreign_files.MAX_DATABASE_BYTES
        ) as journal,
    ):
        journal.seek(max(0, os.fstat(journal.fileno()).st_size - len(_SUPER_JOURNAL_MARK)))
        if journal.read(len(_SUPER_JOURNAL_MARK)) == _SUPER_JOURNAL_MARK:
            raise ForeignFileError(
                directory / journal_name, "names another file, which SQLite would delete"
            )
    return foreign_files.check_writable_path(directory, name, foreign_files.MAX_DATABASE_BYTES)


@contextmanager
def translate_storage_errors(path: Path) -> Iterator[None]:
    """Convert errors of the storage at ``path`` to AutotuneError, and a full disk to OSError.

    Writing the study's other files to a full disk raises the same OSError.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = find_database_error(error)
        if getattr(reason, "sqlite_errorcode", None) == SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise AutotuneError(
            f"{path} cannot be used: {reason}",
            hint="close other programs that use the database, or remove the database: `autotune resume "
            f"{format_study_argument(path.parent)}` rebuilds it from the study's journal",
        ) from error


@contextmanager
def translate_content_errors(path: Path) -> Iterator[None]:
    """Convert errors of the trials in the storage at ``path`` to AutotuneError. Someone else may have
    changed the database.
    """
    try:
        yield
    except INVALID_CONTENT_ERRORS as error:
        reason = describe_invalid_content(error)
        raise AutotuneError(
            f"{path} contains invalid trials ({reason})",
            hint=f"remove the database: `autotune resume {format_study_argument(path.parent)}` rebuilds "
            "it from the study's journal",
        ) from error


def find_database_error(error: SQLAlchemyError | StorageInternalError) -> BaseException:
    """Return the database's original error, without the SQL statement."""
    sql_error = error if isinstance(error, SQLAlchemyError) else error.__cause__
    return getattr(sql_error, "orig", None) or error
