"""A copy of a shared study's outcomes in Optuna's tables, for optuna-dashboard and other readers.

One worker at a time writes the copy in a background thread. Searches and records do not wait for these
writes, and no decision depends on the copy.
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
from autotune.study import database_records
from autotune.study.search_history import sync_outcomes
from autotune.study.state_replay import replay_records
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_state import State

POLL_SECONDS = 2.0  # seconds between checks for new records


@contextmanager
def copy_in_background(
    database: StudyDatabase,
    study: SharedStudy,
    create_searcher: Callable[[RDBStorage], Searcher],
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[None]:
    """Copy outcomes during the ``with`` block and once more at its end, unless another worker copies
    them.

    ``create_searcher`` returns a search that uses Optuna's tables.
    """
    stop_event = threading.Event()

    def copy_until_stopped() -> None:
        is_last_copy = False
        while not is_last_copy:
            is_last_copy = stop_event.wait(poll_seconds)
            with suppress(SQLAlchemyError, StorageInternalError, AutotuneError):
                _copy_outcomes(database, study, create_searcher, stop_event, poll_seconds)

    thread = threading.Thread(target=copy_until_stopped, name="optuna copy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def _copy_outcomes(
    database: StudyDatabase,
    study: SharedStudy,
    create_searcher: Callable[[RDBStorage], Searcher],
    stop_event: threading.Event,
    poll_seconds: float,
) -> None:
    """Write new outcomes until ``stop_event`` is set, unless another worker writes them."""
    with database.claim_optuna_writer(study) as optuna_storage:
        if optuna_storage is None:
            return
        searcher, state, record_count = create_searcher(optuna_storage), State(), 0
        searcher.discard_pending_suggestions()
        while True:
            is_last_copy = stop_event.is_set()
            read_new_records = partial(
                database_records.read_records_after, study=study.study_id, last_number=record_count
            )
            records = database.run_transaction(read_new_records)
            state, record_count = replay_records(records, state), record_count + len(records)
            sync_outcomes(searcher, state)
            if is_last_copy:
                return
            stop_event.wait(poll_seconds)
