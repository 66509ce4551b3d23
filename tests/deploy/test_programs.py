"""Where a host has the programs of services and load generators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autotune.deploy.programs import locate_programs
from tests.deploy.doubles import Here


def test_the_first_installed_alternative_of_each_program_is_located(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    missing, old, new = (str(tmp_path / name) for name in ("missing", "old", "new"))
    users: list[Any] = [
        SimpleNamespace(programs={"server": (missing, new, old), "tool": (missing,)}),
        SimpleNamespace(programs={"load": (old,)}),
    ]
    assert locate_programs(Here(tmp_path), users) == {"server": new, "tool": "", "load": old}
