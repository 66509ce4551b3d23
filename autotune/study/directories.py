"""Where studies live, and what earlier ones left behind."""

from __future__ import annotations

import itertools
from pathlib import Path

from autotune.deploy.ground import remove_run_directory
from autotune.runtimes.server_process import end_left_behind
from autotune.study.lock import is_held


def new_directory(root: Path, name: str) -> Path:
    """``root/name``, or ``name-2``, ``name-3`` … where studies of that name exist already."""
    for number in itertools.count(1):
        directory = root / (name if number == 1 else f"{name}-{number}")
        if not directory.exists():
            return directory
    raise AssertionError("counting never ends")


def clear_left_behind(root: Path) -> tuple[str, ...]:
    """End servers of studies whose tuner was killed and take their run directories away.

    Studies that a living tuner holds are left alone. What was ended, as ``study: server``.
    """
    ended: list[str] = []
    for run in sorted(root.glob("*/run")):
        study = run.parent
        if not is_held(study / "lock"):
            ended += [f"{study.name}: {name}" for name in end_left_behind(run.resolve())]
            remove_run_directory(study)
    return tuple(ended)
