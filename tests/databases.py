"""SQLite connections that a test opens: each must be closed when it ends.

Python warns of the others from 3.13 on, and only once the garbage collector finds them.
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
    """A connection that is in ``OPEN`` until it is closed."""

    def __init__(self, database: Any, *options: Any, **more: Any) -> None:
        super().__init__(database, *options, **more)
        self.database = str(database)
        OPEN.add(self)

    def close(self) -> None:
        super().close()
        OPEN.discard(self)


for _module in (sqlite3, dbapi2):  # SQLAlchemy calls the one of the second
    _module.connect = partial(_module.connect, factory=Tracked)  # type: ignore[assignment]


@contextmanager
def expect_closed() -> Iterator[None]:
    """Raises AssertionError for connections that the block leaves open, and closes them."""
    before = set(OPEN)
    yield
    left = OPEN - before
    names = [getattr(connection, "database", "?") for connection in left]
    for connection in left:
        connection.close()
    assert not names, f"databases left open: {names}"
