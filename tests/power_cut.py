"""Possible contents of a directory after a power failure: all synced data, and any part of the
other data.

Each file contains its last synced content, nothing, or its current content. The same applies to the
names in each directory, independently of other directories, because file systems guarantee no order
between them.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

Names = Mapping[str, int | str]  # the number of an inode, or the target of a link
Image = dict[str, bytes | str]  # path → content, or the target of a link
OWN_SYNC = ".db"  # files that a database writes and syncs itself


SHIM = """\
#!/bin/sh
exec 9>PLACE/one-by-one
flock 9
(for word; do case $word in -*) ;; *) printf ' %s' "$word" ;; esac; done; echo) |
    sed "s|^|NAME|" >PLACE/asked
read -r answer <PLACE/answered
flock -u 9
exec PROGRAM "$@"
"""


@dataclass(frozen=True)
class Cut:
    """The state at one time: names and contents as last synced, and as other processes see them."""

    step: str
    root: int
    synced_names: Mapping[int, Names]
    synced: Mapping[int, bytes]
    names: Mapping[int, Names]
    contents: Mapping[int, bytes]

    def images(self, chance: random.Random, more: int) -> Iterator[Image]:
        """Yield possible results: only synced data; all names with synced contents; and ``more``
        random results.
        """
        yield self._image(lambda _: False, lambda _: False)
        yield self._image(lambda _: True, lambda _: False)
        for _ in range(more):
            early = {
                inode: chance.random() < 0.5 for inode in sorted({*self.names, *self.contents})
            }
            yield self._image(lambda i, early=early: early.get(i, False),
                              lambda i, early=early: early.get(i, False))  # fmt: skip

    def _image(self, names_early, contents_early) -> Image:  # type: ignore[no-untyped-def]
        image: Image = {}

        def add(directory: int, above: str) -> None:
            known = self.names if names_early(directory) else self.synced_names
            for name, node in known.get(directory, {}).items():
                path = f"{above}{name}"
                if isinstance(node, str):
                    image[path] = node
                elif node in self.names or node in self.synced_names:
                    add(node, f"{path}/")
                else:
                    early = contents_early(node) or OWN_SYNC in name
                    image[path] = (self.contents if early else self.synced).get(node, b"")

        add(self.root, "")
        return image


@dataclass
class Disk:
    """A monitor of a directory. ``synced`` is called for each sync, and ``step`` before each change."""

    root: Path
    cuts: list[Cut] = field(default_factory=list)
    _names: dict[int, Names] = field(default_factory=dict)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)
    _read: dict[tuple[int, int, int, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for directory, _, files in os.walk(self.root):
            self.synced(Path(directory))
            for name in files:
                self.synced(Path(directory, name))

    def synced(self, path: Path) -> None:
        """Record that a file's content, or the names in a directory, are on disk."""
        if not path.is_relative_to(self.root) or path.is_symlink() or not path.exists():
            return
        inode = self._inode(path)
        if path.is_dir():
            self._names[inode] = self._listed(path)
        else:
            self._contents[inode] = path.read_bytes()

    def step(self, what: str) -> None:
        """Record a possible power failure before a change."""
        names, contents = {}, {}
        for directory, _, files in os.walk(self.root):
            names[self._inode(Path(directory))] = self._listed(Path(directory))
            for name in files:
                path = Path(directory, name)
                if not path.is_symlink():
                    contents[self._inode(path)] = self._content(path)
        root = self._inode(self.root)
        self.cuts.append(Cut(what, root, dict(self._names), dict(self._contents), names, contents))

    def close(self) -> None:
        for handle in self._open.values():
            os.close(handle)

    def _inode(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._open:  # kept open, so that no other file gets the same inode number
            self._open[inode] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return inode

    def _content(self, path: Path) -> bytes:
        known = path.stat()
        version = (known.st_ino, known.st_mtime_ns, known.st_ctime_ns, known.st_size)
        if version not in self._read:
            self._read[version] = path.read_bytes()
        return self._read[version]

    def _listed(self, directory: Path) -> Names:
        return {entry.name: str(Path(entry.path).readlink()) if entry.is_symlink()
                else self._inode(Path(entry.path))
                for entry in os.scandir(directory)
                if stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
                in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)}  # fmt: skip


def restored_from(image: Image, directory: Path) -> None:
    """Write the files of an image below a directory."""
    for path, node in image.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(node, str):
            place.symlink_to(node)
        else:
            place.write_bytes(node)


@contextmanager
def following(
    disks: Sequence[Disk], shims: Path, place: Path, top: Path = Path("/")
) -> Iterator[None]:
    """Monitor disks while programs report each change of a file.

    Wrappers in ``shims``, which is in the programs' PATH, report changes through ``place``. ``top``
    is the programs' root directory.
    """
    for fifo in ("asked", "answered"):
        os.mkfifo(place / fifo)
    for name in ("sync", "mv", "rm", "rmdir", "ln"):
        program = shutil.which(name)
        assert program is not None
        words = {"NAME": name, "PLACE": f"/{place.relative_to(top)}", "PROGRAM": program}
        text = SHIM
        for word, text_of_it in words.items():
            text = text.replace(word, text_of_it)
        (shims / name).write_text(text)
        (shims / name).chmod(0o755)
    listener = threading.Thread(target=_listen, args=(disks, place, top), daemon=True)
    listener.start()
    try:
        yield
    finally:
        for name in ("sync", "mv", "rm", "rmdir", "ln"):
            (shims / name).unlink()
        with (place / "asked").open("w") as asked:
            asked.write("end\n")
        listener.join()
        for disk in disks:
            disk.step("the end")


def _listen(disks: Sequence[Disk], place: Path, top: Path) -> None:
    while True:
        with (place / "asked").open() as asked:
            name, *paths = asked.readline().split()
        if name == "end":
            return
        for disk in disks:
            disk.step(f"{name} {' '.join(paths)}")
            for path in paths if name == "sync" else ():
                disk.synced(top / path.lstrip("/"))
        with (place / "answered").open("w") as answered:
            answered.write("go on\n")
