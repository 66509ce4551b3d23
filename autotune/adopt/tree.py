"""The configuration files of a host as they lie there, symbolic links included."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from posixpath import join, normpath

_LINKS = 40  # as many as Linux follows


@dataclass(frozen=True)
class Tree:
    """Contents and bits of files by path, and where links point; all paths absolute."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def _children(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for path in (*self.files, *self.links):
            words = path.split("/")
            for depth in range(1, len(words)):
                found.setdefault("/".join(words[:depth]) or "/", set()).add(words[depth])
        return found

    def real(self, path: str) -> str:
        """The path with every link on the way followed."""
        done = "/"
        left = [word for word in normpath(path).split("/") if word]
        for _ in range(_LINKS + len(left)):
            if not left:
                break
            here = join(done, left.pop(0))
            if here in self.links:
                target = normpath(join(done, self.links[here]))
                done, left = "/", [*(word for word in target.split("/") if word), *left]
            else:
                done = here
        return done

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Files that a shell's pattern names, in the order of their names, by their real paths."""
        paths = list(self._matching("/", [word for word in normpath(pattern).split("/") if word]))
        found = dict.fromkeys(self.real(path) for path in paths)
        return tuple(path for path in found if path in self.files)

    def _matching(self, directory: str, words: list[str]) -> Iterator[str]:
        if not words:
            yield directory
            return
        known = sorted(self._children.get(self.real(directory), ()))
        for name in known:
            hidden = name.startswith(".") and not words[0].startswith(".")
            if fnmatchcase(name, words[0]) and not hidden:
                yield from self._matching(join(directory, name), words[1:])


def unpacked(archive: bytes) -> Tree:
    """The tree in a tar archive whose names are relative to ``/``; raises tarfile.TarError."""
    files, links, modes = dict[str, bytes](), dict[str, str](), dict[str, int]()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = normpath(f"/{member.name}")
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                files[path], modes[path] = content.read(), member.mode
            elif member.issym():
                links[path] = member.linkname
    return Tree(files, links, modes)
