"""Where studies are, which one is meant, and whether a process tunes it."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from autotune import durable_files, foreign_files
from autotune.errors import AutotuneError, LockedError
from autotune.foreign_files import ForeignFileError
from autotune.strict_parsing import parse_json
from autotune.target.messages import find_nearest_name

STUDIES_DIRECTORY = Path("studies")
EVENTS_FILE = "events.jsonl"
WORKERS_FILE = "workers.json"  # of a copy from a storage: who was at work on it
# `is_held` takes a free lock, shared, for an instant: a tuner tries again instead of being refused.
LOCK_ATTEMPTS, LOCK_RETRY_SECONDS = 200, 0.005


def find_study(
    name: str,
    root: Path = STUDIES_DIRECTORY,
    fallback_hint: str = "`--studies DIRECTORY` names another place",
) -> Path:
    """The directory of the study called ``name`` (under ``root``) or at that path.

    Raises AutotuneError with the nearest name, with those of the studies under ``root``, or with the
    hint ``fallback_hint``.
    """
    for directory in (root / name, Path(name)):
        if foreign_files.has_file(directory, EVENTS_FILE):
            return directory.resolve()
    others = list_study_names(root)
    hint = f"studies there: {', '.join(others)}" if others else fallback_hint
    if near := find_nearest_name(Path(name).name, others):
        hint = f"did you mean {near!r}?"
    raise AutotuneError(f"unknown study {Path(name).name!r}", hint=hint)


def find_free_directory(root: Path, name: str) -> Path:
    """``root/name``, or ``name-2``, ``name-3`` … where studies of that name exist already."""
    return next(
        directory
        for directory in iterate_candidate_directories(root, name)
        if not directory.exists()
    )


def iterate_candidate_directories(root: Path, name: str) -> Iterator[Path]:
    """``root/name``, ``name-2``, ``name-3`` …"""
    yield root / name
    for number in itertools.count(2):
        yield root / f"{name}-{number}"


def list_study_names(root: Path = STUDIES_DIRECTORY) -> tuple[str, ...]:
    """Names of the studies under ``root``."""
    every = foreign_files.list_names(root)
    return tuple(name for name in every if foreign_files.has_file(root / name, EVENTS_FILE))


class StudyLock:
    """Held from ``acquire`` to ``release``; the file says who holds it, where and since when."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises LockedError, naming the holder, when another process has it."""
        durable_files.make_directory(self.path.parent, 0o700)
        foreign_files.check_writable_path(self.path.parent, self.path.name)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.path, flags, 0o600)
        for attempt in range(LOCK_ATTEMPTS):
            time.sleep(LOCK_RETRY_SECONDS if attempt else 0.0)
            if _try_lock(handle, fcntl.LOCK_EX):
                break
        else:
            os.close(handle)
            raise LockedError(
                f"{self.path.parent.name} is being tuned by {describe_lock_holder(self.path)}",
                hint="wait for it, or follow it with `autotune status`",
            )
        since = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"host": socket.gethostname(), "pid": os.getpid(), "since": since}
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(record).encode())
        os.fsync(handle)
        self._file = handle

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
    """Who wrote the lock, in words; ``None`` when nobody holds it."""
    try:
        content = foreign_files.read_bytes(
            path.parent, path.name, foreign_files.MAX_SMALL_FILE_BYTES
        )
        record = parse_json(content)
        return f"process {record['pid']} on {record['host']} since {record['since']}"
    except (OSError, ValueError, KeyError, TypeError, ForeignFileError):
        return None


def is_locked(path: Path) -> bool:
    """Whether some process has the lock right now, or may have it, as the file cannot be opened.

    Raises ForeignFileError if it is anything but a file.
    """
    try:
        with foreign_files.open_file(
            path.parent, path.name, foreign_files.MAX_SMALL_FILE_BYTES
        ) as lock:
            return not _try_lock(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
