"""One process at a time works on a lab, with the programs it runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from autotune.errors import AutotuneError, LockedError
from autotune.lab.plan import Names

_WAIT = 5.0  # s; a killed predecessor's last program ends well within them
# Descriptors of what is locked, such as the lab's directory. Programs inherit them, so a lock lasts
# until the last program has ended, even if this process is killed first: nobody tidies up around one
# that is still making something.
_HELD: ContextVar[tuple[int, ...]] = ContextVar("_HELD", default=())


@contextlib.contextmanager
def alone(names: Names, *, make: bool) -> Iterator[None]:
    """Hold the lab's directory, made first with ``make``; removed at the end if it is empty.

    Raises ``LockedError`` if another process keeps holding it.
    """
    handle = _locked(names.directory, make=make)
    if handle is None:
        yield  # without a directory nobody is at work, but something may be left to take down
        return
    try:
        with _by_programs_too(handle):
            yield
    finally:
        with contextlib.suppress(OSError):
            names.directory.rmdir()  # only if there is nothing left in it
        os.close(handle)


@contextlib.contextmanager
def alone_with_links() -> Iterator[None]:
    """Lock the network of this machine against every other lab that comes up, wherever it is kept.

    The lock is on the network namespace itself, so no file is made for it or left behind.
    """
    handle = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with _by_programs_too(handle):
            yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _by_programs_too(handle: int) -> Iterator[None]:
    token = _HELD.set((*_HELD.get(), handle))
    try:
        yield
    finally:
        _HELD.reset(token)


def _locked(directory: Path, *, make: bool) -> int | None:
    deadline = time.monotonic() + _WAIT
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


def run_checked(argv: Sequence[str], *, text: str | None = None, timeout: float = 30.0) -> str:
    """What ``argv`` printed; raises ``AutotuneError`` with its own words if it failed."""
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True,
            timeout=timeout, check=False, pass_fds=_HELD.get(),
        )  # fmt: skip
    except FileNotFoundError:
        raise AutotuneError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise AutotuneError(f"{' '.join(argv)} did not end within {timeout:g} s") from None
    if done.returncode != 0:
        reason = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise AutotuneError(f"{' '.join(argv)}: {reason}")
    return done.stdout
