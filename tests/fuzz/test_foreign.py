"""Studies and exports from strangers: read or refused, and nothing else, whatever is in them.

``AUTOTUNE_SEED=7 make test-soak`` makes other ones; ``AUTOTUNE_STUDIES`` says how many.
"""

from __future__ import annotations

import io
import os
import sqlite3
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from autotune import exit_handling
from autotune.cli import app
from tests import soak
from tests.fuzz.foreign import Result, campaign, make_study
from tests.fuzz.odd_data import SCHEMAS

STUDIES = int(os.environ.get("AUTOTUNE_STUDIES", "320"))


def test_nothing_in_a_strangers_study_does_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults(campaign_in(tmp_path, 3, monkeypatch)) == {}


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_in_hundreds_of_strangers_studies_does_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = campaign_in(tmp_path, STUDIES, monkeypatch)
    print(f"{STUDIES} studies and exports, seed {soak.SEED}: {result}")
    assert faults(result) == {}


@pytest.mark.long
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_changed_database_is_refused_or_used(
    schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = make_study(tmp_path)
    with closing(sqlite3.connect(study / "study.db")) as database:
        database.executescript(schema)
        database.commit()
    words = ["resume", study.name, "--yes", "--quiet", "--studies", str(study.parent)]
    errors = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(errors):
        code = exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=False)
    assert code in (0, 1), errors.getvalue()
    assert not code or "remove the database" in errors.getvalue()


def campaign_in(tmp_path: Path, studies: int, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return campaign(tmp_path, studies, soak.SEED)


def faults(result: Result) -> dict[str, str]:
    for what, example in result.faults.items():
        print(f"{what}: {example}")
    return result.faults
