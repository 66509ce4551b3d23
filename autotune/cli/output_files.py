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
from autotune.target.path_hints import describe_directory

TARGETS_DIRECTORY = Path("targets")  # the default directory of `init`, which creates it
PAGE_STARTS = (b"<!doctype html",)
METRICS_STARTS = (b"# help", b"# type")  # in lower case
MAX_START_BYTES = 256
PAGE_SUFFIXES, LOG_SUFFIXES = (".html", ".htm", ".xhtml"), (".log", ".txt", ".out")
METRICS_SUFFIXES, YAML_SUFFIXES = (".prom", ".txt", ".metrics"), (".yaml", ".yml")
# Suffixes that name the format of a file. Other parts of a name, such as a date, are not checked.
FORMAT_SUFFIXES = frozenset(
    (
        *PAGE_SUFFIXES,
        *LOG_SUFFIXES,
        *METRICS_SUFFIXES,
        *YAML_SUFFIXES,
        *(".json", ".jsonl", ".csv", ".tsv", ".md", ".pdf", ".png", ".svg", ".xml", ".zip", ".gz"),
        *(".tgz", ".tar", ".xz", ".bz2", ".patch", ".diff", ".sh", ".py", ".js", ".conf", ".toml"),
    )
)
DEVICES_DIRECTORY = Path("/dev")  # a file that replaces /dev/stdout would break other programs
PathCheck = Callable[[Any, Any], Path | None]


def check_log_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a file to append to. Raises UsageError if it cannot be written, or is a
    target.
    """
    if path is not None:
        option = parameter.opts[0]
        _check_file(option, path)
        if path.suffix.lower() in FORMAT_SUFFIXES - {*LOG_SUFFIXES} and path.exists():
            raise UsageError(
                f"{option} {path}: the file exists and is not a log",
                hint=f"name another file: {option} FILE",
            )
        _check_suffix(option, path, LOG_SUFFIXES, "a text log")
    return path


def check_page_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of an HTML page to write. Raises UsageError, also for a file of another kind."""
    if path is not None:
        _check_replaced_file(parameter.opts[0], path, PAGE_STARTS, "an HTML page")
        _check_suffix(parameter.opts[0], path, PAGE_SUFFIXES, "an HTML page")
    return path


def check_metrics_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a metrics file to write. Raises UsageError, also for a file of another
    kind.
    """
    if path is not None:
        _check_replaced_file(parameter.opts[0], path, METRICS_STARTS, "a file of metrics")
        _check_suffix(parameter.opts[0], path, METRICS_SUFFIXES, "a file of metrics")
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
        _check_suffix(option, path, (*YAML_SUFFIXES, ".txt"), "a YAML file")
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
    if str(path) == "-":
        raise UsageError(
            f"{option} -: standard output is not supported",
            hint="name a new directory, such as `--out winner`",
        )
    if path.is_dir() and any(path.iterdir()):
        example = "winner" if path.name in ("", "..") else f"{path}-2"
        raise UsageError(
            f"{option} {path}: the directory is not empty",
            hint=f"use an empty or new directory, such as `{option} {shlex.quote(example)}`",
        )
    if path.is_dir() and path.samefile("."):  # it will be replaced, and the shell is in it
        raise UsageError(
            f"{option} {path}: is the current directory",
            hint="name a new directory, such as `--out winner`",
        )
    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{option} {path}: is a file",
            hint="use an empty or new directory, such as `--out winner`",
        )
    if path.suffix.lower() in FORMAT_SUFFIXES:
        directory = path.with_name(path.name.lstrip(".").partition(".")[0])
        raise UsageError(
            f"{option} {path}: is the name of a file, and an export is a directory",
            hint=f"name a directory, such as `{option} {shlex.quote(str(directory))}`",
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


def check_existing_studies(parameter: typer.CallbackParam, path: Path) -> Path:
    """Return the directory of existing studies. Raises UsageError, also if the user named a missing
    directory.
    """
    check_studies_directory(parameter, path)
    if path == STUDIES_DIRECTORY:
        return path
    option = parameter.opts[0]
    if not path.exists():
        raise UsageError(
            f"{option} {path}: directory {path} does not exist",
            hint=f"name the directory of the studies: {option} DIRECTORY, or omit {option}",
        )
    if (description := describe_directory(path)) is not None:
        raise UsageError(
            f"{option} {path}: is {description[0]}, not the directory of the studies",
            hint=f"name the directory of the studies: {option} DIRECTORY, or omit {option}",
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


def _check_suffix(option: str, path: Path, suffixes: tuple[str, ...], kind_text: str) -> None:
    """Raise UsageError if the suffix of ``path`` names a format other than the format written."""
    if path.suffix.lower() in FORMAT_SUFFIXES - {*suffixes}:
        raise UsageError(
            f"{option} {path}: autotune writes {kind_text}, not {path.suffix}",
            hint=f"write `{option} {shlex.quote(str(path.with_suffix(suffixes[0])))}`",
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
