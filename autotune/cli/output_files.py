"""Check the paths of output files before a command starts, so that no measurement is lost.

One rule applies to every output: its directory must exist, because a created directory could hide a
misspelt path.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from autotune import foreign_files
from autotune.errors import UsageError
from autotune.study_argument import EVENTS_FILE, STUDIES_DIRECTORY

TARGETS_DIRECTORY = Path("targets")  # the default directory of `init`, which creates it
PAGE_STARTS = (b"<!doctype html",)
METRICS_STARTS = (b"# help", b"# type")  # in lower case
MAX_START_BYTES = 256
DEVICES_DIRECTORY = Path("/dev")  # a file that replaces /dev/stdout would break other programs
PathCheck = Callable[[Any, Any], Path | None]


def check_log_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a file to append to. Raises UsageError if it cannot be written, or is a
    target.
    """
    if path is not None:
        option = parameter.opts[0]
        _check_file(option, path)
        if path.suffix in (".yaml", ".yml", ".html", ".json") and path.exists():
            raise UsageError(
                f"{option} {path}: the file exists and is not a log",
                hint=f"name another file: {option} FILE",
            )
    return path


def check_page_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of an HTML page to write. Raises UsageError, also for a file of another kind."""
    if path is not None:
        _check_replaced_file(parameter.opts[0], path, PAGE_STARTS, "an HTML page")
    return path


def check_metrics_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a metrics file to write. Raises UsageError, also for a file of another
    kind.
    """
    if path is not None:
        _check_replaced_file(parameter.opts[0], path, METRICS_STARTS, "a file of metrics")
    return path


def check_new_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a file to create. Raises UsageError if the file exists."""
    if path is not None:
        option = parameter.opts[0]
        _check_file(option, path)
        if path.exists():
            raise UsageError(
                f"{option} {path}: already exists", hint=f"name another file: {option} FILE"
            )
    return path


def check_target_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a target to create. `init` creates the directory ``targets`` itself."""
    if path is not None and path.parent == TARGETS_DIRECTORY and not path.parent.exists():
        return path
    return check_new_file(parameter, path)


def check_new_directory(parameter: typer.CallbackParam, path: Path) -> Path:
    """Return the path of a new or empty directory. Raises UsageError."""
    option = parameter.opts[0]
    _check_parent(option, path)
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(
            f"{option} {path}: the directory is not empty",
            hint="use an empty or new directory, such as `--out winner`",
        )
    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{option} {path}: is a file",
            hint="use an empty or new directory, such as `--out winner`",
        )
    return path


def check_studies_directory(parameter: typer.CallbackParam, path: Path) -> Path:
    """Return the directory of the studies, which may be missing. Raises UsageError for other paths."""
    if path == STUDIES_DIRECTORY:
        return path
    option = parameter.opts[0]
    _check_parent(option, path)
    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{option} {path}: is a file", hint="name the directory that contains the studies"
        )
    if foreign_files.has_file(path, EVENTS_FILE):
        raise UsageError(
            f"{option} {path}: is a study, not the directory of the studies",
            hint=f"name the directory that contains it: {option} {shlex.quote(str(path.parent))}",
        )
    return path


def check_lab_directory(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the directory of a lab, which may be missing. Raises UsageError for other paths."""
    if path is not None:
        option = parameter.opts[0]
        _check_parent(option, path)
        if path.exists() and not path.is_dir():
            raise UsageError(f"{option} {path}: is a file", hint="name a new directory for the lab")
    return path


def _check_replaced_file(
    option: str, path: Path, known_starts: tuple[bytes, ...], kind_text: str
) -> None:
    """Raise UsageError if ``path`` cannot be replaced, or is a file of another kind, whose content would
    be lost.
    """
    _check_file(option, path)
    if (path.exists() and not path.is_file()) or DEVICES_DIRECTORY in path.absolute().parents:
        raise UsageError(
            f"{option} {path}: is not a regular file", hint=f"name a new file: {option} FILE"
        )
    if not path.exists():
        return
    with path.open("rb") as file:
        start = file.read(MAX_START_BYTES).lstrip()
    if start and not start.lower().startswith(known_starts):
        raise UsageError(
            f"{option} {path}: the file exists and is not {kind_text}",
            hint=f"name another file: {option} FILE",
        )


def _check_file(option: str, path: Path) -> None:
    """Raise UsageError if autotune cannot write a file to ``path``."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a directory", hint="name a file in this directory")
    if str(path) == "-":
        raise UsageError(
            f"{option} -: standard output is not supported", hint=f"name a file: {option} FILE"
        )
    _check_parent(option, path)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(
            f"{option} {path}: permission denied",
            hint="name a path that this account may write",
        )


def _check_parent(option: str, path: Path) -> None:
    """Raise UsageError if the directory that contains ``path`` does not exist."""
    parent = path.parent
    if parent.is_dir():
        return
    nearest_path = next(ancestor for ancestor in path.parents if ancestor.exists())
    if not nearest_path.is_dir():
        raise UsageError(
            f"{option} {path}: {nearest_path} is a file, not a directory",
            hint="name a path in a directory",
        )
    raise UsageError(
        f"{option} {path}: directory {parent} does not exist",
        hint=f"create the directory first: `mkdir -p {shlex.quote(str(parent))}`",
    )
