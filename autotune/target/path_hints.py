"""Hints for paths that are not targets, such as missing files, directories and access logs."""

from __future__ import annotations

import shlex
from pathlib import Path

from autotune import foreign_files
from autotune.study_argument import (
    EVENTS_FILE,
    MANIFEST_FILE,
    STUDIES_DIRECTORY,
    format_study_argument,
)
from autotune.target.messages import find_nearest_name

START_HINT = "`autotune init` writes a target to start from"
# Hints for files that are never YAML, by the end of their name.
HINTS_BY_SUFFIX = {
    ".log": "`autotune workload from-log {path}` converts an access log to a list of requests",
    ".gz": "`autotune workload from-log {path}` converts an access log to a list of requests",
    ".html": "open the page in a browser, and name a target file, such as targets/local.yaml",
    ".jsonl": "`autotune report STUDY` shows the records of a study",
}


def find_missing_file_hint(path: Path, start_hint: str) -> str:
    """Return the hint for a file that does not exist."""
    files = [*Path().glob("*.yaml"), *Path("targets").glob("*.yaml"), *path.parent.glob("*.yaml")]
    files_by_name = {file.stem: file for file in files}
    if nearest_name := find_nearest_name(path.stem, files_by_name):
        return f"did you mean {str(files_by_name[nearest_name])!r}?"
    study_description = describe_directory(STUDIES_DIRECTORY / path)
    if study_description is not None and start_hint is START_HINT:
        return f"{path} is {study_description[0]}: {study_description[1]}"
    return start_hint


def find_directory_hint(path: Path) -> str:
    """Return the hint for a directory that was named instead of a target file."""
    if (description := describe_directory(path)) is not None:
        return f"{path} is {description[0]}: {description[1]}"
    example = next(iter(sorted(path.glob("*.yaml"))), Path("targets/local.yaml"))
    return f"name a target file, such as {example}"


def find_format_hint(path: Path) -> str | None:
    """Return the hint for a file whose name shows that it is not YAML; ``None`` for other files."""
    hint = HINTS_BY_SUFFIX.get(path.suffix.lower())
    return hint.format(path=shlex.quote(str(path))) if hint else None


def is_export(path: Path) -> bool:
    """True if a path is the directory of an export, or the manifest in it."""
    return path.name == MANIFEST_FILE or foreign_files.has_file(path, MANIFEST_FILE)


def describe_directory(path: Path) -> tuple[str, str] | None:
    """Return what a directory is, and the commands that take it: a study or an export. ``None`` for
    other directories, and for a path that is not a directory.
    """
    if foreign_files.has_file(path, EVENTS_FILE):
        return "a study", f"`autotune report {format_study_argument(path)}` shows its results"
    if is_export(path):
        return "an export", f"`autotune apply {shlex.quote(str(path))} TARGET` applies it"
    return None


def find_relative_hint(path: str, target_name: str) -> str:
    """Return the hint for a missing file that the target file ``target_name`` names."""
    if path.startswith("~"):
        return "write the whole path: autotune does not expand '~' in this key"
    return f"the path is relative to {target_name}"
