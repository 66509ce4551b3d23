from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.report.studies import Study, open_study

STUDIES = Path(__file__).parent / "studies"


@pytest.fixture
def study() -> Callable[[str], Study]:
    """Return a function that opens a recorded study by name."""
    return lambda name: open_study(STUDIES / name)


@pytest.fixture
def beside_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the directory whose `studies` are the recorded ones, so that no command names it."""
    monkeypatch.chdir(STUDIES.parent)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a recorded study to a writable directory."""
    return lambda name: Path(shutil.copytree(STUDIES / name, tmp_path / "studies" / name))
