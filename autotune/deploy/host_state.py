"""How a host should be and how it is, as far as autotune has a say in it: files, units, kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.errors import AutotuneError

ACTIVE = frozenset({"active", "activating", "reloading"})
_UNIT_LINES = 7


@dataclass(frozen=True)
class FileState:
    """A file as it should be: ``content``, or where a ``link`` points; with neither it is absent.

    ``owner`` is ``uid:gid``. Without ``mode`` and ``owner`` they stay what they are. ``time`` is
    when it was last modified, in seconds since the epoch.
    """

    content: bytes | None = None
    mode: int | None = None
    owner: str | None = None
    link: str | None = None
    time: str | None = None

    @property
    def absent(self) -> bool:
        return self.content is None and self.link is None


@dataclass(frozen=True)
class ObservedFile:
    """A path as it is. ``detail``: a file's SHA-256, or where a link points."""

    kind: str
    mode: int = 0
    owner: str = ""
    time: str = ""
    detail: str = ""

    def is_as(self, desired: FileState) -> bool:
        if desired.absent:
            return self.kind == "absent"
        if desired.link is not None:
            return (self.kind, self.detail) == ("link", desired.link)
        return (
            self.kind == "file"
            and self.detail == hashlib.sha256(desired.content or b"").hexdigest()
            and desired.mode in (None, self.mode)
            and desired.owner in (None, self.owner)
            and desired.time in (None, self.time)
        )


@dataclass(frozen=True)
class ObservedUnit:
    """``pid``: its main process; ``restarts``: how often systemd itself started it again, of late.

    ``restarting``: it has ended, and systemd is about to start it again.
    """

    known: bool
    active: bool
    enabled: str
    pid: int
    restarts: int
    restarting: bool = False


@dataclass(frozen=True)
class HostState:
    """A host as it should be: files by path, units that run or do not, kernel values by name.

    ``listening`` is where a unit accepts connections once it is up: a port, or a socket's path.
    """

    files: Mapping[str, FileState] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    listening: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedHost:
    """A host as it is; a kernel value that does not exist is ``None``."""

    files: Mapping[str, ObservedFile] = field(default_factory=dict)
    units: Mapping[str, ObservedUnit] = field(default_factory=dict)
    sysctls: Mapping[str, str | None] = field(default_factory=dict)


def parse_files(paths: tuple[str, ...], text: str) -> dict[str, ObservedFile]:
    """What ``look`` printed about ``paths``. Raises AutotuneError for output that makes no sense."""
    lines = text.splitlines()
    if len(lines) != len(paths):
        raise AutotuneError(f"the host's answer about its files makes no sense: {text[:400]}")
    return {path: _file(line) for path, line in zip(paths, lines, strict=True)}


def parse_units(names: tuple[str, ...], text: str) -> dict[str, ObservedUnit]:
    """What ``units`` printed about ``names``."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines())
              for block in text.strip().split("\n\n") if block]  # fmt: skip
    if len(blocks) != len(names) or any(len(block) != _UNIT_LINES for block in blocks):
        raise AutotuneError(f"the host's answer about its units makes no sense: {text[:400]}")
    return {name: _unit(block) for name, block in zip(names, blocks, strict=True)}


def parse_sysctls(names: tuple[str, ...], text: str) -> dict[str, str | None]:
    """What ``kernel`` printed about ``names``, blanks made the same everywhere."""
    lines = text.splitlines()
    if len(lines) != len(names):
        raise AutotuneError(f"the host's answer about its kernel makes no sense: {text[:400]}")
    return {
        name: " ".join(line[1:].split()) if line.startswith("=") else None
        for name, line in zip(names, lines, strict=True)
    }


def _file(line: str) -> ObservedFile:
    kind, *rest = line.split(" ", 4)
    if not rest:
        return ObservedFile(kind)
    mode, owner, time, detail = rest
    return ObservedFile(kind, int(mode, 8), owner, time, detail)


def _unit(block: Mapping[str, str]) -> ObservedUnit:
    return ObservedUnit(
        known=block["LoadState"] not in ("not-found", "error"),
        active=block["ActiveState"] in ACTIVE,
        enabled=block["UnitFileState"],
        pid=int(block["MainPID"]),
        restarts=int(block["NRestarts"]),
        restarting=block["SubState"] == "auto-restart",
    )
