"""Files that are whole or not there: what a crash may leave is looked at call by call."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import durable_files
from tests.full_disk import limit_file_size


def test_content_and_mode_are_as_asked_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o077)
    try:
        durable_files.write_file(path, b"new", 0o640)
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        durable_files.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with limit_file_size(50), pytest.raises(OSError, match=f"File too large: '{path}'"):
        durable_files.create_file(path, bytes(100))
    assert list(tmp_path.iterdir()) == []
    durable_files.create_file(path, b"new")
    with pytest.raises(FileExistsError):
        durable_files.create_file(path, b"other")
    assert path.read_bytes() == b"new"


def test_content_is_on_disk_before_its_name_is_and_that_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def note_call(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            if name == "fsync":
                is_directory = stat.S_ISDIR(os.fstat(words[0]).st_mode)
                done.append("directory" if is_directory else "content")
            else:
                done.append("name")
            return real(*words)

        return call

    monkeypatch.setattr(os, "fsync", note_call("fsync", os.fsync))
    monkeypatch.setattr(Path, "replace", note_call("replace", Path.replace))
    durable_files.write_file(tmp_path / "file", b"new")
    assert done == ["content", "name", "directory"]
    done.clear()
    durable_files.write_file(tmp_path / "file", b"newer", sync=False)
    assert done == ["name"]
    done.clear()
    durable_files.make_directory(tmp_path / "a" / "b")
    assert done == ["directory", "directory"]


def test_what_a_killed_writer_left_is_found(tmp_path: Path) -> None:
    (tmp_path / ".file.123.new").write_bytes(b"ha")
    (tmp_path / ".other.123.new").write_bytes(b"ha")
    assert durable_files.find_orphaned_files(tmp_path / "file") == [tmp_path / ".file.123.new"]


def test_a_file_keeps_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    given: list[tuple[int, int]] = []
    if os.geteuid() == 0:
        os.chown(path, 33, 34)
        durable_files.write_file(path, b"new", keep_owner=True)
        assert (path.stat().st_uid, path.stat().st_gid) == (33, 34)
        return
    monkeypatch.setattr(os, "chown", lambda _, user, group: given.append((user, group)))
    durable_files.write_file(path, b"new", keep_owner=True)
    assert given == []  # it is ours already


@pytest.mark.parametrize(
    "place",
    [
        lambda path, victim: path.symlink_to(victim),
        lambda path, victim: path.hardlink_to(victim),
        lambda path, _: os.mkfifo(path),
        lambda path, _: path.write_bytes(b"ha"),
    ],
    ids=["link", "hard link", "pipe", "file of a killed writer"],
)
def test_no_file_in_place_of_the_new_one_is_opened(
    place: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """The name is known in advance, and another account may write to the directory."""
    victim, path = tmp_path / "victim", tmp_path / "metrics.prom"
    victim.write_bytes(b"theirs")
    victim.chmod(0o600)
    place(tmp_path / f".{path.name}.{os.getpid()}.new", victim)
    durable_files.write_file(path, b"ours")
    assert path.read_bytes() == b"ours"
    assert (victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (b"theirs", 0o600)
    assert sorted(tmp_path.iterdir()) == [path, victim]
