"""A lock that gives one process and its child programs exclusive access to a lab."""

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
from autotune.lab.plan import LabNames
from autotune.lab.prerequisites import require_trusted_directory

_WAIT_SECONDS = 5.0  # time in seconds within which the child programs of a killed process exit
# Descriptors of locked files, such as the lab's directory. Child programs inherit the descriptors, so a
# lock lasts until the last program exits, even if this process is killed. Therefore, no other process
# cleans up while a program is still creating links or mounts.
_LOCKED_DESCRIPTORS: ContextVar[tuple[int, ...]] = ContextVar("_HELD", default=())


@contextlib.contextmanager
def lock_lab(lab_names: LabNames, *, create: bool) -> Iterator[None]:
    """Lock the lab's directory. With ``create``, the directory is created first, and removed at the
    end if it is empty.

    Raises ``LockedError`` if another process holds the lock.
    """
    handle = _lock_directory(lab_names.directory, create=create)
    if handle is None:
        yield  # without its directory, a lab has no processes, but links and control groups may remain
        return
    try:
        with _inherit_lock(handle):
            yield
    finally:
        with contextlib.suppress(OSError):
            lab_names.directory.rmdir()  # fails unless the directory is empty
        os.close(handle)


@contextlib.contextmanager
def lock_network() -> Iterator[None]:
    """Lock this machine's network configuration, so that no other lab changes it while a lab starts.

    The lock is on the network namespace, so no lock file is needed.
    """
    handle = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with _inherit_lock(handle):
            yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _inherit_lock(handle: int) -> Iterator[None]:
    reset_token = _LOCKED_DESCRIPTORS.set((*_LOCKED_DESCRIPTORS.get(), handle))
    try:
        yield
    finally:
        _LOCKED_DESCRIPTORS.reset(reset_token)


def _lock_directory(directory: Path, *, create: bool) -> int | None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        if create:
            require_trusted_directory(directory)
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            require_trusted_directory(directory)  # another account may have created it just before
        try:
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if create:
                continue  # a concurrent `down` removed the empty directory
            return None
        if _try_lock(handle, directory):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            raise LockedError(
                f"another process is using the lab in {directory}",
                hint="wait for that process or stop it",
            )
        time.sleep(0.02)


def _try_lock(handle: int, directory: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the previous holder has removed the directory, this lock is on a deleted directory.
        return os.path.samestat(os.fstat(handle), directory.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def run_checked(
    argv: Sequence[str], *, input_text: str | None = None, timeout: float = 30.0
) -> str:
    """Run ``argv`` and return its output. Raises ``AutotuneError`` with the command's error text on
    failure.
    """
    try:
        command_result = subprocess.run(
            argv,
            input=input_text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            pass_fds=_LOCKED_DESCRIPTORS.get(),
        )
    except FileNotFoundError:
        raise AutotuneError(
            f"{argv[0]} is not installed", hint="install the program on this machine"
        ) from None
    except subprocess.TimeoutExpired:
        raise AutotuneError(f"{' '.join(argv)} did not finish within {timeout:g} s") from None
    if command_result.returncode != 0:
        reason = (
            command_result.stderr.strip()
            or command_result.stdout.strip()
            or f"exit status {command_result.returncode}"
        )
        raise AutotuneError(f"{' '.join(argv)}: {reason}")
    return command_result.stdout
