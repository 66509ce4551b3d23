from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import optuna

from autotune.optimize.searcher import sqlite

TELLS = """
import os, signal, sys
from pathlib import Path
import optuna
from autotune.optimize.searcher import sqlite
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(storage=sqlite(Path(sys.argv[1])), study_name="s")
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_nothing_and_any_reader_can_open_the_file(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    ended = subprocess.run([sys.executable, "-c", TELLS, str(path)], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    study = optuna.load_study(storage=f"sqlite:///{path}", study_name="s")
    assert len(study.trials) == 3


def test_commits_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    storage = sqlite(tmp_path / "study.db")
    with storage.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
    with sqlite3.connect(tmp_path / "study.db") as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
