"""Optuna's storage in a SQLite file, and the errors of its database."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import SQLITE_FULL
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import AutotuneError

# Optuna commits once for each parameter of each trial. With a write-ahead log, those commits need not
# wait for the disk. Nothing is lost if the process is killed. After a power failure, at most the last
# trials are missing, and are recorded again from the study's own journal. The file is never damaged.
SQLITE_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")


class ConnectionTracker:
    """The open connections of an SQLAlchemy engine, tracked by the events of its connection pool.

    Optuna creates the engine in a constructor that may raise an error. After such an error, only the
    pool's events give access to the open connections.
    """

    def __init__(self, *pragmas: str) -> None:
        self._pragmas = pragmas
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

    def _remove_connection(self, connection: Any, _: object) -> None:
        self._open_connections.discard(connection)


@contextmanager
def open_sqlite(path: Path) -> Iterator[RDBStorage]:
    """Yield Optuna's storage in the file at ``path``, which is created if necessary.

    Other programs can open the file at the same time. Every connection is closed at the end of the
    ``with`` block. Raises SQLAlchemyError or StorageInternalError (see ``translate_storage_errors``).
    """
    connections = ConnectionTracker(*SQLITE_PRAGMAS)
    try:
        url = f"sqlite:///{path.resolve()}"
        storage = RDBStorage(url, engine_kwargs={"pool_events": connections.pool_events})
        yield storage
        storage.remove_session()
    finally:
        connections.close_all()


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
            hint="close other programs that use the database, or remove the database: `autotune resume` "
            "rebuilds it from the study's journal",
        ) from error


def find_database_error(error: SQLAlchemyError | StorageInternalError) -> BaseException:
    """Return the database's original error, without the SQL statement."""
    sql_error = error if isinstance(error, SQLAlchemyError) else error.__cause__
    return getattr(sql_error, "orig", None) or error
