"""The directories that private stacks live in, and which of them a killed tuner left behind.

Each is in the directory for temporary files. Which study it belongs to is recorded outside of studies,
so that nothing in a study can name a directory to be removed or a process to be ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune import durable, foreign_files
from autotune.account_key import make_state_directory, state_directory
from autotune.errors import AutotuneError
from autotune.strict import parse_json

RUNS = "runs"  # in the account's state directory: a record of each run directory
PREFIX = "autotune-"
MARK = (
    ".run-directory"  # in a run directory: its own name, so that no other directory is taken for it
)


@dataclass(frozen=True)
class RunDirectory:
    """The directory ``path`` of the private stack of ``study``, which may be that of a test bed."""

    study: Path
    path: Path


def make(study: Path, *, for_others: bool) -> Path:
    """An empty directory for the stack of a study, instead of any it has.

    ``for_others``: servers drop to an unprivileged account, which must reach their files.
    Raises AutotuneError.
    """
    remove(study)
    name = f"{PREFIX}{secrets.token_hex(8)}"
    path = Path(tempfile.gettempdir()).resolve() / name
    record = {"study": str(study.resolve()), "directory": str(path)}
    runs = make_state_directory() / RUNS
    durable.make_directory(runs, 0o700)
    # On record first: a tuner that is killed now leaves nothing that is not on record.
    durable.write(runs / _name(study), json.dumps(record).encode(), 0o600)
    path.mkdir(mode=0o700)
    (path / MARK).write_text(name, encoding="ascii")
    path.chmod(0o755 if for_others else 0o700)
    return path


def remove(study: Path) -> None:
    """Remove the run directory of a study, if it has one."""
    directory = of_study(study)
    if directory is not None:
        if is_own(directory.path):
            shutil.rmtree(directory.path)  # follows no link
        _record(study).unlink(missing_ok=True)


def of_study(study: Path) -> RunDirectory | None:
    """The run directory on record for a study."""
    record = _record(study)
    directory = _read(record.parent, record.name)
    return directory if directory and directory.study == study.resolve() else None


def below(root: Path) -> Iterator[RunDirectory]:
    """The run directories of all studies below ``root``."""
    runs = state_directory() / RUNS
    for name in foreign_files.names(runs):
        directory = _read(runs, name)
        if directory is not None and directory.study.is_relative_to(root.resolve()):
            yield directory


def _record(study: Path) -> Path:
    return state_directory() / RUNS / _name(study)


def _name(study: Path) -> str:
    return hashlib.sha256(os.fsencode(study.resolve())).hexdigest()[:32]


def _read(runs: Path, name: str) -> RunDirectory | None:
    try:
        record = parse_json(foreign_files.read_bytes(runs, name, foreign_files.SMALL))
        return RunDirectory(Path(record["study"]), Path(record["directory"]))
    except (OSError, ValueError, KeyError, TypeError, AutotuneError):
        return None  # what it was the record of cannot be known


def is_own(path: Path) -> bool:
    """True if a directory is one that this account made for a private stack."""
    try:
        status = path.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    with contextlib.suppress(OSError, AutotuneError):
        mark = foreign_files.read_bytes(path, MARK, foreign_files.SMALL)
        return path.name.startswith(PREFIX) and mark == path.name.encode()
    return not any(path.iterdir())  # killed before the mark was there
