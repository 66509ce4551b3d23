"""How a host should be, how it is, and the least that makes it so: files, units, kernel. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.services.base import Action, Argv, Site, TrialStart
from autotune.strict import octal, split_lines


@dataclass(frozen=True)
class FileState:
    """A file as it should be: ``content``, or where a ``link`` points; with neither it is absent.

    ``owner`` is ``uid:gid``. A ``mode`` or ``owner`` of ``None`` is left as it is. ``time`` is when
    it was last modified, in seconds since the epoch; ``access`` is its access list, as
    `setfacl --set` takes it, empty where the mode says all.
    """

    content: bytes | None = None
    mode: int | None = None
    owner: str | None = None
    link: str | None = None
    time: str | None = None
    access: str | None = None

    @property
    def absent(self) -> bool:
        return self.content is None and self.link is None

    @property
    def digest(self) -> str:
        """What ``digest`` of ``on_host.sh`` prints about it."""
        if self.link is not None:
            return f"link {self.link}"
        return "" if self.content is None else hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class ObservedFile:
    """A path as it is. ``detail``: a file's SHA-256, or where a link points."""

    kind: str
    mode: int = 0
    owner: str = ""
    time: str = ""
    detail: str = ""
    access: str = ""

    def is_as(self, desired: FileState) -> bool:
        if desired.absent:
            return self.kind == "absent"
        if desired.link is not None:
            return (self.kind, self.detail) == ("link", desired.link)
        return (
            self.kind == "file"
            and self.detail == desired.digest
            and desired.mode in (None, self.mode)
            and desired.owner in (None, self.owner)
            and desired.time in (None, self.time)
            and desired.access in (None, self.access)
        )


SWITCHED = {"enabled": True, "disabled": False}  # others cannot be switched: `static`, `masked` …


@dataclass(frozen=True)
class ObservedUnit:
    """``pid``: its main process; ``restarts``: how often systemd itself started it again, of late.

    ``restarting``: it has ended, and systemd is about to start it again. ``enabled``: in systemd's
    word, whether it starts at boot. ``definition``: words that change with the unit's definition,
    where the service manager makes units from definitions.
    """

    exists: bool
    active: bool
    enabled: str
    pid: int
    restarts: int
    restarting: bool = False
    definition: str = ""

    @property
    def masked(self) -> bool:
        return self.enabled.startswith("masked")


@dataclass(frozen=True)
class HostState:
    """A host as it should be: files by path, units that run or do not, kernel values by name.

    ``listening`` is where a unit accepts connections once it is up: a port, or a socket's path.
    ``enabled``: whether a unit of ``units`` starts at boot; for units not in it, that stays as it is.
    The processes of ``rereading`` units stay when they are told to reload. ``definitions``: how units
    were defined, as ``ObservedUnit.definition`` has it.
    """

    files: Mapping[str, FileState] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    listening: Mapping[str, str] = field(default_factory=dict)
    enabled: Mapping[str, bool] = field(default_factory=dict)
    rereading: frozenset[str] = frozenset()
    definitions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedHost:
    """A host as it is; a kernel value that does not exist is ``None``."""

    files: Mapping[str, ObservedFile] = field(default_factory=dict)
    units: Mapping[str, ObservedUnit] = field(default_factory=dict)
    sysctls: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceManager:
    """How the units of a host are asked about, started and stopped.

    ``functions`` are shell functions beside those of ``on_host.sh``: ``units UNIT…`` prints what
    ``parse(units, text)`` understands; ``stop UNIT``, ``restart UNIT``, ``reload UNIT`` (until the
    processes of before are gone) or ``reload UNIT rereading`` (they stay), ``up UNIT PORT-OR-SOCKET``
    (until it listens), ``complaint UNIT`` (why it does not run), ``enable UNIT`` and ``disable UNIT``
    (at boot), ``reread`` after a change of files below ``directory``.

    Where services do not share their host's files: ``inside(site, argv)`` are the words that run
    ``argv`` where the service runs; ``validate(site, how, files, new)`` are the words that let the
    service's software check its ``files``, of which ``new`` are staged.
    """

    functions: str
    parse: Callable[[tuple[str, ...], str], dict[str, ObservedUnit]]
    directory: str
    inside: Callable[[Site, Argv], Argv] | None = None
    validate: Callable[[Site, Argv | TrialStart, Sequence[str], Sequence[str]], Argv] | None = None


def unlike(desired: HostState, observed: ObservedHost) -> list[str]:
    """What is not as desired, each in a word or two; kernel values that do not exist are left out."""
    files = [path for path, file in desired.files.items() if not observed.files[path].is_as(file)]
    units = [unit for unit, runs in desired.units.items() if observed.units[unit].active != runs]
    keys = [name for name, value in desired.sysctls.items()
            if observed.sysctls[name] not in (None, value)]  # fmt: skip
    otherwise = [f"{unit} ({', '.join(words)})" for unit, before in desired.definitions.items()
                 if (words := _changed(before, observed.units[unit].definition))]  # fmt: skip
    at_boot = (f"{unit} at boot" for unit in switched(desired, observed))
    return [*files, *units, *keys, *otherwise, *at_boot]


def _changed(before: str, now: str) -> list[str]:
    """The names of those pieces of a definition, ``name=digest`` each, that have changed."""
    pieces = {*now.split()}
    return [piece.partition("=")[0] for piece in before.split() if piece not in pieces]


def switched(desired: HostState, observed: ObservedHost) -> dict[str, bool]:
    """Units that are to start at boot and do not, or the other way round."""
    return {unit: starts for unit, starts in desired.enabled.items()
            if SWITCHED.get(observed.units[unit].enabled) is not starts}  # fmt: skip


def kernel_file(sysctls: Mapping[str, str]) -> bytes:
    """Kernel values as sysctl.d(5) reads them."""
    lines = [f"{name} = {value}\n" for name, value in sorted(sysctls.items())]
    return "".join(["# Written by autotune.\n", *lines]).encode()


def parse_files(paths: tuple[str, ...], text: str) -> dict[str, ObservedFile]:
    """What ``look`` printed about ``paths``. Raises AutotuneError for output that makes no sense."""
    with understood("files", text):
        return {path: _file(line) for path, line in zip(paths, split_lines(text), strict=True)}


def parse_sysctls(names: tuple[str, ...], text: str) -> dict[str, str | None]:
    """What ``kernel`` printed about ``names``, runs of blanks made one. Raises as ``parse_files``."""
    with understood("kernel", text):
        return {
            name: " ".join(line[1:].split()) if line.startswith("=") else None
            for name, line in zip(names, split_lines(text), strict=True)
        }


@contextmanager
def understood(what: str, text: str) -> Iterator[None]:
    """Raise AutotuneError for a host's answer that makes no sense, so that a deployment rolls back."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise AutotuneError(
            f"the host's answer about its {what} makes no sense ({error}): {text[:400]}"
        ) from error


def _file(line: str) -> ObservedFile:
    kind, *rest = line.split(" ", 4)
    if not rest:
        return ObservedFile(kind)
    mode, owner, time, detail = rest
    if kind != "file":
        return ObservedFile(kind, octal(mode), owner, time, detail)
    digest, _, access = detail.partition(" ")
    return ObservedFile(kind, octal(mode), owner, time, digest, access)


@dataclass(frozen=True)
class HostPlan:
    """The least that makes a host as it should be, in the order it is done.

    ``stop`` units → ``write`` and ``remove`` files → set ``sysctls`` → ``act`` on units → ``switch``
    whether they start at boot.
    ``unread`` are files that the service manager may not have read in their desired version.
    ``replaces``: what the plan replaces, the digest of a file or the value of the kernel, by path
    or name.
    """

    stop: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = field(default=(), compare=False)
    act: Mapping[str, Action] = field(default_factory=dict)
    replaces: Mapping[str, str] = field(default_factory=dict, compare=False)
    switch: Mapping[str, bool] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.stop, self.write, self.remove, self.sysctls, self.act, self.switch))
