from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autotune.errors import AutotuneError
from autotune.optimize import storage as storages
from autotune.optimize.storage import SQLITE_PRAGMAS, open_sqlite, translate_storage_errors
from tests import databases

TELLS = """
import os, signal, sys
from pathlib import Path
import optuna
from autotune.optimize.storage import open_sqlite
optuna.logging.set_verbosity(optuna.logging.ERROR)
with open_sqlite(Path(sys.argv[1])) as storage:
    study = optuna.create_study(storage=storage, study_name="s")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_a_killed_process_loses_nothing_and_any_reader_can_open_the_file(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    ended = subprocess.run([sys.executable, "-c", TELLS, str(path)], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    with open_sqlite(path) as storage:
        assert len(optuna.load_study(storage=storage, study_name="s").trials) == 3


def test_commits_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    with open_sqlite(tmp_path / "study.db") as storage, storage.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
    with closing(sqlite3.connect(tmp_path / "study.db")) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_each_connection_is_closed_with_its_block(tmp_path: Path) -> None:
    before = set(databases.OPEN)
    with open_sqlite(tmp_path / "study.db") as storage:
        optuna.create_study(storage=storage, study_name="s")
        assert databases.OPEN - before
    assert not databases.OPEN - before


def test_the_connection_to_what_is_no_database_is_closed_too(tmp_path: Path) -> None:
    path, before = tmp_path / "study.db", set(databases.OPEN)
    path.write_bytes(b"no database")
    with pytest.raises(AutotuneError), translate_storage_errors(path), open_sqlite(path):
        pass
    assert not databases.OPEN - before


@pytest.mark.parametrize(
    "content", [b"no database", b"SQLite format 3\x00" + 200 * b"\xff", None], ids=range(3)
)
def test_a_file_that_is_no_database_is_named_with_what_to_do(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "study.db"
    if content is None:  # one that was cut
        with open_sqlite(path) as storage:
            optuna.create_study(storage=storage, study_name="s")
        content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    with (
        pytest.raises(AutotuneError) as caught,
        translate_storage_errors(path),
        open_sqlite(path) as storage,
    ):
        optuna.create_study(storage=storage, study_name="s")
    assert caught.value.message.startswith(f"{path} cannot be used: ")
    assert "autotune resume" in (caught.value.hint or "")


@pytest.mark.parametrize("pages", [1, 120], ids=["making its tables", "searching"])
def test_a_full_disk_is_said_as_of_any_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    path = tmp_path / "study.db"
    monkeypatch.setattr(storages, "SQLITE_PRAGMAS", (*SQLITE_PRAGMAS, f"max_page_count = {pages}"))
    with (
        pytest.raises(OSError, match="No space left") as caught,
        translate_storage_errors(path),
        open_sqlite(path) as storage,
    ):
        optuna.create_study(storage=storage, study_name="s").set_user_attr("a", 2**20 * "x")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))


@pytest.mark.long  # as long as SQLite waits for the lock
def test_a_database_that_somebody_keeps_locked_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.db"
    monkeypatch.setattr(storages, "SQLITE_PRAGMAS", (*SQLITE_PRAGMAS, "busy_timeout = 100"))
    with open_sqlite(path) as storage, closing(sqlite3.connect(path)) as other:
        study = optuna.create_study(storage=storage, study_name="s")
        other.execute("BEGIN EXCLUSIVE")
        with (
            pytest.raises(AutotuneError, match="database is locked"),
            translate_storage_errors(path),
        ):
            study.ask()
