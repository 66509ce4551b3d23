"""Where a sampler's trials are kept: SQLite, in the way that makes a trial cheap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optuna.storages import RDBStorage
from sqlalchemy import event

# Optuna commits once for each parameter of each trial. With a write-ahead log those commits need not
# wait for the disk: a killed process loses nothing, and a machine that loses power at most the last
# trials, which the study's own journal has and tells again. Neither harms the file.
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")


def sqlite(path: Path) -> RDBStorage:
    """Optuna's storage in the file at ``path``, which is made if need be; any reader of such files
    can open it meanwhile."""
    # Tables are made on the first connection, and a file stays in the mode it was put to.
    storage = RDBStorage(f"sqlite:///{path.resolve()}")
    event.listen(storage.engine, "connect", _set)
    storage.engine.dispose()
    return storage


def _set(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
