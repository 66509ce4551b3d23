"""What `init` prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app


def test_the_next_command_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "--example", "paper", "--out", "my shop.yaml"])
    assert done.exit_code == 0, done.output
    assert "next: `autotune check 'my shop.yaml'`" in done.output
