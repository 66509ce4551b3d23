"""Desired and observed state of a host, and pure functions that derive the plan of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autotune.deploy.unit_start import USUAL_STOP_SECONDS, UnitStart
from autotune.errors import AutotuneError
from autotune.services.base import Action, Argv, Placement, TrialStart
from autotune.strict_parsing import parse_file_mode, split_lines

_SYSCTL_FILE_HEADER = "# Written by autotune."


@dataclass(frozen=True)
class FileState:
    """Desired state of a file: its ``content`` or its ``link_target``. If both are ``None``, the file
    must be absent.

    ``owner`` is ``uid:gid``. If ``mode`` or ``owner`` is ``None``, the file's mode or owner does not
    change. ``new_mode`` is the mode of a file that does not exist yet. ``modified`` is the modification
    time in seconds since the epoch. ``acl`` is an ACL for `setfacl --set`, empty if the mode is enough.
    """

    content: bytes | None = None
    mode: int | None = None
    owner: str | None = None
    link_target: str | None = None
    modified: str | None = None
    acl: str | None = None
    new_mode: int = 0o644

    @property
    def is_absent(self) -> bool:
        return self.content is None and self.link_target is None

    @property
    def digest(self) -> str:
        """Return the file's digest, in the format of the function ``digest`` in ``on_host.sh``."""
        if self.link_target is not None:
            return f"link {self.link_target}"
        return "" if self.content is None else hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class ObservedFile:
    """Observed state of a path. ``detail`` is a SHA-256 digest, a link target, or the reason why the path
    was refused.

    ``staging_directory`` is set if other accounts can rename a directory on the path of the file.
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
            and desired.modified in (None, self.modified)
            and self.has_permissions(desired.mode, desired.owner, desired.acl)
        )

    def has_permissions(self, mode: int | None, owner: str | None, acl: str | None) -> bool:
        """True if these are the permissions of the file. ``None`` means any."""
        return mode in (None, self.mode) and owner in (None, self.owner) and acl in (None, self.acl)


# Units in other states, such as `static` or `masked`, cannot be enabled or disabled.
BOOT_STATES = {
    "enabled": True,
    "disabled": False,
}


@dataclass(frozen=True)
class ObservedUnit:
    """Observed state of a unit. ``pid`` is its main process.

    ``restarts`` counts restarts by the service manager. ``restarting`` is true for a stopped unit
    that the service manager is about to start. ``enabled`` is the unit's state at boot in systemd's
    terms (UnitFileState). ``definition`` is a text that changes whenever the unit's definition
    changes. ``stop_seconds`` is the time after which the service manager kills a stopping unit.
    """

    exists: bool
    active: bool
    enabled: str
    pid: int
    restarts: int
    restarting: bool = False
    definition: str = ""
    stop_seconds: float = USUAL_STOP_SECONDS

    @property
    def is_masked(self) -> bool:
        return self.enabled.startswith("masked")


@dataclass(frozen=True)
class HostState:
    """Desired state of a host: files by path, units, and kernel values by name.

    ``units`` is true for units that must run. ``starts`` contains the start order and the readiness
    check of each unit. ``enabled`` is true for units that must start at boot, and false for units that
    must not. For all other units, the start at boot is not changed. Processes of
    ``in_process_reloads`` units survive a reload. ``definitions`` contains ``ObservedUnit.definition``
    by unit.
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
    """Observed state of a host. If a kernel value does not exist, its value is ``None``."""

    files: Mapping[str, ObservedFile] = field(default_factory=dict)
    units: Mapping[str, ObservedUnit] = field(default_factory=dict)
    sysctls: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceManager:
    """Commands that query, start and stop the units of a host.

    ``shell_functions`` are appended to ``on_host.sh``:

    - ``units UNIT…`` prints input for ``parse_units(units, text)``.
    - ``stop UNIT`` and ``restart UNIT`` act on a unit.
    - ``reload UNIT`` waits until new processes have replaced the old processes. With ``rereading``,
      it does not wait, because the processes are not replaced.
    - ``up UNIT PORT-OR-SOCKET SECONDS`` waits until the unit listens on the port or socket.
    - ``complaint UNIT`` prints why the unit is not running.
    - ``group UNIT`` prints a unique part of the path of the unit's control group.
    - ``enable UNIT`` and ``disable UNIT`` enable or disable the unit's start at boot.
    - ``reread`` makes the service manager read changed files below ``unit_directory``.

    Two callbacks exist for services with their own file systems. ``wrap_command(placement, argv)``
    returns the command that runs ``argv`` in the service's container. ``validate_command(placement,
    method, files, changed)`` returns the command that validates ``files``. Only ``changed`` files are
    staged.
    """

    shell_functions: str
    parse_units: Callable[[tuple[str, ...], str], dict[str, ObservedUnit]]
    unit_directory: str
    wrap_command: Callable[[Placement, Argv], Argv] | None = None
    validate_command: (
        Callable[[Placement, Argv | TrialStart, Sequence[str], Sequence[str]], Argv] | None
    ) = None


def list_differences(desired: HostState, observed: ObservedHost) -> list[str]:
    """Return the differences from the desired state. Kernel values that do not exist, and directories
    to which others have added files, are ignored.
    """
    shared_directories = list_shared_directories(desired, observed)
    differing_paths = [
        path
        for path, file in desired.files.items()
        if not observed.files[path].matches(file) and path not in shared_directories
    ]
    differing_units = [
        unit for unit, runs in desired.units.items() if observed.units[unit].active != runs
    ]
    differing_sysctls = [
        name
        for name, value in desired.sysctls.items()
        if observed.sysctls[name] not in (None, value)
    ]
    redefined_units = [
        f"{unit} ({', '.join(changed_names)})"
        for unit, old_definition in desired.definitions.items()
        if (changed_names := _list_changed_pieces(old_definition, observed.units[unit].definition))
    ]
    boot_lines = (f"{unit} at boot" for unit in find_boot_changes(desired, observed))
    return [*differing_paths, *differing_units, *differing_sysctls, *redefined_units, *boot_lines]


def list_shared_directories(desired: HostState, observed: ObservedHost) -> list[str]:
    """Return the directories that must be absent, but could not be removed because others have added
    files to them.
    """
    return [
        path
        for path, file in desired.files.items()
        if file.is_absent and observed.files[path].kind == "directory"
    ]


def _list_changed_pieces(old_definition: str, new_definition: str) -> list[str]:
    """Return the names in ``name=digest`` pairs that differ between two definitions of a unit."""
    new_pieces = {*new_definition.split()}
    return [piece.partition("=")[0] for piece in old_definition.split() if piece not in new_pieces]


def was_replaced_by_others(old_definition: str, new_definition: str) -> bool:
    """True if others recreated a container after its backup, without the files of a deployment.

    Such a container has the piece ``replaced`` in its definition until the files are removed.
    """
    return "replaced=yes" in new_definition.split() and bool(
        _list_changed_pieces(old_definition, new_definition)
    )


def find_boot_changes(desired: HostState, observed: ObservedHost) -> dict[str, bool]:
    """Return the units whose start at boot must be enabled (true) or disabled (false). A unit that does
    not exist does not start.
    """
    return {
        unit: starts_at_boot
        for unit, starts_at_boot in desired.enabled.items()
        if BOOT_STATES.get(observed.units[unit].enabled) is not starts_at_boot
        and (starts_at_boot or observed.units[unit].exists)
    }


def format_sysctl_file(sysctls: Mapping[str, str]) -> bytes:
    """Return kernel values as a file in the syntax of sysctl.d(5)."""
    lines = [f"{name} = {value}\n" for name, value in sorted(sysctls.items())]
    return "".join([f"{_SYSCTL_FILE_HEADER}\n", *lines]).encode()


def merge_sysctl_file(
    content: bytes, sysctls: Mapping[str, str], desired: Mapping[str, str]
) -> bytes:
    """Return a file in the syntax of sysctl.d(5) with the values in ``sysctls``.

    Lines of ``content`` are kept unless they set a name in ``sysctls``, or a value that differs from
    ``desired``. The result may be empty.
    """
    kept_lines = []
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        name, value = _parse_sysctl_line(line)
        is_valid = name not in sysctls and desired.get(name, value) == value
        if is_valid and line != _SYSCTL_FILE_HEADER:
            kept_lines.append(line)
    if not kept_lines and not sysctls:
        return b""
    kept_text = "".join(f"{line}\n" for line in kept_lines)
    return format_sysctl_file(sysctls) + kept_text.encode("utf-8", "surrogateescape")


def _parse_sysctl_line(line: str) -> tuple[str, str]:
    """Return the name and value in a line of sysctl.d(5), such as ``-net/ipv4/tcp_fin_timeout = 30``."""
    name, _, value = line.partition("=")
    return name.strip().removeprefix("-").replace("/", "."), " ".join(value.split())


def parse_files(paths: tuple[str, ...], output: str) -> dict[str, ObservedFile]:
    """Return the files in the output of the shell function ``look``. Raises AutotuneError for
    invalid output.
    """
    with wrap_parse_errors("files", output):
        return {
            path: _parse_file(line) for path, line in zip(paths, split_lines(output), strict=True)
        }


def parse_sysctls(sysctl_names: tuple[str, ...], output: str) -> dict[str, str | None]:
    """Return the kernel values in the output of the shell function ``kernel``, with whitespace
    collapsed. Raises AutotuneError for invalid output.
    """
    with wrap_parse_errors("kernel", output):
        return {
            sysctl_name: " ".join(line[1:].split()) if line.startswith("=") else None
            for sysctl_name, line in zip(sysctl_names, split_lines(output), strict=True)
        }


@contextmanager
def wrap_parse_errors(subject: str, output: str) -> Iterator[None]:
    """Raise AutotuneError if a host's output cannot be parsed, so that a deployment rolls back."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise AutotuneError(
            f"unexpected output from the host about {subject} ({error}): {output[:400]}"
        ) from error


# first words of lines that `look_exposed` prints about files that other accounts could replace
_APART_PREFIX, _REFUSED_PREFIX = "apart ", "refused "


def _parse_file(line: str) -> ObservedFile:
    if line.startswith(_APART_PREFIX):
        staging_directory, _, file_line = line.removeprefix(_APART_PREFIX).partition("\t")
        return replace(_parse_file(file_line), staging_directory=staging_directory)
    if line.startswith(_REFUSED_PREFIX):
        return ObservedFile("refused", detail=line.removeprefix(_REFUSED_PREFIX))
    kind, *file_fields = line.split(" ", 4)
    if not file_fields:
        return ObservedFile(kind)
    mode, owner, modification_time, detail = file_fields
    if kind != "file":
        return ObservedFile(kind, parse_file_mode(mode), owner, modification_time, detail)
    digest, _, access_list = detail.partition(" ")
    return ObservedFile(kind, parse_file_mode(mode), owner, modification_time, digest, access_list)


@dataclass(frozen=True)
class HostPlan:
    """The smallest plan that brings a host into the desired state, in order of execution.

    The order is ``units_to_stop``, ``files_to_write``, ``files_to_remove``, ``sysctls``,
    ``unit_actions``, and ``boot_changes``. ``unread_files`` are files that the service manager may not
    have read yet. ``replaced`` contains the state before the change: digests of files by path, and kernel
    values by name.
    """

    units_to_stop: tuple[str, ...] = ()
    files_to_write: tuple[str, ...] = ()
    files_to_remove: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    unread_files: tuple[str, ...] = field(default=(), compare=False)
    unit_actions: Mapping[str, Action] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict, compare=False)
    boot_changes: Mapping[str, bool] = field(default_factory=dict)

    def list_ranks(self, unit_starts: Mapping[str, UnitStart]) -> set[int]:
        """Return the ranks of the units that the plan starts or reloads."""
        return {find_rank(unit_starts, unit) for unit in self.unit_actions}

    def select_rank(self, rank: int | None, unit_starts: Mapping[str, UnitStart]) -> HostPlan:
        """Return the part of the plan that starts or reloads units of ``rank``.

        ``None`` selects all other changes: files, kernel values, and units that stop.
        """
        actions = {
            unit: action
            for unit, action in self.unit_actions.items()
            if find_rank(unit_starts, unit) == rank
        }
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


def find_rank(unit_starts: Mapping[str, UnitStart], unit: str) -> int:
    """Return the rank of a unit in the start order; 0 if the rank is unknown."""
    return unit_starts[unit].rank if unit in unit_starts else 0


PlanStep = Mapping[str, HostPlan]  # plans by host


def split_into_steps(
    plans: Mapping[str, HostPlan], starts_by_host: Mapping[str, Mapping[str, UnitStart]]
) -> list[PlanStep]:
    """Return the steps of a deployment. The plans in one step, by host, may run concurrently.

    Back-end tiers come first, and the entry comes last. All files are written before a unit starts.
    ``starts_by_host`` is keyed by host, then by unit. Each step changes at least one host.
    """
    ranks = sorted(
        {r for host, plan in plans.items() for r in plan.list_ranks(starts_by_host.get(host, {}))}
    )
    first_step, *later_steps = [
        {host: plan.select_rank(rank, starts_by_host.get(host, {})) for host, plan in plans.items()}
        for rank in (None, *ranks)
    ]
    boot_step = {host: HostPlan(boot_changes=plan.boot_changes) for host, plan in plans.items()}
    # The files and the first unit actions of a host share one round trip.
    joined_steps = (
        [
            {
                host: replace(plan, unit_actions=later_steps[0][host].unit_actions)
                for host, plan in first_step.items()
            }
        ]
        if later_steps
        else [first_step]
    )
    steps = [*joined_steps, *later_steps[1:], boot_step]
    # The service manager rereads its files before the first unit starts, even if no file changes.
    changing_steps = [
        {host: plan for host, plan in step.items() if plan or (plan.unread_files and plans[host])}
        for step in steps
    ]
    return [step for step in changing_steps if step]
