"""Files of a directory that other people may have written: a study, an export, a target's neighbours.

``top`` is the directory that the user named; ``name`` is a path below it, which may come from other
people. Below ``top`` no link is followed. Only regular files up to a size are read, so that no read
blocks, opens a device or fills the memory. Writers also need a directory that no other account can
change (``check_own``).
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

from autotune import durable
from autotune.errors import AutotuneError

# The largest file of each kind, in bytes.
SMALL = 1 << 20  # a lock, a list of workers, a seal
TARGET = 200_000
RECORD = 1 << 26  # a manifest, a backup, a rendered file, a page
TEMPLATE = 1 << 24
JOURNAL = 1 << 30
DATABASE = 1 << 32  # the sampler's own storage, which SQLite reads a page at a time
MOST_FILES = 20_000  # that are listed below one directory
DEEPEST = 40  # directories between ``top`` and a file

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a file",
}
_HINT = "autotune writes no such thing: ask for a new copy, or remove it"


class ForeignFileError(AutotuneError):
    """A file that is not opened, with the ``reason``: it is a link, a pipe, a device or too large."""

    def __init__(self, path: Path, reason: str, hint: str = _HINT) -> None:
        super().__init__(f"{path} {reason}", hint=hint)
        self.reason = reason


def read_bytes(top: Path, name: str | PurePath, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Raises FileNotFoundError if there is none, ForeignFileError, OSError.
    """
    with open_file(top, name, most) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise _too_large(top / name, most)
    return content


def read_named(path: Path, most: int) -> bytes:
    """The same for a file that the user named: links are followed, as the path is the user's."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        with _reopen(handle, path, most) as file:
            content = file.read(most + 1)
    finally:
        os.close(handle)
    if len(content) > most:
        raise _too_large(path, most)
    return content


@contextmanager
def open_file(top: Path, name: str | PurePath, most: int) -> Iterator[BinaryIO]:
    """A regular file, open for reading. Raises as ``read_bytes``; the caller bounds what it reads."""
    with _directory_of(top, name) as (directory, last):
        handle = os.open(last, _LOOK, dir_fd=directory)
    try:
        with _reopen(handle, top / name, most) as file:
            yield file
    finally:
        os.close(handle)


def exists(top: Path, name: str | PurePath) -> bool:
    """True if there is anything of that name, even a link that leads nowhere. Raises ForeignFileError."""
    try:
        with _directory_of(top, name) as (directory, last):
            os.stat(last, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def has(top: Path, name: str | PurePath) -> bool:
    """True if there is a regular file of that name. Raises no error of either."""
    try:
        return kind(top, name) == "a file"
    except (OSError, ForeignFileError):
        return False


def kind(top: Path, name: str | PurePath) -> str | None:
    """What is there, such as "a file", "a directory" or "a link"; ``None`` if nothing is."""
    try:
        with _directory_of(top, name) as (directory, last):
            return _kind(os.stat(last, dir_fd=directory, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None


def names(top: Path, name: str | PurePath = ".") -> tuple[str, ...]:
    """The names in a directory, sorted; none if there is no directory. Raises ForeignFileError."""
    try:
        with _opened_directory(top, name) as directory:
            listed = [path.name for path in Path(f"/proc/self/fd/{directory}").iterdir()]
    except FileNotFoundError:
        return ()
    if len(listed) > MOST_FILES:
        raise ForeignFileError(top / name, f"contains more than {MOST_FILES} names")
    return tuple(sorted(listed))


def files_below(top: Path, name: str | PurePath = ".") -> tuple[str, ...]:
    """The paths of all regular files below a directory, relative to it, sorted.

    Raises ForeignFileError for anything but files and directories.
    """
    files: list[str] = []
    _list_below(top, PurePath(name), PurePath(), files)
    return tuple(sorted(files))


def _list_below(top: Path, base: PurePath, below: PurePath, files: list[str]) -> None:
    for each in names(top, base / below):
        path = below / each
        what = kind(top, base / path)
        if what == "a directory":
            _list_below(top, base, path, files)
        elif what == "a file":
            files.append(path.as_posix())
        elif what is not None:
            raise ForeignFileError(top / base / path, f"is {what}")
        if len(files) > MOST_FILES:
            raise ForeignFileError(top / base, f"contains more than {MOST_FILES} files")


@contextmanager
def _directory_of(top: Path, name: str | PurePath) -> Iterator[tuple[int, str]]:
    """The directory of ``name``, open, and its last part."""
    parts = _parts(top, name)
    if not parts:
        raise ForeignFileError(top, "is a directory", "name a file in it")
    with _opened_directory(top, PurePath(*parts[:-1])) as directory:
        yield directory, parts[-1]


@contextmanager
def _opened_directory(top: Path, name: str | PurePath) -> Iterator[int]:
    """A directory below ``top``, reached without following a link."""
    handle = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, part in enumerate(parts := _parts(top, name), start=1):
            inner = os.open(part, _LOOK, dir_fd=handle)
            os.close(handle)
            handle = inner
            if not stat.S_ISDIR((status := os.fstat(handle)).st_mode):
                place = Path(top, *parts[:depth])
                raise ForeignFileError(place, f"is {_kind(status)}, not a directory")
        yield handle
    finally:
        os.close(handle)


def _parts(top: Path, name: str | PurePath) -> tuple[str, ...]:
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in str(name) or len(path.parts) > DEEPEST:
        raise ForeignFileError(top, f"has no path {str(name)[:200]!r} below it")
    return path.parts


def _reopen(handle: int, path: Path, most: int) -> BinaryIO:
    """The regular file behind an ``O_PATH`` handle: nothing else is ever opened."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise ForeignFileError(path, f"is {_kind(status)}, not a file")
    if status.st_size > most:
        raise _too_large(path, most)
    try:
        return Path(f"/proc/self/fd/{handle}").open("rb")
    except OSError as error:
        error.filename = str(path)
        raise


def _too_large(path: Path, most: int) -> ForeignFileError:
    return ForeignFileError(path, f"is larger than {most:,} bytes")


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "of an unknown kind")


def check_own(directory: Path) -> None:
    """Raise ForeignFileError if another account owns a directory or may write to it.

    What was checked in a directory that passes stays as it is until this account changes it.
    """
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise ForeignFileError(
            directory,
            f"belongs to {_account(status.st_uid)}: it is only read",
            f"run autotune as {_account(status.st_uid)}, or begin a study in a directory of your own",
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        hint = f"`chmod go-w {directory}`, if you know who wrote to it"
        raise ForeignFileError(directory, "can be changed by other accounts: it is only read", hint)


def writable(top: Path, name: str | PurePath, most: int | None = None) -> Path:
    """The path of a file to write below a directory that ``check_own`` passed.

    Raises ForeignFileError if a part of the path is a link or anything else that autotune did not put
    there, if the file has other names, which would change too, or if it is larger than ``most`` bytes.
    """
    try:
        with _directory_of(top, name) as (directory, last):
            status = os.stat(last, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return top / name
    if not stat.S_ISREG(status.st_mode):
        raise ForeignFileError(top / name, f"is {_kind(status)}, not a file")
    if status.st_nlink > 1:
        raise ForeignFileError(top / name, "has other names (hard links), which would change too")
    if most is not None and status.st_size > most:
        raise _too_large(top / name, most)
    return top / name


def make_directories(top: Path, name: str | PurePath) -> Path:
    """A directory below ``top`` for this account alone, made and synced with those on the way to it.

    Raises ForeignFileError if one of them is a link or a file.
    """
    place = top
    for part in _parts(top, name):
        place = place / part
        with contextlib.suppress(FileExistsError):
            durable.make_directory(place, 0o700)
        if not stat.S_ISDIR((status := place.lstat()).st_mode):
            raise ForeignFileError(place, f"is {_kind(status)}, not a directory")
    return place


def _account(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"account {number}"
