from __future__ import annotations

import errno
import os
import signal
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autotune.errors import AutotuneError
from autotune.optimize import storage as storages
from autotune.optimize.storage import (
    SQLITE_PRAGMAS,
    check_database_files,
    open_sqlite,
    translate_storage_errors,
)
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


@pytest.mark.parametrize(
    "name", ["what?", "a?mode=memory", "{SCHEMA_VERSION}", "50%", "%41", "#1", "ä b"]
)
def test_a_database_is_in_its_directory_whatever_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with open_sqlite(tmp_path / name / "study.db") as storage:
        optuna.create_study(storage=storage, study_name="s")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with closing(sqlite3.connect(tmp_path / name / "study.db")) as other:
        assert other.execute("SELECT study_name FROM studies").fetchall() == [("s",)]


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


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
# Schemas that Optuna does not create. ``raw`` schemas are written past SQLite's own checks.
MEAN_SCHEMAS = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
    "an endless trigger": f"CREATE TRIGGER t AFTER INSERT ON trials BEGIN {ENDLESS}; END",
    "an endless view": f"CREATE VIEW v AS {ENDLESS}",
    "an endless view as a table": f"DROP TABLE version_info; CREATE VIEW version_info AS {ENDLESS}",
    "a virtual table": "CREATE VIRTUAL TABLE v USING fts3(a)",
    "a virtual column": "CREATE TABLE v (a, b AS (zeroblob(a)) VIRTUAL)",
    "a generated column": "CREATE TABLE v (a, b AS(zeroblob(a)))",
    "a stored column": "CREATE TABLE v (a, b AS (a) STORED)",
    "raw view": "INSERT INTO sqlite_master VALUES ('table', 'v', 'v', 2, "
                f"'/**/CREATE VIEW v AS {ENDLESS}')",
    "raw trigger": "INSERT INTO sqlite_master VALUES ('table', 't', 'trials', 2, "
                   "' create trigger t after insert on trials begin delete from trials; end')",
}  # fmt: skip


@pytest.mark.parametrize("schema", MEAN_SCHEMAS.values(), ids=MEAN_SCHEMAS)
def test_nothing_in_a_database_is_run(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "study.db"
    with open_sqlite(path) as storage:
        optuna.create_study(storage=storage, study_name="s")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.executescript(schema)
        other.commit()
    with (
        pytest.raises(
            AutotuneError, match=r"which Optuna does not create|cannot be used"
        ) as caught,
        translate_storage_errors(path),
        open_sqlite(path),
    ):
        pass
    assert "remove the database" in (caught.value.hint or "")


def hot_journal(precious: Path) -> bytes:
    """Return a rollback journal that names another file, as after a transaction over two databases."""
    name = os.fsencode(precious)
    checksum = sum(name) & 0xFFFFFFFF
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 1, 1, 512, 4096)
    tail = struct.pack(">I", 1 << 20) + name + struct.pack(">II", len(name), checksum)
    return header.ljust(512, b"\0") + tail + bytes.fromhex("d9d505f920a163d7")


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize("lie", ["a link", "a pipe", "a hard link", "another journal"])
def test_no_file_elsewhere_is_changed_for_a_database(tmp_path: Path, suffix: str, lie: str) -> None:
    precious, directory = tmp_path / "precious", tmp_path / "study"
    precious.write_text("precious")
    directory.mkdir()
    path = directory / f"study.db{suffix}"
    match lie:
        case "a link":
            path.symlink_to(precious)
        case "a pipe":
            os.mkfifo(path)
        case "a hard link":
            os.link(precious, path)
        case "another journal" if suffix == "-journal":
            path.write_bytes(hot_journal(precious))
        case _:
            return
    with pytest.raises(AutotuneError) as caught:
        check_database_files(directory, "study.db")
    assert str(path) in str(caught.value)
    assert precious.read_text() == "precious"


def test_the_files_of_a_killed_process_are_opened(tmp_path: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        (tmp_path / f"study.db{suffix}").touch()
    assert check_database_files(tmp_path, "study.db") == tmp_path / "study.db"
