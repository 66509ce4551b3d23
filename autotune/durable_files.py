"""Files that are complete or not there at all, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(
    path: Path, content: bytes, mode: int = 0o644, *, keep_owner: bool = False, sync: bool = True
) -> None:
    """Write a new file beside ``path``, and put it in its place.

    ``keep_owner``: it gets the owner of the file that it replaces. With ``sync`` it survives a loss of
    power once this returns; without, it may not, but readers never see half of it. Raises OSError.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    staged = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with with_path(path):
            _write_new_file(staged, content, mode, sync=sync)
        if keep_owner:
            _copy_owner(staged, path)
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


@contextmanager
def with_path(path: Path) -> Iterator[None]:
    """An OSError within names ``path``: one from an open file names no path by itself."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def find_orphaned_files(path: Path) -> list[Path]:
    """What writers of ``path`` left beside it when they were killed."""
    return list(path.parent.glob(f".{path.name}.*.new"))


def sync_directory(directory: Path) -> None:
    """Write the names in ``directory`` to disk; the content of a file is synced separately."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make it and all missing parents, and sync the name of each to disk. Raises OSError."""
    missing = [path for path in (directory, *directory.parents) if not path.is_dir()]
    directory.mkdir(mode, parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_directory(path.parent)


def _write_new_file(path: Path, content: bytes, mode: int, *, sync: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    handle = os.open(path, flags, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # whatever the umask says, before the content is there
        file.write(content)
        file.flush()
        if sync:
            os.fsync(handle)


def _copy_owner(path: Path, other: Path) -> None:
    """Give ``path`` the owner and group of ``other``, if ``other`` exists and they differ."""
    try:
        there = other.stat()
    except FileNotFoundError:
        return
    mine = path.stat()
    if (there.st_uid, there.st_gid) != (mine.st_uid, mine.st_gid):
        os.chown(path, there.st_uid, there.st_gid)
