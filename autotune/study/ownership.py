"""Whether this account began a study here. Every other study is only read.

A study is sealed with the account's key when it begins: its target and its first record, which bound
what later sessions may do. Someone else's study, or one whose target was changed, has no such seal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune import account_key, durable_files, foreign_files
from autotune.errors import AutotuneError
from autotune.study import journal
from autotune.study.directory import EVENTS_FILE
from autotune.target.read_target import TARGET_FILE_NAME

SEAL_FILE = "seal"
NEW_STUDY_HINT = (
    "`autotune run TARGET --from {study}` begins a study of your own with its best settings"
)
RESTORE_TARGET_HINT = (
    "`autotune restore TARGET` restores the hosts of a target from their own copies"
)


def seal_study(study: Path, target: bytes, first: journal.Record) -> None:
    """Mark a study as this account's own; on disk before its first record. Raises AutotuneError."""
    sealed = account_key.create_seal("study", target, journal.encode_record(first))
    durable_files.write_file(
        foreign_files.check_writable_path(study, SEAL_FILE), sealed.encode(), 0o600
    )


def is_own_study(study: Path) -> bool:
    """True if this account began the study, and no other account can have changed it."""
    try:
        check_own_study(study, "")
    except (AutotuneError, OSError):
        return False
    return True


def check_own_study(study: Path, hint: str) -> None:
    """Raise AutotuneError, with ``hint`` as its hint, for a study that is only read."""
    foreign_files.check_ownership(study)
    if not foreign_files.exists(study, TARGET_FILE_NAME):
        raise AutotuneError(
            f"study {study.name} has lost its {TARGET_FILE_NAME}: it is only read",
            hint=hint.format(study=study.name),
        )
    try:
        target = foreign_files.read_bytes(study, TARGET_FILE_NAME, foreign_files.MAX_TARGET_BYTES)
        sealed = foreign_files.read_bytes(study, SEAL_FILE, foreign_files.MAX_SMALL_FILE_BYTES)
        first = next(journal.read_records(study / EVENTS_FILE), {})
        own = account_key.is_valid_seal(
            sealed.decode("ascii"), "study", target, journal.encode_record(first)
        )
    except (FileNotFoundError, UnicodeDecodeError):
        own = False
    if not own:
        raise AutotuneError(
            f"study {study.name} was not begun by this account on this machine, or its target was "
            "changed since: it is only read",
            hint=hint.format(study=study.name),
        )


@contextmanager
def guard_foreign_records(study: Path) -> Iterator[None]:
    """If the records of someone else's study make no sense within, say so: it is not a bug."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError,
            RecursionError) as error:  # fmt: skip
        if is_own_study(study):
            raise
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise AutotuneError(
            f"study {study.name} has records that make no sense ({reason}): it is damaged, or of "
            "another version of autotune",
            hint="ask for a new copy, or read it with the version that wrote it",
        ) from error


def check_existing_study(study: Path) -> None:
    """Raise AutotuneError for a directory that is there already and has someone else's study."""
    foreign_files.check_ownership(study)
    if (
        foreign_files.exists(study, EVENTS_FILE)
        and next(journal.read_records(study / EVENTS_FILE), None) is not None
    ):
        check_own_study(study, NEW_STUDY_HINT)
