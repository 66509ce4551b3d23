"""How a host should be, how it is, and the least that makes it so: files, units, kernel. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autotune.deploy.unit_start import UnitStart
from autotune.errors import AutotuneError
from autotune.services.base import Action, Argv, Placement, TrialStart
from autotune.strict_parsing import parse_file_mode, split_lines


@dataclass(frozen=True)
class FileState:
    """A file as it should be: ``content``, or where a ``link_target`` points; with neither it is absent.

    ``owner`` is ``uid:gid``. A ``mode`` or ``owner`` of ``None`` is left as it is. ``modified`` is when
    it was last modified, in seconds since the epoch; ``acl`` is its access list, as
    `setfacl --set` takes it, empty where the mode says all.
    """

    content: bytes | None = None
    mode: int | None = None
    owner: str | None = None
    link_target: str | None = None
    modified: str | None = None
    acl: str | None = None

    @property
    def is_absent(self) -> bool:
        return self.content is None and self.link_target is None

    @property
    def digest(self) -> str:
        """What ``digest`` of ``on_host.sh`` prints about it."""
        if self.link_target is not None:
            return f"link {self.link_target}"
        return "" if self.content is None else hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class ObservedFile:
    """A path as it is. ``detail``: a file's SHA-256, where a link points, or why it is ``refused``.

    ``staging_directory``: where its new version is staged, if other accounts can change names on the
    way to it.
    """

    kind: str
    mode: int = 0
    owner: str = ""
    modified: str = ""
    detail: str = ""
    acl: str = ""
    staging_directory: str = ""

    def matches(self, desired: FileState) -> bool:
        if desired.is_absent:
            return self.kind == "absent"
        if desired.link_target is not None:
            return (self.kind, self.detail) == ("link", desired.link_target)
        return (
            self.kind == "file"
            and self.detail == desired.digest
            and desired.mode in (None, self.mode)
            and desired.owner in (None, self.owner)
            and desired.modified in (None, self.modified)
            and desired.acl in (None, self.acl)
        )


# Others cannot be switched: `static`, `masked` ….
BOOT_STATES = {
    "enabled": True,
    "disabled": False,
}


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
    def is_masked(self) -> bool:
        return self.enabled.startswith("masked")


@dataclass(frozen=True)
class HostState:
    """A host as it should be: files by path, units that run or do not, kernel values by name.

    ``starts`` contains the order of units and the signs that they are ready.
    ``enabled``: whether a unit of ``units`` starts at boot; for units not in it, that stays as it is.
    The processes of ``in_process_reloads`` units stay when they are told to reload. ``definitions``:
    how units were defined, as ``ObservedUnit.definition`` has it.
    """

    files: Mapping[str, FileState] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, UnitStart] = field(default_factory=dict)
    enabled: Mapping[str, bool] = field(default_factory=dict)
    in_process_reloads: frozenset[str] = frozenset()
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

    ``shell_functions`` are shell functions beside those of ``on_host.sh``: ``units UNIT…`` prints what
    ``parse_units(units, text)`` understands; ``stop UNIT``, ``restart UNIT``, ``reload UNIT`` (until new
    processes have replaced those of before) or ``reload UNIT rereading`` (they stay),
    ``up UNIT PORT-OR-SOCKET SECONDS`` (until it listens), ``complaint UNIT`` (why it does not run),
    ``enable UNIT`` and ``disable UNIT`` (at boot), ``reread`` after a change of files below
    ``unit_directory``.

    Where services do not share their host's files: ``wrap_command(site, argv)`` are the words that run
    ``argv`` where the service runs; ``validate_command(site, how, files, new)`` are the words that let
    the service's software check its ``files``, of which ``new`` are staged.
    """

    shell_functions: str
    parse_units: Callable[[tuple[str, ...], str], dict[str, ObservedUnit]]
    unit_directory: str
    wrap_command: Callable[[Placement, Argv], Argv] | None = None
    validate_command: (
        Callable[[Placement, Argv | TrialStart, Sequence[str], Sequence[str]], Argv] | None
    ) = None


def list_differences(desired: HostState, observed: ObservedHost) -> list[str]:
    """What is not as desired, each in a word or two; kernel values that do not exist are left out."""
    files = [path for path, file in desired.files.items() if not observed.files[path].matches(file)]
    units = [unit for unit, runs in desired.units.items() if observed.units[unit].active != runs]
    keys = [name for name, value in desired.sysctls.items()
            if observed.sysctls[name] not in (None, value)]  # fmt: skip
    otherwise = [f"{unit} ({', '.join(words)})" for unit, before in desired.definitions.items()
                 if (words := _list_changed_pieces(before, observed.units[unit].definition))]  # fmt: skip
    at_boot = (f"{unit} at boot" for unit in find_boot_changes(desired, observed))
    return [*files, *units, *keys, *otherwise, *at_boot]


def _list_changed_pieces(old_definition: str, new_definition: str) -> list[str]:
    """The names of those pieces of a definition, ``name=digest`` each, that have changed."""
    pieces = {*new_definition.split()}
    return [piece.partition("=")[0] for piece in old_definition.split() if piece not in pieces]


def find_boot_changes(desired: HostState, observed: ObservedHost) -> dict[str, bool]:
    """Units that are to start at boot and do not, or the other way round."""
    return {unit: starts for unit, starts in desired.enabled.items()
            if BOOT_STATES.get(observed.units[unit].enabled) is not starts}  # fmt: skip


def format_sysctl_file(sysctls: Mapping[str, str]) -> bytes:
    """Kernel values as sysctl.d(5) reads them."""
    lines = [f"{name} = {value}\n" for name, value in sorted(sysctls.items())]
    return "".join(["# Written by autotune.\n", *lines]).encode()


def parse_files(paths: tuple[str, ...], text: str) -> dict[str, ObservedFile]:
    """What ``look`` printed about ``paths``. Raises AutotuneError for output that makes no sense."""
    with wrap_parse_errors("files", text):
        return {
            path: _parse_file(line) for path, line in zip(paths, split_lines(text), strict=True)
        }


def parse_sysctls(names: tuple[str, ...], text: str) -> dict[str, str | None]:
    """What ``kernel`` printed about ``names``, runs of blanks made one. Raises as ``parse_files``."""
    with wrap_parse_errors("kernel", text):
        return {
            name: " ".join(line[1:].split()) if line.startswith("=") else None
            for name, line in zip(names, split_lines(text), strict=True)
        }


@contextmanager
def wrap_parse_errors(subject: str, text: str) -> Iterator[None]:
    """Raise AutotuneError for a host's answer that makes no sense, so that a deployment rolls back."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise AutotuneError(
            f"the host's answer about its {subject} makes no sense ({error}): {text[:400]}"
        ) from error


_APART_PREFIX, _REFUSED_PREFIX = "apart ", "refused "  # how `look_exposed` begins a line


def _parse_file(line: str) -> ObservedFile:
    if line.startswith(_APART_PREFIX):
        apart, _, of_file = line.removeprefix(_APART_PREFIX).partition("\t")
        return replace(_parse_file(of_file), staging_directory=apart)
    if line.startswith(_REFUSED_PREFIX):
        return ObservedFile("refused", detail=line.removeprefix(_REFUSED_PREFIX))
    kind, *rest = line.split(" ", 4)
    if not rest:
        return ObservedFile(kind)
    mode, owner, time, detail = rest
    if kind != "file":
        return ObservedFile(kind, parse_file_mode(mode), owner, time, detail)
    digest, _, access = detail.partition(" ")
    return ObservedFile(kind, parse_file_mode(mode), owner, time, digest, access)


@dataclass(frozen=True)
class HostPlan:
    """The least that makes a host as it should be, in the order it is done.

    ``units_to_stop`` units → ``files_to_write`` and ``files_to_remove`` files → set ``sysctls`` →
    ``unit_actions`` on units → ``boot_changes`` whether they start at boot.
    ``unread_files`` are files that the service manager may not have read in their desired version.
    ``replaced``: what the plan replaces, the digest of a file or the value of the kernel, by path
    or name.
    """

    units_to_stop: tuple[str, ...] = ()
    files_to_write: tuple[str, ...] = ()
    files_to_remove: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    unread_files: tuple[str, ...] = field(default=(), compare=False)
    unit_actions: Mapping[str, Action] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict, compare=False)
    boot_changes: Mapping[str, bool] = field(default_factory=dict)

    def list_ranks(self, starts: Mapping[str, UnitStart]) -> set[int]:
        """Return the ranks of the units that start or reload."""
        return {find_rank(starts, unit) for unit in self.unit_actions}

    def select_rank(self, rank: int | None, starts: Mapping[str, UnitStart]) -> HostPlan:
        """Return the part of the plan with the actions on units of ``rank``.

        ``None`` selects all other changes: files, kernel values, and units that stop.
        """
        actions = {unit: action for unit, action in self.unit_actions.items()
                   if find_rank(starts, unit) == rank}  # fmt: skip
        if rank is None:
            return replace(self, unit_actions={}, boot_changes={})
        return HostPlan(unit_actions=actions)

    def __bool__(self) -> bool:
        return any(
            (
                self.units_to_stop,
                self.files_to_write,
                self.files_to_remove,
                self.sysctls,
                self.unit_actions,
                self.boot_changes,
            )
        )


def find_rank(starts: Mapping[str, UnitStart], unit: str) -> int:
    """Return the rank of a unit; 0 if no order is known for it."""
    return starts[unit].rank if unit in starts else 0


PlanStep = Mapping[str, HostPlan]  # by host


def split_into_steps(
    plans: Mapping[str, HostPlan], starts: Mapping[str, Mapping[str, UnitStart]]
) -> list[PlanStep]:
    """Return the steps of a deployment: each contains plans of hosts that may run concurrently.

    The tiers behind come first, and the entry comes last. Files are in place before any unit starts.
    ``starts`` are by host, then by unit. Each step changes at least one host.
    """
    ranks = sorted(
        {r for host, plan in plans.items() for r in plan.list_ranks(starts.get(host, {}))}
    )
    first, *later = [
        {host: plan.select_rank(rank, starts.get(host, {})) for host, plan in plans.items()}
        for rank in (None, *ranks)
    ]
    boot = {host: HostPlan(boot_changes=plan.boot_changes) for host, plan in plans.items()}
    # Files and the first units share an exchange with their host.
    joined = [
        {host: replace(plan, unit_actions=later[0][host].unit_actions) for host, plan in first.items()}
    ] if later else [first]  # fmt: skip
    steps = [*joined, *later[1:], boot]
    changing = [{host: plan for host, plan in step.items() if plan} for step in steps]
    return [step for step in changing if step]
