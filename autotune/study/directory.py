"""Find and lock the directories of studies."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from autotune import durable_files, foreign_files, study_argument
from autotune.errors import LockedError, UsageError
from autotune.foreign_files import ForeignFileError
from autotune.strict_parsing import parse_json
from autotune.study_argument import STUDIES_DIRECTORY, format_study_argument
from autotune.target.messages import MAX_LISTED_NAMES, find_nearest_name
from autotune.target.path_hints import is_export

EVENTS_FILE = study_argument.EVENTS_FILE
TARGET_SUFFIXES = (".yaml", ".yml")
# `is_locked` takes a shared lock for a moment, so a tuner tries several times before it gives up.
LOCK_ATTEMPTS, LOCK_RETRY_SECONDS = 200, 0.005


def find_study(
    study_name: str,
    root: Path = STUDIES_DIRECTORY,
    fallback_hint: str = "`--studies DIRECTORY` selects another directory",
    target_hint: str = "",
) -> Path:
    """Return the directory of the study ``study_name`` under ``root``, or of the study at the path
    ``study_name``.

    The path starts as the user gave it, so that printed commands can contain it. Raises UsageError.

    The hint is the nearest name, a list of the studies under ``root``, or ``fallback_hint``. For a
    target file, ``target_hint`` is added, with the file's path instead of ``{target}``.
    """
    for directory in (root / study_name, Path(study_name)):
        if foreign_files.has_file(directory, EVENTS_FILE):
            return _name_last_part(directory)
        foreign_files.check_readable(directory)
    path = Path(study_name)
    if path.is_file():
        raise _build_file_error(path, root, target_hint)
    if is_export(path):
        raise _build_export_error(path, root)
    if not root.is_dir():
        raise UsageError(
            f"unknown study {study_name!r}: directory {root} does not exist", hint=fallback_hint
        )
    study_names = list_study_names(root)
    hint = _format_study_names(study_names) if study_names else fallback_hint
    if nearest_name := find_nearest_name(_get_plain_name(path), study_names):
        hint = f"did you mean {nearest_name!r}?"
    raise UsageError(f"unknown study {study_name!r}", hint=hint)


def is_study(name: Path, root: Path = STUDIES_DIRECTORY) -> bool:
    """True if ``name`` is the path of a study, or the name of a study under ``root``."""
    return any(foreign_files.has_file(path, EVENTS_FILE) for path in (root / name, name))


def _build_file_error(path: Path, root: Path, target_hint: str) -> UsageError:
    """Return the error for a file that was named instead of a study. ``target_hint`` is added for a
    target.
    """
    if foreign_files.has_file(path.parent, EVENTS_FILE):
        study = format_study_argument(_name_last_part(path.parent))
        return UsageError(
            f"unknown study {str(path)!r}: this is a file of a study",
            hint=f"name the study: {study}",
        )
    if is_export(path.parent):
        return _build_export_error(path.parent, root)
    study_names = list_study_names(root) if root.is_dir() else ()
    hints = ["`autotune status` lists the studies"]
    if nearest_name := find_nearest_name(_get_plain_name(path), study_names):
        hints = [f"name a study, such as {nearest_name}"]
    if path.suffix in TARGET_SUFFIXES and target_hint:
        hints.append(target_hint.format(target=shlex.quote(str(path))))
    return UsageError(f"{path} is a file, not a study", hint="; ".join(hints))


def _build_export_error(path: Path, root: Path) -> UsageError:
    """Return the error for the directory of an export that was named instead of its study."""
    try:
        content = foreign_files.read_bytes(
            path, study_argument.MANIFEST_FILE, foreign_files.MAX_RECORD_BYTES
        )
        study_name = str(parse_json(content)["study"])
    except (OSError, ValueError, KeyError, TypeError, ForeignFileError):
        study_name = ""
    if root.is_dir() and study_name in list_study_names(root):
        return UsageError(
            f"{path} is an export, not a study", hint=f"name its study: {shlex.quote(study_name)}"
        )
    return UsageError(
        f"{path} is an export, not a study",
        hint=f"read README.md in {path}, or name a study; `autotune status` lists the studies",
    )


def _get_plain_name(path: Path) -> str:
    """Return the last part of a path, without the suffix of a target."""
    return path.stem if path.suffix in TARGET_SUFFIXES else path.name


def _format_study_names(study_names: Sequence[str]) -> str:
    further_text = f", … ({len(study_names)} in all)" if len(study_names) > MAX_LISTED_NAMES else ""
    return f"existing studies: {', '.join(study_names[:MAX_LISTED_NAMES])}{further_text}"


def _name_last_part(directory: Path) -> Path:
    """Return a path to the same directory that ends with the study's name, even if ``directory`` is `.`
    or a link.
    """
    if directory.is_symlink():
        return directory.resolve()
    if directory.name in ("", ".."):
        return directory / ".." / directory.resolve().name
    return directory


def find_free_directory(root: Path, directory_name: str) -> Path:
    """Return ``root/name``, or else the first free name among ``name-2``, ``name-3`` …"""
    return next(
        directory
        for directory in iterate_candidate_directories(root, directory_name)
        if not directory.exists()
    )


def iterate_candidate_directories(root: Path, directory_name: str) -> Iterator[Path]:
    """Yield ``root/name``, then ``name-2``, ``name-3`` …"""
    yield root / directory_name
    for name_suffix in itertools.count(2):
        yield root / f"{directory_name}-{name_suffix}"


def list_study_names(root: Path = STUDIES_DIRECTORY) -> tuple[str, ...]:
    """Return the names of the studies under ``root`` that this account can read. Raises
    ForeignFileError if this account cannot read ``root`` itself.
    """
    foreign_files.check_readable(root)
    directory_names = foreign_files.list_names(root)
    return tuple(
        name for name in directory_names if foreign_files.has_file(root / name, EVENTS_FILE)
    )


def list_unreadable_directories(root: Path = STUDIES_DIRECTORY) -> Iterator[tuple[str, str]]:
    """Yield the name of each directory under ``root`` that this account cannot read, and the reason."""
    for name in foreign_files.list_names(root):
        try:
            foreign_files.check_readable(root / name)
        except ForeignFileError as error:
            yield name, error.message


class StudyLock:
    """The lock of a study. The lock file contains the holder, the holder's host and the start time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises LockedError, with the holder, if another process holds it."""
        durable_files.make_directory(self.path.parent, 0o700)
        foreign_files.check_writable_path(self.path.parent, self.path.name)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock_handle = os.open(self.path, flags, 0o600)
        for attempt in range(LOCK_ATTEMPTS):
            time.sleep(LOCK_RETRY_SECONDS if attempt else 0.0)
            if _try_to_lock_file(lock_handle, fcntl.LOCK_EX):
                break
        else:
            os.close(lock_handle)
            study_argument = format_study_argument(self.path.parent)
            raise LockedError(
                f"{self.path.parent.name} is being tuned by "
                f"{describe_lock_holder(self.path) or 'another process'}",
                hint=f"wait for it, or follow it with `autotune status {study_argument} --watch`",
            )
        locked_since = datetime.now(UTC).isoformat(timespec="seconds")
        lock_record = {"host": socket.gethostname(), "pid": os.getpid(), "since": locked_since}
        os.ftruncate(lock_handle, 0)
        os.write(lock_handle, json.dumps(lock_record).encode())
        os.fsync(lock_handle)
        self._file = lock_handle

    def release(self) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> StudyLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def describe_lock_holder(path: Path) -> str | None:
    """Return the holder of the lock as text; ``None`` if no process holds it."""
    try:
        content = foreign_files.read_bytes(
            path.parent, path.name, foreign_files.MAX_SMALL_FILE_BYTES
        )
        lock_record = parse_json(content)
        return f"process {lock_record['pid']} on {lock_record['host']} since {lock_record['since']}"
    except (OSError, ValueError, KeyError, TypeError, ForeignFileError):
        return None


def is_locked(path: Path) -> bool:
    """True if a process holds the lock, or may hold it because the file cannot be opened.

    Raises ForeignFileError if ``path`` is not a regular file.
    """
    try:
        with foreign_files.open_file(
            path.parent, path.name, foreign_files.MAX_SMALL_FILE_BYTES
        ) as lock:
            return not _try_to_lock_file(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _try_to_lock_file(lock_handle: int, lock_type: int) -> bool:
    try:
        fcntl.flock(lock_handle, lock_type | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
