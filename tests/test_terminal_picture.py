"""`scripts.terminal_picture`: the panel of a recorded study as a picture that needs no network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.report.studies import open_study
from scripts import terminal_picture
from tests.report.recorded_lab import lab_study


def test_the_picture_shows_the_readings_of_the_best_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_picture, "FILE", tmp_path / "terminal.svg")
    for variable in ("COLUMNS", "LINES", "TERM"):
        monkeypatch.setenv(variable, "")  # what `main` sets is undone after the test
    study = lab_study(tmp_path)
    terminal_picture.main(study)
    picture = re.sub(r"<[^>]+>", " ", (tmp_path / "terminal.svg").read_text())
    best = terminal_picture.best_of_search(open_study(study))
    assert f"#{best.number}" in picture
    assert "p99" in picture
    assert picture.count("late") >= 2


def test_no_picture_of_the_documents_needs_a_network() -> None:
    shown = terminal_picture.FILE.read_text()
    assert "@font-face" not in shown
    assert "url(http" not in shown
