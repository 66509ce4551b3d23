"""One process at a time works on a lab."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import LockedError
from autotune.lab.plan import Names
from autotune.lab.programs import holding

_PATIENCE = 5.0  # s; a killed predecessor's last program ends well within them


@contextlib.contextmanager
def alone(names: Names, *, make: bool) -> Iterator[None]:
    """Hold the lab's directory, made first with ``make``; removed at the end if it is empty.

    Raises ``LockedError`` if another process keeps holding it.
    """
    handle = _opened(names.directory, make=make)
    if handle is None:
        yield  # without a directory nobody is at work, but something may be left to take down
        return
    try:
        with holding(handle):
            yield
    finally:
        with contextlib.suppress(OSError):
            names.directory.rmdir()  # only if there is nothing left in it
        os.close(handle)


def _opened(directory: Path, *, make: bool) -> int | None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        if make:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if make:
                continue  # removed meanwhile by a `down` that found it empty
            return None
        if _held(handle, directory):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            raise LockedError(
                f"another process is at work on the lab in {directory}",
                hint="wait for it to end, or end it",
            )
        time.sleep(0.02)


def _held(handle: int, directory: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one before may have removed the directory: then this lock is on nothing.
        return os.path.samestat(os.fstat(handle), directory.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
