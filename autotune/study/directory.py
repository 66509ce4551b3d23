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

from autotune import durable, foreign_files
from autotune.errors import AutotuneError, LockedError
from autotune.foreign_files import ForeignFileError
from autotune.strict import parse_json
from autotune.target.messages import nearest

ROOT = Path("studies")
EVENTS = "events.jsonl"
WORKERS = "workers.json"  # of a copy from a storage: who was at work on it
# `is_held` takes a free lock, shared, for an instant: a tuner tries again instead of being refused.
ATTEMPTS, PAUSE = 200, 0.005


def find(
    name: str, root: Path = ROOT, otherwise: str = "`--studies DIRECTORY` names another place"
) -> Path:
    """The directory of the study called ``name`` (under ``root``) or at that path.

    Raises AutotuneError with the nearest name, with those of the studies under ``root``, or with the
    hint ``otherwise``.
    """
    for directory in (root / name, Path(name)):
        if foreign_files.has(directory, EVENTS):
            return directory.resolve()
    others = names(root)
    hint = f"studies there: {', '.join(others)}" if others else otherwise
    if near := nearest(Path(name).name, others):
        hint = f"did you mean {near!r}?"
    raise AutotuneError(f"there is no study {Path(name).name!r}", hint=hint)


def new_directory(root: Path, name: str) -> Path:
    """``root/name``, or ``name-2``, ``name-3`` … where studies of that name exist already."""
    return next(directory for directory in directories(root, name) if not directory.exists())


def directories(root: Path, name: str) -> Iterator[Path]:
    """``root/name``, ``name-2``, ``name-3`` …"""
    yield root / name
    for number in itertools.count(2):
        yield root / f"{name}-{number}"


def names(root: Path = ROOT) -> tuple[str, ...]:
    """Names of the studies under ``root``."""
    every = foreign_files.names(root)
    return tuple(name for name in every if foreign_files.has(root / name, EVENTS))


class Lock:
    """Held from ``acquire`` to ``release``; the file says who holds it, where and since when."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises LockedError, naming the holder, when another process has it."""
        durable.make_directory(self.path.parent, 0o700)
        foreign_files.writable(self.path.parent, self.path.name)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.path, flags, 0o600)
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE if attempt else 0.0)
            if _locked(handle, fcntl.LOCK_EX):
                break
        else:
            os.close(handle)
            raise LockedError(
                f"{self.path.parent.name} is being tuned by {holder(self.path)}",
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

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def holder(path: Path) -> str | None:
    """Who wrote the lock, in words; ``None`` when nobody holds it."""
    try:
        content = foreign_files.read_bytes(path.parent, path.name, foreign_files.SMALL)
        record = parse_json(content)
        return f"process {record['pid']} on {record['host']} since {record['since']}"
    except (OSError, ValueError, KeyError, TypeError, ForeignFileError):
        return None


def is_held(path: Path) -> bool:
    """Whether some process has the lock right now, or may have it, as the file cannot be opened.

    Raises ForeignFileError if it is anything but a file.
    """
    try:
        with foreign_files.open_file(path.parent, path.name, foreign_files.SMALL) as lock:
            return not _locked(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
