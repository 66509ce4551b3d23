"""How a printed command names a study, so that the user can paste the command."""

from __future__ import annotations

import shlex
from pathlib import Path

from autotune import foreign_files

STUDIES_DIRECTORY = Path("studies")
EVENTS_FILE = "events.jsonl"  # in each study: its journal
MANIFEST_FILE = "manifest.json"  # in each export
WORKERS_FILE = "workers.json"  # in a copy from a shared database: the workers that were running
STORAGE_OPTION = " --storage URL"
_KEEP_OPTION = " --keep"


def format_study_argument(
    directory: Path, *, is_shared: bool = False, keeps_winner: bool = False
) -> str:
    """Return the study's name as a shell argument, with the options that commands need to find it.

    ``directory`` is relative or absolute, as the user gave it. With ``is_shared``, the command must use
    the shared database. A copy from that database was made for one command, so its directory is not
    shown. With ``keeps_winner``, the command leaves a proven winner on the hosts.
    """
    needs_storage = is_shared or _is_database_copy(directory)
    storage_option = STORAGE_OPTION if needs_storage else ""
    keep_option = _KEEP_OPTION if keeps_winner else ""
    study_name = shlex.quote(directory.name)
    return f"{study_name}{storage_option}{find_studies_option(directory)}{keep_option}"


def find_studies_option(directory: Path) -> str:
    """Return the option with the directory that contains the study; empty for a copy from a shared
    database.
    """
    return "" if _is_database_copy(directory) else format_studies_option(directory.parent)


def format_studies_option(studies: Path) -> str:
    """Return ` --studies DIR` with the directory as the user gave it; empty for the default
    directory.
    """
    if studies.resolve() == STUDIES_DIRECTORY.resolve():
        return ""
    return f" --studies {shlex.quote(str(studies))}"


def _is_database_copy(directory: Path) -> bool:
    return foreign_files.has_file(directory, WORKERS_FILE)
