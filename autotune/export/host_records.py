"""Read the records of hosts in a study as typed values. The records are untrusted input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autotune.config_text import is_utf8
from autotune.deploy.deploy_result import DeployedFile, HostRecord, OriginalHost
from autotune.export.export_error import ExportError
from autotune.report.studies import Study
from autotune.services.base import Settings
from autotune.unified_diff import Hunk

_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
_MAX_LINES = 1_000_000  # maximum number of lines; real configuration files are shorter
_MAX_HUNKS = 1000  # maximum number of hunks; no service edits as many places


def read_record(study: Study, host: str, record: Mapping[str, Any]) -> HostRecord:
    """Return the typed record of a host. Raises AutotuneError if the record is invalid."""
    try:
        original_record = record["original"]
        _check_keys(record, HostRecord)
        _check_keys(original_record, OriginalHost)
        original_host = OriginalHost(
            {str(path): _read_digest(value) for path, value in original_record["files"].items()},
            _read_units(original_record["units"]),
            _read_texts(original_record["sysctls"]),
            _read_settings(original_record["settings"]),
        )
        files = {str(path): _read_file(file) for path, file in record["files"].items()}
        return HostRecord(
            _read_units(record["units"]), _read_texts(record["sysctls"]), original_host, files
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ExportError(study, f"its record of host {host} is invalid: {error}") from error


def _check_keys(
    record: Mapping[str, Any], record_type: type[HostRecord | OriginalHost | DeployedFile | Hunk]
) -> None:
    """Raise ValueError for a key that is not a field of this kind of record."""
    if unknown_keys := sorted(record.keys() - record_type.__dataclass_fields__.keys()):
        raise ValueError(f"unknown key {unknown_keys[0]!r}")


def _read_digest(value: object) -> str | None:
    return None if value is None else _read_sha256(value)


def _read_sha256(value: object) -> str:
    if isinstance(value, str) and _DIGEST_PATTERN.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is not a SHA-256 digest")


def _read_file(file: Mapping[str, Any]) -> DeployedFile:
    _check_keys(file, DeployedFile)
    edits = file["edits"]
    return DeployedFile(_read_sha256(file["sha256"]), None if edits is None else _read_edits(edits))


def _read_edits(edits: list[Mapping[str, Any]]) -> tuple[Hunk, ...]:
    """Return the recorded edits as hunks, in order. Raises ValueError if hunks overlap."""
    hunks, last_line = [], 1
    if len(edits) > _MAX_HUNKS:
        raise ValueError(f"more than {_MAX_HUNKS} changes in one file")
    for edit in edits:
        _check_keys(edit, Hunk)
        first_line = edit["start_line"]
        if type(first_line) is not int or not last_line <= first_line <= _MAX_LINES:
            raise ValueError(f"line number {first_line!r} is not above {last_line - 1}")
        hunk = Hunk(first_line, _read_lines(edit["removed"]), _read_lines(edit["added"]))
        if not hunk.removed and not hunk.added:
            raise ValueError(f"nothing changes at line {first_line}")
        last_line = first_line + len(hunk.removed)
        hunks.append(hunk)
    if any(not line.endswith("\n") for hunk in hunks[:-1] for line in (*hunk.removed, *hunk.added)):
        raise ValueError("a line in the middle of a file has no newline")
    return tuple(hunks)


def _read_lines(lines: list[Any]) -> tuple[str, ...]:
    for line in lines:
        if not isinstance(line, str) or not line or "\n" in line[:-1] or not is_utf8(line):
            raise ValueError(f"expected one line of text, not {line!r:.100}")
    if any(not line.endswith("\n") for line in lines[:-1]):
        raise ValueError("a line in the middle of a file has no newline")
    return tuple(lines)


def _read_units(units: Mapping[str, Any]) -> dict[str, bool]:
    if invalid_names := [name for name, runs in units.items() if not isinstance(runs, bool)]:
        raise ValueError(f"the state of unit {invalid_names[0]!r} is neither true nor false")
    return dict(units)


def _read_texts(values: Mapping[str, Any]) -> dict[str, str]:
    if invalid_names := [name for name, value in values.items() if not isinstance(value, str)]:
        raise ValueError(f"kernel value {invalid_names[0]!r} is not text")
    return dict(values)


def _read_settings(settings: Mapping[str, Any] | None) -> Settings | None:
    """Return recorded settings, which are used only for comparison with other settings. Raises
    ValueError for invalid values.
    """
    if settings is None:
        return None
    if invalid_names := [
        n for n, value in settings.items() if not isinstance(value, str | int | float)
    ]:
        raise ValueError(f"setting {invalid_names[0]!r} does not have a valid value")
    return dict(settings)
