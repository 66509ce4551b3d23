"""Where studies are, which one is meant, and whether a process tunes it."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from autotune.errors import AutotuneError, LockedError
from autotune.target.messages import nearest

ROOT = Path("studies")
EVENTS = "events.jsonl"


def find(name: str, root: Path = ROOT) -> Path:
    """The directory of the study called ``name`` (under ``root``) or at that path.

    Raises AutotuneError with the nearest name, or with those of the studies under ``root``.
    """
    for directory in (root / name, Path(name)):
        if (directory / EVENTS).is_file():
            return directory.resolve()
    others = names(root)
    hint = f"studies there: {', '.join(others)}" if others else "`autotune run TARGET` makes one"
    if near := nearest(Path(name).name, others):
        hint = f"did you mean {near!r}?"
    raise AutotuneError(f"there is no study {Path(name).name!r}", hint=hint)


def new_directory(root: Path, name: str) -> Path:
    """``root/name``, or ``name-2``, ``name-3`` … where studies of that name exist already."""
    for number in itertools.count(1):
        directory = root / (name if number == 1 else f"{name}-{number}")
        if not directory.exists():
            return directory
    raise AssertionError("counting never ends")


def names(root: Path = ROOT) -> tuple[str, ...]:
    """Names of the studies under ``root``."""
    return tuple(sorted(path.parent.name for path in root.glob(f"*/{EVENTS}")))


class Lock:
    """Held from ``acquire`` to ``release``; the file says who holds it, where and since when."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises LockedError, naming the holder, when another process has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise LockedError(
                f"{self.path.parent.name} is being tuned by {holder(self.path)}",
                hint="wait for it, or follow it with `autotune status`",
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(_oneself()).encode())
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
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return f"process {record['pid']} on {record['host']} since {record['since']}"


def is_held(path: Path) -> bool:
    """Whether some process has the lock right now."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _oneself() -> dict[str, str | int]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
