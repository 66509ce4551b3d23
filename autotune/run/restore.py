"""Putting back what a killed study left behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.deploy.ground import remove_run_directory
from autotune.deploy.processes import end_left_behind
from autotune.errors import AutotuneError, LockedError
from autotune.study.lock import holder, is_held
from autotune.study.store import first_record
from autotune.target.read import read


def studies_of(target: Path, root: Path) -> list[Path]:
    """The studies under ``root`` that were made of this target file. Raises TargetError."""
    name = read(target).target.name
    return [study for study in sorted(root.glob(f"{name}*")) if _is_of(study, target)]


def restore(studies: Sequence[Path]) -> list[str]:
    """Restore studies; what was done, a line each.

    Raises LockedError when a living tuner holds one of them: end that first.
    """
    return [line for study in studies for line in _restore(study)]


def _is_of(study: Path, target: Path) -> bool:
    try:
        return Path(first_record(study)["source"]) == target.resolve()
    except AutotuneError:
        return False


def _restore(study: Path) -> list[str]:
    lock = study / "lock"
    if is_held(lock):
        raise LockedError(
            f"{study.name} is being tuned by {holder(lock)}", hint="stop that one: it restores too"
        )
    run = study / "run"
    if not run.exists() and not run.is_symlink():
        return []
    ended = end_left_behind(run.resolve())
    remove_run_directory(study)
    return [f"{study.name}: ended {name}" for name in ended] + [
        f"{study.name}: run directory removed"
    ]
