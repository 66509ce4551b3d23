"""Copies of example targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.target.shipped_files import list_examples, write_example
from tests.full_disk import limit_file_size


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


def test_a_copy_that_a_full_disk_stopped_is_repeated(tmp_path: Path) -> None:
    copy = tmp_path / "paper.yaml"
    with limit_file_size(100), pytest.raises(OSError, match="File too large"):
        write_example("paper", copy)
    assert write_example("paper", copy)
    assert copy.read_bytes() == list_examples()["paper"].read_bytes()
