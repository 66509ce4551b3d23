"""Copies of example targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.target.shipped_files import list_examples, write_example


def test_an_example_is_written_once_and_edits_are_kept(tmp_path: Path) -> None:
    copy = tmp_path / "targets" / "paper.yaml"
    assert write_example("paper", copy)
    assert copy.read_bytes() == list_examples()["paper"].read_bytes()
    assert not write_example("paper", copy)
    copy.write_text("name: mine\n")
    with pytest.raises(UsageError, match="already exists"):
        write_example("paper", copy)
    assert copy.read_text() == "name: mine\n"


def test_a_missing_program_of_an_example_is_added(tmp_path: Path) -> None:
    copy, program = tmp_path / "command.yaml", tmp_path / "command.py"
    assert write_example("command", copy)
    program.unlink()
    assert write_example("command", copy)
    assert program.exists()
