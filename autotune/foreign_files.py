"""Read and write files in directories to which other people may have written: studies, exports, and
directories of targets.

``root`` is the directory that the user named; ``name`` is a path below it, which may be hostile. No
link below ``root`` is followed. Only regular files of limited size are read, so no read blocks,
opens a device or fills the memory. Writers also require a directory that no other account can
change (``check_ownership``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import BinaryIO

from autotune import durable_files
from autotune.errors import AutotuneError

# Maximum size of each kind of file in bytes
MAX_SMALL_FILE_BYTES = 1 << 20  # a lock, a list of workers, a seal
MAX_TARGET_BYTES = 200_000
MAX_RECORD_BYTES = 1 << 26  # a manifest, a backup, a rendered file, a page
MAX_TEMPLATE_BYTES = 1 << 24
# Enough for a week of trials on eight test beds. Reading a journal takes about ten times its size in
# memory.
MAX_JOURNAL_BYTES = 1 << 27
MAX_DATABASE_BYTES = 1 << 32  # the sampler's database, which SQLite reads page by page
MAX_FILES = 20_000  # maximum number of files listed below one directory
MAX_DEPTH = 40  # maximum number of directories between ``root`` and a file

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
_FOREIGN_FILE_HINT = (
    "autotune does not write such files: replace the file with a new copy, or remove it"
)


class ForeignFileError(AutotuneError):
    """A file that autotune refuses to open, for example because it is a link, a pipe or a device, or too
    large.
    """

    def __init__(self, path: Path, reason: str, hint: str = _FOREIGN_FILE_HINT) -> None:
        super().__init__(f"{path} {reason}", hint=hint)
        self.reason = reason


def read_bytes(root: Path, name: str | PurePath, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most ``max_bytes`` bytes.

    Raises FileNotFoundError, ForeignFileError, OSError.
    """
    with open_file(root, name, max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _build_too_large_error(root / name, max_bytes)
    return content


def read_named_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file that the user named. Its path may contain links.

    Raises FileNotFoundError, ForeignFileError, OSError.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        with _open_regular_file(handle, path, max_bytes) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(handle)
    if len(content) > max_bytes:
        raise _build_too_large_error(path, max_bytes)
    return content


@contextmanager
def open_file(root: Path, name: str | PurePath, max_bytes: int) -> Iterator[BinaryIO]:
    """Open a regular file for reading. The caller must read only a limited number of bytes. Raises the
    errors of ``read_bytes``.
    """
    with _open_parent(root, name) as (parent_descriptor, file_name):
        handle = os.open(file_name, _INSPECT_FLAGS, dir_fd=parent_descriptor)
    try:
        with _open_regular_file(handle, root / name, max_bytes) as file:
            yield file
    finally:
        os.close(handle)


def exists(root: Path, name: str | PurePath) -> bool:
    """True if the name exists, even as a broken link. Raises ForeignFileError."""
    try:
        with _open_parent(root, name) as (parent_descriptor, file_name):
            os.stat(file_name, dir_fd=parent_descriptor, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def has_file(root: Path, name: str | PurePath) -> bool:
    """True if the name is a regular file. Never raises."""
    try:
        return describe_kind(root, name) == "a file"
    except (OSError, ForeignFileError):
        return False


def describe_kind(root: Path, name: str | PurePath) -> str | None:
    """Return the kind of object that a name refers to, such as "a file", "a directory" or "a link";
    ``None`` if the name is missing.
    """
    try:
        with _open_parent(root, name) as (parent_descriptor, file_name):
            return _describe_file_type(
                os.stat(file_name, dir_fd=parent_descriptor, follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_names(root: Path, name: str | PurePath = ".") -> tuple[str, ...]:
    """Return the sorted names in a directory; empty if the directory does not exist. Raises
    ForeignFileError.
    """
    try:
        with _open_directory(root, name) as directory, durable_files.set_error_path(root / name):
            directory_names = [path.name for path in Path(f"/proc/self/fd/{directory}").iterdir()]
    except FileNotFoundError:
        return ()
    if len(directory_names) > MAX_FILES:
        raise ForeignFileError(root / name, f"contains more than {MAX_FILES} names")
    return tuple(sorted(directory_names))


def list_files_below(root: Path, name: str | PurePath = ".") -> tuple[str, ...]:
    """Return the sorted paths of all regular files below a directory, relative to the directory.

    Raises ForeignFileError for anything but files and directories.
    """
    files: list[str] = []
    _list_files_recursively(root, PurePath(name), PurePath(), files)
    return tuple(sorted(files))


def _list_files_recursively(
    root: Path, base: PurePath, relative_path: PurePath, files: list[str]
) -> None:
    for name in list_names(root, base / relative_path):
        path = relative_path / name
        kind = describe_kind(root, base / path)
        if kind == "a directory":
            _list_files_recursively(root, base, path, files)
        elif kind == "a file":
            files.append(path.as_posix())
        elif kind is not None:
            raise ForeignFileError(root / base / path, f"is {kind}")
        if len(files) > MAX_FILES:
            raise ForeignFileError(root / base, f"contains more than {MAX_FILES} files")


@contextmanager
def _open_parent(root: Path, name: str | PurePath) -> Iterator[tuple[int, str]]:
    """Open the directory that contains ``name``. Yield its descriptor and the last component of the
    path.
    """
    path_names = _split_path(root, name)
    if not path_names:
        raise ForeignFileError(root, "is a directory", "give the path of a file in it")
    with _open_directory(root, PurePath(*path_names[:-1])) as directory:
        yield directory, path_names[-1]


@contextmanager
def _open_directory(root: Path, name: str | PurePath) -> Iterator[int]:
    """Open a directory below ``root`` without following a link."""
    handle = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, name_at_depth in enumerate(path_names := _split_path(root, name), start=1):
            inner_handle = os.open(name_at_depth, _INSPECT_FLAGS, dir_fd=handle)
            os.close(handle)
            handle = inner_handle
            if not stat.S_ISDIR((file_status := os.fstat(handle)).st_mode):
                directory_path = Path(root, *path_names[:depth])
                raise ForeignFileError(
                    directory_path, f"is {_describe_file_type(file_status)}, not a directory"
                )
        yield handle
    finally:
        os.close(handle)


def _split_path(root: Path, name: str | PurePath) -> tuple[str, ...]:
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in str(name) or len(path.parts) > MAX_DEPTH:
        raise ForeignFileError(root, f"cannot contain the path {str(name)[:200]!r}")
    return path.parts


def _open_regular_file(handle: int, path: Path, max_bytes: int) -> BinaryIO:
    """Open the regular file behind an ``O_PATH`` handle. Raises an error if it is not a regular file."""
    file_status = os.fstat(handle)
    if not stat.S_ISREG(file_status.st_mode):
        if stat.S_ISDIR(file_status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise ForeignFileError(path, f"is {_describe_file_type(file_status)}, not a file")
    if file_status.st_size > max_bytes:
        raise _build_too_large_error(path, max_bytes)
    try:
        return Path(f"/proc/self/fd/{handle}").open("rb")
    except OSError as error:
        error.filename = str(path)
        raise


def _build_too_large_error(path: Path, max_bytes: int) -> ForeignFileError:
    return ForeignFileError(path, f"is larger than {max_bytes:,} bytes")


def _describe_file_type(file_status: os.stat_result) -> str:
    return _KIND_NAMES.get(stat.S_IFMT(file_status.st_mode), "of an unknown kind")


def check_ownership(directory: Path) -> None:
    """Raise ForeignFileError if another account owns a directory or may write to it.

    If this check passes, no other account can change the directory.
    """
    directory_status = directory.stat()
    if directory_status.st_uid != os.geteuid():
        owner = _find_account_name(directory_status.st_uid)
        raise ForeignFileError(
            directory,
            f"belongs to {owner}, so autotune only reads it",
            f"run autotune as {owner}, or start a study in your own directory",
        )
    if stat.S_IMODE(directory_status.st_mode) & 0o022:
        hint = f"`chmod go-w {shlex.quote(str(directory))}`, if you trust its content"
        raise ForeignFileError(
            directory, "can be changed by other accounts, so autotune only reads it", hint
        )


def check_readable(directory: Path) -> None:
    """Raise ForeignFileError if this account cannot read an existing directory, or a directory on its
    path.
    """
    for location in (directory, *directory.parents):
        try:
            status = location.stat()
        except PermissionError:  # a parent cannot be entered
            continue
        except OSError:
            return
        is_readable = os.access(location, os.R_OK | os.X_OK, effective_ids=True)
        if stat.S_ISDIR(status.st_mode) and not is_readable:
            owner = _find_account_name(status.st_uid)
            hint = f"run autotune as {owner}, or request a copy"
            if status.st_uid == os.geteuid():
                hint = f"`chmod u+rx {shlex.quote(str(location))}`"
            mode = stat.S_IMODE(status.st_mode)
            raise ForeignFileError(
                location, f"cannot be read: it belongs to {owner} and has mode {mode:04o}", hint
            )
        return


def check_writable_path(root: Path, name: str | PurePath, max_bytes: int | None = None) -> Path:
    """Return the path of a file to write below a directory that ``check_ownership`` accepted.

    Raises ForeignFileError if a component of the path is a link. ForeignFileError is also raised for a
    file that is not regular, has hard links or is larger than ``max_bytes`` bytes.
    """
    try:
        with _open_parent(root, name) as (parent_descriptor, file_name):
            file_status = os.stat(file_name, dir_fd=parent_descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return root / name
    if not stat.S_ISREG(file_status.st_mode):
        raise ForeignFileError(root / name, f"is {_describe_file_type(file_status)}, not a file")
    if file_status.st_nlink > 1:
        raise ForeignFileError(root / name, "has other hard links, which would also be changed")
    if max_bytes is not None and file_status.st_size > max_bytes:
        raise _build_too_large_error(root / name, max_bytes)
    return root / name


def make_directories(root: Path, name: str | PurePath) -> Path:
    """Create a directory below ``root`` with its parents, accessible only to this account, and sync its
    name to disk.

    Raises ForeignFileError if a component of the path is a link or a file.
    """
    location = root
    for component in _split_path(root, name):
        location = location / component
        with contextlib.suppress(FileExistsError):
            durable_files.make_directory(location, 0o700)
        if not stat.S_ISDIR((status := location.lstat()).st_mode):
            raise ForeignFileError(location, f"is {_describe_file_type(status)}, not a directory")
    return location


def _find_account_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"account {user_id}"
