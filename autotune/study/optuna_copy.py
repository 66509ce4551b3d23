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
from autotune.study import study_database
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_loop import sync_outcomes
from autotune.study.study_state import State, replay_records

POLL_SECONDS = 2.0  # seconds between looks at what is new


@contextmanager
def copy_in_background(
    database: StudyDatabase,
    study: SharedStudy,
    create_searcher: Callable[[RDBStorage], Searcher],
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[None]:
    """Copy outcomes while the block runs, and the last ones when it ends, unless another worker does.
    ``create_searcher`` makes a search in Optuna's tables."""
    ended = threading.Event()

    def run() -> None:
        last = False
        while not last:
            last = ended.wait(poll_seconds)
            with suppress(SQLAlchemyError, StorageInternalError, AutotuneError):
                _copy_outcomes(database, study, create_searcher, ended, poll_seconds)

    thread = threading.Thread(target=run, name="optuna copy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _copy_outcomes(
    database: StudyDatabase,
    study: SharedStudy,
    create_searcher: Callable[[RDBStorage], Searcher],
    stop_event: threading.Event,
    poll_seconds: float,
) -> None:
    """Write what is new until ``stop_event``, as the one worker that does."""
    with database.claim_optuna_writer(study) as tables:
        if tables is None:
            return
        searcher, state, number = create_searcher(tables), State(), 0
        searcher.discard_pending()
        while True:
            last = stop_event.is_set()
            new = partial(study_database.read_records_after, study=study.study_id, number=number)
            records = database.run_transaction(new)
            state, number = replay_records(records, state), number + len(records)
            sync_outcomes(searcher, state)
            if last:
                return
            stop_event.wait(poll_seconds)
