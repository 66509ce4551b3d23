"""Check that this account started a study on this machine. Other studies are read-only.

The seal of a new study is a signature of its target and its first record, made with the account's key.
Target and first record determine what later sessions may do. Someone else's study, or a study with a
changed target, has no valid seal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath

from autotune import account_key, durable_files, foreign_files
from autotune.errors import INVALID_CONTENT_ERRORS, AutotuneError, describe_invalid_content
from autotune.study import journal
from autotune.study.directory import EVENTS_FILE
from autotune.study_argument import format_study_argument
from autotune.target.beds import BEDS_DIRECTORY, find_bed_directory
from autotune.target.read_target import TARGET_FILE_NAME

SEAL_FILE = "seal"
BED_SEAL_PURPOSE = "bed"
NEW_STUDY_HINT = "`autotune run TARGET --from {study}` starts your own study with its best settings"
RESTORE_TARGET_HINT = (
    "`autotune restore TARGET` restores the hosts of a target from the copies on those hosts"
)


def seal_study(study: Path, target: bytes, first_record: Mapping[str, object]) -> None:
    """Mark a study as this account's own. The seal is on disk before the study's first record. Raises
    AutotuneError.
    """
    seal = account_key.create_seal("study", target, journal.encode_record(first_record))
    durable_files.write_file(
        foreign_files.check_writable_path(study, SEAL_FILE), seal.encode(), 0o600
    )


def seal_bed(study: Path, bed: str, target: bytes) -> None:
    """Write the target with which this machine uses a test bed of a shared study, with its own seal.

    The hosts of the bed may differ from the hosts in the study's target. Raises AutotuneError.
    """
    directory = foreign_files.make_directories(study, PurePath(BEDS_DIRECTORY, bed))
    seal = account_key.create_seal(BED_SEAL_PURPOSE, bed.encode(), target)
    for file_name, content in ((TARGET_FILE_NAME, target), (SEAL_FILE, seal.encode())):
        path = foreign_files.check_writable_path(directory, file_name)
        durable_files.write_file(path, content, 0o600)


def has_valid_bed_seal(study: Path, bed: str) -> bool:
    """True if this account wrote the target of a test bed."""
    directory = find_bed_directory(study, bed)
    try:
        target = foreign_files.read_bytes(
            directory, TARGET_FILE_NAME, foreign_files.MAX_TARGET_BYTES
        )
        seal = foreign_files.read_bytes(directory, SEAL_FILE, foreign_files.MAX_SMALL_FILE_BYTES)
        return account_key.is_valid_seal(
            seal.decode("ascii"), BED_SEAL_PURPOSE, bed.encode(), target
        )
    except (OSError, UnicodeDecodeError, AutotuneError):
        return False


def is_own_study(study: Path) -> bool:
    """True if this account started the study, and no other account can have changed it since."""
    try:
        check_own_study(study, "")
    except (AutotuneError, OSError):
        return False
    return True


def check_own_study(study: Path, hint: str) -> None:
    """Raise AutotuneError, with ``hint``, if the study is read-only for this account."""
    foreign_files.check_ownership(study)
    if not foreign_files.exists(study, TARGET_FILE_NAME):
        raise AutotuneError(
            f"study {study.name} is read-only: its {TARGET_FILE_NAME} is missing",
            hint=hint.format(study=format_study_argument(study)),
        )
    try:
        target = foreign_files.read_bytes(study, TARGET_FILE_NAME, foreign_files.MAX_TARGET_BYTES)
        seal = foreign_files.read_bytes(study, SEAL_FILE, foreign_files.MAX_SMALL_FILE_BYTES)
        first_record = next(journal.read_records(study / EVENTS_FILE), {})
        has_valid_seal = account_key.is_valid_seal(
            seal.decode("ascii"), "study", target, journal.encode_record(first_record)
        )
    except (FileNotFoundError, ValueError):  # ValueError includes UnicodeDecodeError
        has_valid_seal = False
    if not has_valid_seal:
        raise AutotuneError(
            f"study {study.name} is read-only: another account or machine started it, or its target "
            "was changed",
            hint=hint.format(study=format_study_argument(study)),
        )


@contextmanager
def guard_foreign_records(study: Path) -> Iterator[None]:
    """Raise AutotuneError instead of a traceback for invalid records in someone else's study."""
    try:
        yield
    except INVALID_CONTENT_ERRORS as error:
        if is_own_study(study):
            raise
        reason = describe_invalid_content(error)
        raise AutotuneError(
            f"invalid records in study {study.name} ({reason}): it is damaged, or another version of "
            "autotune wrote it",
            hint="get a new copy, or use the version that wrote it",
        ) from error


def check_existing_study(study: Path) -> None:
    """Raise AutotuneError if the directory already contains someone else's study."""
    foreign_files.check_ownership(study)
    if journal.has_records(study / EVENTS_FILE):
        check_own_study(study, NEW_STUDY_HINT)
