"""Files of a directory that other people may have written: a study, an export, a target's neighbours.

``top`` is the directory that the user named; ``name`` is a path below it, which may come from other
people. Below ``top`` no link is followed. Only regular files up to a size are read, so that no read
blocks, opens a device or fills the memory. Writers also need a directory that no other account can
change (``check_ownership``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import BinaryIO

from autotune import durable_files
from autotune.errors import AutotuneError

# The largest file of each kind, in bytes.
MAX_SMALL_FILE_BYTES = 1 << 20  # a lock, a list of workers, a seal
MAX_TARGET_BYTES = 200_000
MAX_RECORD_BYTES = 1 << 26  # a manifest, a backup, a rendered file, a page
TEMPLATE = 1 << 24
MAX_JOURNAL_BYTES = 1 << 30
MAX_DATABASE_BYTES = 1 << 32  # the sampler's own storage, which SQLite reads a page at a time
MAX_FILES = 20_000  # that are listed below one directory
MAX_DEPTH = 40  # directories between ``top`` and a file

_INSPECT_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_KIND_NAMES = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a file",
}
_FOREIGN_FILE_HINT = "autotune writes no such thing: ask for a new copy, or remove it"


class ForeignFileError(AutotuneError):
    """A file that is not opened, with the ``reason``: it is a link, a pipe, a device or too large."""

    def __init__(self, path: Path, reason: str, hint: str = _FOREIGN_FILE_HINT) -> None:
        super().__init__(f"{path} {reason}", hint=hint)
        self.reason = reason


def read_bytes(root: Path, name: str | PurePath, max_bytes: int) -> bytes:
    """The content of a regular file of at most ``max_bytes`` bytes.

    Raises FileNotFoundError if there is none, ForeignFileError, OSError.
    """
    with open_file(root, name, max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _too_large_error(root / name, max_bytes)
    return content


def read_named_file(path: Path, max_bytes: int) -> bytes:
    """The same for a file that the user named: links are followed, as the path is the user's."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        with _reopen(handle, path, max_bytes) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(handle)
    if len(content) > max_bytes:
        raise _too_large_error(path, max_bytes)
    return content


@contextmanager
def open_file(root: Path, name: str | PurePath, max_bytes: int) -> Iterator[BinaryIO]:
    """A regular file, open for reading. Raises as ``read_bytes``; the caller bounds what it reads."""
    with _open_parent(root, name) as (directory, last):
        handle = os.open(last, _INSPECT_FLAGS, dir_fd=directory)
    try:
        with _reopen(handle, root / name, max_bytes) as file:
            yield file
    finally:
        os.close(handle)


def exists(root: Path, name: str | PurePath) -> bool:
    """True if there is anything of that name, even a link that leads nowhere. Raises ForeignFileError."""
    try:
        with _open_parent(root, name) as (directory, last):
            os.stat(last, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def has_file(root: Path, name: str | PurePath) -> bool:
    """True if there is a regular file of that name. Raises no error of either."""
    try:
        return describe_kind(root, name) == "a file"
    except (OSError, ForeignFileError):
        return False


def describe_kind(root: Path, name: str | PurePath) -> str | None:
    """What is there, such as "a file", "a directory" or "a link"; ``None`` if nothing is."""
    try:
        with _open_parent(root, name) as (directory, last):
            return _name_of_kind(os.stat(last, dir_fd=directory, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_names(root: Path, name: str | PurePath = ".") -> tuple[str, ...]:
    """The names in a directory, sorted; none if there is no directory. Raises ForeignFileError."""
    try:
        with _open_directory(root, name) as directory:
            listed = [path.name for path in Path(f"/proc/self/fd/{directory}").iterdir()]
    except FileNotFoundError:
        return ()
    if len(listed) > MAX_FILES:
        raise ForeignFileError(root / name, f"contains more than {MAX_FILES} names")
    return tuple(sorted(listed))


def list_files_below(root: Path, name: str | PurePath = ".") -> tuple[str, ...]:
    """The paths of all regular files below a directory, relative to it, sorted.

    Raises ForeignFileError for anything but files and directories.
    """
    files: list[str] = []
    _list_below(root, PurePath(name), PurePath(), files)
    return tuple(sorted(files))


def _list_below(root: Path, base: PurePath, below: PurePath, files: list[str]) -> None:
    for each in list_names(root, base / below):
        path = below / each
        what = describe_kind(root, base / path)
        if what == "a directory":
            _list_below(root, base, path, files)
        elif what == "a file":
            files.append(path.as_posix())
        elif what is not None:
            raise ForeignFileError(root / base / path, f"is {what}")
        if len(files) > MAX_FILES:
            raise ForeignFileError(root / base, f"contains more than {MAX_FILES} files")


@contextmanager
def _open_parent(root: Path, name: str | PurePath) -> Iterator[tuple[int, str]]:
    """The directory of ``name``, open, and its last part."""
    parts = _split_path(root, name)
    if not parts:
        raise ForeignFileError(root, "is a directory", "name a file in it")
    with _open_directory(root, PurePath(*parts[:-1])) as directory:
        yield directory, parts[-1]


@contextmanager
def _open_directory(root: Path, name: str | PurePath) -> Iterator[int]:
    """A directory below ``root``, reached without following a link."""
    handle = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, part in enumerate(parts := _split_path(root, name), start=1):
            inner = os.open(part, _INSPECT_FLAGS, dir_fd=handle)
            os.close(handle)
            handle = inner
            if not stat.S_ISDIR((status := os.fstat(handle)).st_mode):
                location = Path(root, *parts[:depth])
                raise ForeignFileError(location, f"is {_name_of_kind(status)}, not a directory")
        yield handle
    finally:
        os.close(handle)


def _split_path(root: Path, name: str | PurePath) -> tuple[str, ...]:
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in str(name) or len(path.parts) > MAX_DEPTH:
        raise ForeignFileError(root, f"has no path {str(name)[:200]!r} below it")
    return path.parts


def _reopen(handle: int, path: Path, max_bytes: int) -> BinaryIO:
    """The regular file behind an ``O_PATH`` handle: nothing else is ever opened."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise ForeignFileError(path, f"is {_name_of_kind(status)}, not a file")
    if status.st_size > max_bytes:
        raise _too_large_error(path, max_bytes)
    try:
        return Path(f"/proc/self/fd/{handle}").open("rb")
    except OSError as error:
        error.filename = str(path)
        raise


def _too_large_error(path: Path, max_bytes: int) -> ForeignFileError:
    return ForeignFileError(path, f"is larger than {max_bytes:,} bytes")


def _name_of_kind(status: os.stat_result) -> str:
    return _KIND_NAMES.get(stat.S_IFMT(status.st_mode), "of an unknown kind")


def check_ownership(directory: Path) -> None:
    """Raise ForeignFileError if another account owns a directory or may write to it.

    What was checked in a directory that passes stays as it is until this account changes it.
    """
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise ForeignFileError(
            directory,
            f"belongs to {_account_name(status.st_uid)}: it is only read",
            f"run autotune as {_account_name(status.st_uid)}, or begin a study in a directory of "
            "your own",
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        hint = f"`chmod go-w {directory}`, if you know who wrote to it"
        raise ForeignFileError(directory, "can be changed by other accounts: it is only read", hint)


def check_writable_path(root: Path, name: str | PurePath, maximum: int | None = None) -> Path:
    """The path of a file to write below a directory that ``check_ownership`` passed.

    Raises ForeignFileError if a part of the path is a link or anything else that autotune did not put
    there, if the file has other names, which would change too, or if it is larger than ``most`` bytes.
    """
    try:
        with _open_parent(root, name) as (directory, last):
            status = os.stat(last, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return root / name
    if not stat.S_ISREG(status.st_mode):
        raise ForeignFileError(root / name, f"is {_name_of_kind(status)}, not a file")
    if status.st_nlink > 1:
        raise ForeignFileError(root / name, "has other names (hard links), which would change too")
    if maximum is not None and status.st_size > maximum:
        raise _too_large_error(root / name, maximum)
    return root / name


def make_directories(root: Path, name: str | PurePath) -> Path:
    """A directory below ``root`` for this account alone, made and synced with those on the way to it.

    Raises ForeignFileError if one of them is a link or a file.
    """
    location = root
    for part in _split_path(root, name):
        location = location / part
        with contextlib.suppress(FileExistsError):
            durable_files.make_directory(location, 0o700)
        if not stat.S_ISDIR((status := location.lstat()).st_mode):
            raise ForeignFileError(location, f"is {_name_of_kind(status)}, not a directory")
    return location


def _account_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"account {number}"
