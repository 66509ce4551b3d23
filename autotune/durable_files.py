"""Write files completely or not at all, even if the process or the machine stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(
    path: Path, content: bytes, mode: int = 0o644, *, keep_owner: bool = False, sync: bool = True
) -> None:
    """Write a new file next to ``path``, then rename it to ``path``.

    With ``keep_owner``, the new file gets the owner of the replaced file. With ``sync``, the new file
    survives a power failure after the function has returned. Readers never see a partial file. Raises
    OSError.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    staged_path = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with set_error_path(path):
            _write_new_file(staged_path, content, mode, sync=sync)
        if keep_owner:
            _copy_owner(staged_path, path)
        staged_path.replace(path)
    except BaseException:
        staged_path.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def create_file(path: Path, content: bytes) -> None:
    """Write a new file, whose mode depends on the umask. After a failure, no part of the file remains,
    so that the user can repeat the command.

    Raises OSError, also if the file exists.
    """
    with set_error_path(path), path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except BaseException:
            path.unlink()
            raise


@contextmanager
def set_error_path(path: Path) -> Iterator[None]:
    """Set ``path`` as the file name of an OSError that the ``with`` block raises. Errors from
    operations on an open file contain no file name.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def find_orphaned_files(path: Path) -> list[Path]:
    """Return the staged files for ``path`` that killed processes did not remove."""
    return list(path.parent.glob(f".{path.name}.*.new"))


def sync_directory(directory: Path) -> None:
    """Sync the file names in ``directory`` to disk. The content of files is synced separately."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its missing parents, and sync each new name to disk. Raises OSError."""
    missing_directories = [path for path in (directory, *directory.parents) if not path.is_dir()]
    directory.mkdir(mode, parents=True, exist_ok=True)
    for path in reversed(missing_directories):
        sync_directory(path.parent)


def _write_new_file(path: Path, content: bytes, mode: int, *, sync: bool) -> None:
    """Write a file that did not exist. A file with this name, or a link that another account placed
    there, is removed and not followed.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # the umask may have changed the mode, which protects the content
        file.write(content)
        file.flush()
        if sync:
            os.fsync(handle)


def _copy_owner(path: Path, source: Path) -> None:
    """Give ``path`` the owner and group of ``source``, if ``source`` exists."""
    try:
        source_status = source.stat()
    except FileNotFoundError:
        return
    path_status = path.stat()
    if (source_status.st_uid, source_status.st_gid) != (path_status.st_uid, path_status.st_gid):
        os.chown(path, source_status.st_uid, source_status.st_gid)
