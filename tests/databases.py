"""SQLite connections that a test opens. All of them must be closed at its end.

Python warns of open connections only since version 3.13, and only during garbage collection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from sqlite3 import dbapi2
from typing import Any

OPEN: set[sqlite3.Connection] = set()


class Tracked(sqlite3.Connection):
    """A connection that is listed in ``OPEN`` until it is closed."""

    def __init__(self, database: Any, *options: Any, **more: Any) -> None:
        super().__init__(database, *options, **more)
        self.database = str(database)
        OPEN.add(self)

    def close(self) -> None:
        super().close()
        OPEN.discard(self)


for _module in (sqlite3, dbapi2):  # SQLAlchemy calls the function of the second module
    _module.connect = partial(_module.connect, factory=Tracked)  # type: ignore[assignment]


@contextmanager
def expect_closed() -> Iterator[None]:
    """Close connections that the block leaves open, and raise AssertionError for them."""
    before = set(OPEN)
    yield
    left = OPEN - before
    names = [getattr(connection, "database", "?") for connection in left]
    for connection in left:
        connection.close()
    assert not names, f"databases left open: {names}"
