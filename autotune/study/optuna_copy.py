"""A shared study's outcomes in Optuna's tables too, for optuna-dashboard and whatever else reads them.

One worker at a time writes them, in a thread beside its measurements. No search and no record waits for
these writes, and no decision is based on these tables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import AutotuneError
from autotune.optimize.searcher import Searcher
from autotune.study import storage
from autotune.study.loop import hear_outcomes
from autotune.study.records import State, replay
from autotune.study.storage import SharedStudy, Storage

EVERY = 2.0  # seconds between looks at what is new


@contextmanager
def copying(
    database: Storage,
    study: SharedStudy,
    search: Callable[[RDBStorage], Searcher],
    every: float = EVERY,
) -> Iterator[None]:
    """Copy outcomes while the block runs, and the last ones when it ends, unless another worker does.
    ``search`` makes a search in Optuna's tables."""
    ended = threading.Event()

    def run() -> None:
        last = False
        while not last:
            last = ended.wait(every)
            with suppress(SQLAlchemyError, StorageInternalError, AutotuneError):
                _copy(database, study, search, ended, every)

    thread = threading.Thread(target=run, name="optuna copy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _copy(
    database: Storage,
    study: SharedStudy,
    search: Callable[[RDBStorage], Searcher],
    ended: threading.Event,
    every: float,
) -> None:
    """Write what is new until ``ended``, as the one worker that does."""
    with database.only_writer(study) as tables:
        if tables is None:
            return
        searcher, state, number = search(tables), State(), 0
        searcher.discard_pending()
        while True:
            last = ended.is_set()
            new = partial(storage.after, study=study.number, number=number)
            records = database.transaction(new)
            state, number = replay(records, state), number + len(records)
            hear_outcomes(searcher, state)
            if last:
                return
            ended.wait(every)
