"""Run directories of private stacks, including directories that killed tuners left.

Run directories are in the directory for temporary files. A record outside of the study maps each run
directory to its study. Manipulated files in a study therefore cannot make autotune remove other
directories or stop other processes.
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

from autotune import durable_files, foreign_files
from autotune.account_key import find_state_directory, make_state_directory
from autotune.errors import AutotuneError
from autotune.strict_parsing import parse_json

# subdirectory of the account's state directory, with a record of each run directory
RECORD_DIRECTORY = "runs"
DIRECTORY_PREFIX = "autotune-"
# A file with this name contains the name of its run directory, so that autotune recognises the directory.
MARKER_FILE = ".run-directory"


@dataclass(frozen=True)
class RunDirectory:
    """The directory ``path`` of a private stack. ``study`` may be the directory of a test bed."""

    study: Path
    path: Path


def make_run_directory(study: Path, *, is_shared: bool) -> Path:
    """Create an empty run directory for a study, replacing any earlier run directory of the study.

    With ``is_shared``, other accounts have access, which servers need after they drop their
    privileges. Raises AutotuneError.
    """
    remove_run_directory(study)
    directory_name = f"{DIRECTORY_PREFIX}{secrets.token_hex(8)}"
    path = Path(tempfile.gettempdir()).resolve() / directory_name
    directory_record = {"study": str(study.resolve()), "directory": str(path)}
    record_directory = make_state_directory() / RECORD_DIRECTORY
    durable_files.make_directory(record_directory, 0o700)
    # Write the record first, so that a killed tuner leaves no unrecorded directory.
    durable_files.write_file(
        record_directory / _record_name(study), json.dumps(directory_record).encode(), 0o600
    )
    path.mkdir(mode=0o700)
    (path / MARKER_FILE).write_text(directory_name, encoding="ascii")
    path.chmod(0o755 if is_shared else 0o700)
    return path


def remove_run_directory(study: Path) -> None:
    """Remove the run directory of a study, if it exists."""
    directory = find_run_directory(study)
    if directory is not None:
        if is_run_directory(directory.path):
            shutil.rmtree(directory.path)  # does not follow links
        _record_path(study).unlink(missing_ok=True)


def find_run_directory(study: Path) -> RunDirectory | None:
    """Return the recorded run directory of a study."""
    record_path = _record_path(study)
    directory = _read_record(record_path.parent, record_path.name)
    return directory if directory and directory.study == study.resolve() else None


def list_run_directories(root: Path) -> Iterator[RunDirectory]:
    """Yield the run directories of all studies below ``root``."""
    record_directory = find_state_directory() / RECORD_DIRECTORY
    for record_name in foreign_files.list_names(record_directory):
        directory = _read_record(record_directory, record_name)
        if directory is not None and directory.study.is_relative_to(root.resolve()):
            yield directory


def _record_path(study: Path) -> Path:
    return find_state_directory() / RECORD_DIRECTORY / _record_name(study)


def _record_name(study: Path) -> str:
    return hashlib.sha256(os.fsencode(study.resolve())).hexdigest()[:32]


def _read_record(record_directory: Path, record_name: str) -> RunDirectory | None:
    try:
        record = parse_json(
            foreign_files.read_bytes(
                record_directory, record_name, foreign_files.MAX_SMALL_FILE_BYTES
            )
        )
        return RunDirectory(Path(record["study"]), Path(record["directory"]))
    except (OSError, ValueError, KeyError, TypeError, AutotuneError):
        return None  # without a valid record, the directory is unknown


def is_run_directory(path: Path) -> bool:
    """True if this account made the directory for a private stack."""
    try:
        path_status = path.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(path_status.st_mode) or path_status.st_uid != os.geteuid():
        return False
    with contextlib.suppress(OSError, AutotuneError):
        marker_content = foreign_files.read_bytes(
            path, MARKER_FILE, foreign_files.MAX_SMALL_FILE_BYTES
        )
        return path.name.startswith(DIRECTORY_PREFIX) and marker_content == path.name.encode()
    return not any(path.iterdir())  # a tuner may be killed before it writes the marker
