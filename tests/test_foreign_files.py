"""Files that other people wrote: only regular files below the named directory are ever opened."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune import foreign_files
from autotune.errors import AutotuneError
from autotune.foreign_files import ForeignFileError, read_bytes, read_named_file

SECRET = "secret"


def device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(path, 0o20600, os.makedev(1, 5))


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


# What lies at `name` → why it is not read.
LIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (lambda path: path.symlink_to(path.parent.parent / SECRET), "is a link, not a file"),
    "a link to nothing": (lambda path: path.symlink_to("/nowhere"), "is a link, not a file"),
    "a pipe": (os.mkfifo, "is a named pipe, not a file"),
    "a device": (device, "is a device, not a file"),
    "a socket": (listening, "is a socket, not a file"),
    "a sparse file": (sparse, "is larger than 100 bytes"),
}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / SECRET).write_text("secret")
    (tmp_path / "top" / "inner").mkdir(parents=True)
    return tmp_path / "top"


@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("where", ["name", "inner/name"])
def test_only_regular_files_are_opened(top: Path, where: str, lies: str) -> None:
    make, why = LIES[lies]
    make(top / where)
    with pytest.raises(ForeignFileError) as caught:
        read_bytes(top, where, 100)
    assert caught.value.message == f"{top / where} {why}"
    assert caught.value.hint
    assert foreign_files.exists(top, where)
    assert foreign_files.has_file(top, where) == (lies == "a sparse file")


def test_a_file_is_read_whole_and_its_size_may_be_the_limit(top: Path) -> None:
    (top / "inner" / "name").write_bytes(b"x" * 100)
    assert read_bytes(top, "inner/name", 100) == b"x" * 100
    with pytest.raises(ForeignFileError, match="larger than 99 bytes"):
        read_bytes(top, "inner/name", 99)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "inner/../../secret", "a\0b", "."])
def test_no_name_leads_outside(top: Path, name: str) -> None:
    with pytest.raises(AutotuneError):
        read_bytes(top, name, 100)


def test_no_directory_on_the_way_is_a_link(top: Path) -> None:
    (top / "way").symlink_to(top.parent)
    for ask in (lambda: read_bytes(top, "way/secret", 100), lambda: foreign_files.list_names(top, "way"),
                lambda: foreign_files.exists(top, "way/secret")):  # fmt: skip
        with pytest.raises(ForeignFileError, match="way is a link, not a directory"):
            ask()


def test_the_directory_that_the_user_named_may_be_a_link(top: Path) -> None:
    (top / "name").write_bytes(b"x")
    (top.parent / "elsewhere").symlink_to(top)
    assert read_bytes(top.parent / "elsewhere", "name", 100) == b"x"


def test_what_is_missing_is_missing(top: Path) -> None:
    for name in ("none", "inner/none", "none/none"):
        assert not foreign_files.exists(top, name)
        assert foreign_files.describe_kind(top, name) is None
        with pytest.raises(FileNotFoundError):
            read_bytes(top, name, 100)
    assert foreign_files.list_names(top, "none") == ()


def test_a_directory_that_cannot_be_listed_is_named(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    for name, path in ((".", top), ("inner", top / "inner")):
        with pytest.raises(PermissionError, match=f"Permission denied: '{path}'$"):
            foreign_files.list_names(top, name)


def test_files_are_listed_below_a_directory_and_anything_else_is_refused(top: Path) -> None:
    (top / "inner" / "deep").mkdir()
    for name in ("b", "deep/a"):
        (top / "inner" / name).touch()
    assert foreign_files.list_files_below(top, "inner") == ("b", "deep/a")
    (top / "inner" / "deep" / "link").symlink_to("a")
    with pytest.raises(ForeignFileError, match="inner/deep/link is a link"):
        foreign_files.list_files_below(top, "inner")


def test_a_file_that_the_user_named_may_be_a_link_but_nothing_else(top: Path) -> None:
    (top / "name").symlink_to(top.parent / SECRET)
    assert read_named_file(top / "name", 100) == b"secret"
    os.mkfifo(top / "pipe")
    with pytest.raises(ForeignFileError, match="named pipe"):
        read_named_file(top / "pipe", 100)
    with pytest.raises(IsADirectoryError):
        read_named_file(top, 100)


def test_no_file_stays_open(top: Path) -> None:
    (top / "name").write_bytes(b"x")
    os.mkfifo(top / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("name", "pipe", "inner", "none", "inner/none"):
        with pytest.raises((AutotuneError, OSError)):
            read_bytes(top, name, 0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_to_write_may_be_as_large_as_its_kind(top: Path) -> None:
    (top / "name").write_bytes(b"x" * 10)
    assert foreign_files.check_writable_path(top, "name", 10) == top / "name"
    assert foreign_files.check_writable_path(top, "other", 10) == top / "other"
    with pytest.raises(ForeignFileError, match="is larger than 9 bytes"):
        foreign_files.check_writable_path(top, "name", 9)
