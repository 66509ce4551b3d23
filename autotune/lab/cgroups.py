"""Control groups that limit the CPU and memory of lab hosts.

A host's first process joins its groups before it becomes the host, so its groups contain every
descendant. The groups therefore also list the processes that must be killed with the lab.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab.lock import run_checked
from autotune.lab.plan import LabHost, LabPlan, Names
from autotune.strict import split_lines

MOUNT_POINT = Path("/sys/fs/cgroup")
_SYSTEMD = "name=systemd"  # systemd's version 1 hierarchy, in which it tracks its units
_V1_NEEDED = ("cpu", "memory", _SYSTEMD)
_V1_WELCOME = "cpuacct"  # shows a host its CPU use; mounted with "cpu" or separately

_PERIOD = 10_000  # µs, a tenth of the kernel's default: a throttled host waits 10 ms at most
_LEAST_QUOTA = 1_000  # µs, the kernel's minimum
_LONGEST_PERIOD = 1_000_000  # µs, the kernel's maximum
# Kernels without swap accounting lack these files. Hosts may then swap.
_OPTIONAL = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes"})
_TO_DIE = 60.0  # s to wait for a killed process


@dataclass(frozen=True)
class Hierarchy:
    """One tree of control groups. ``controllers`` lists the resources that it limits."""

    path: Path
    version: int
    controllers: tuple[str, ...]
    mounted: bool

    def group(self, lab: str, host: str) -> Path:
        return self.path / lab / host


@dataclass(frozen=True)
class Mount:
    """A line of ``/proc/self/mountinfo``."""

    path: Path
    kind: str
    options: tuple[str, ...]


def hierarchies(mounted: str, proc_cgroups: str, private: Path) -> tuple[Hierarchy, ...]:
    """Return the control group trees of a lab.

    These are the trees of this machine. Missing ones get a path under ``private``. ``mounted`` and
    ``proc_cgroups`` are the contents of ``/proc/self/mountinfo`` and ``/proc/cgroups``.
    """
    trees = [mount for mount in mounts(mounted) if mount.kind in ("cgroup", "cgroup2")]
    own = [mount.path for mount in trees if mount.path.is_relative_to(private)]
    theirs = [mount for mount in trees if mount.path.is_relative_to(MOUNT_POINT)]
    if any(mount.kind == "cgroup2" and mount.path == MOUNT_POINT for mount in theirs):
        return (Hierarchy(MOUNT_POINT, 2, ("cpu", "memory"), mounted=True),)
    rows = [line.split() for line in split_lines(proc_cgroups)]
    held = {row[0] for row in rows if len(row) > 1 and row[1] != "0"}  # by a version 1 tree
    if not theirs and not held & {"cpu", "memory"}:
        return (Hierarchy(private, 2, ("cpu", "memory"), mounted=bool(own)),)
    return _version_1(theirs, own, private)


def mountinfo() -> str:
    """Return ``/proc/self/mountinfo``, which lists the mounts in this process's namespace."""
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def mounts(text: str) -> list[Mount]:
    """Parse the mounts in ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""
    mounted = []
    for line in split_lines(text):
        (before, _, after) = line.partition(" - ")
        fields = after.split()
        path = before.split()[4].replace("\\040", " ").replace("\\011", "\t")
        options = tuple(fields[2].split(",")) if len(fields) > 2 else ()
        mounted.append(Mount(Path(path), fields[0], options))
    return mounted


def limits(hierarchy: Hierarchy, host: LabHost) -> dict[str, str]:
    """Return the values to write by file of the host's group in ``hierarchy``, in this order."""
    files: dict[str, str] = {}
    if host.cpus is not None and "cpu" in hierarchy.controllers:
        (quota, period) = bandwidth(host.cpus)
        if hierarchy.version == 2:
            files["cpu.max"] = f"{quota} {period}"
        else:
            files |= {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
    if host.memory is not None and "memory" in hierarchy.controllers:
        memory = str(host.memory)
        if hierarchy.version == 2:
            files |= {"memory.max": memory, "memory.swap.max": "0"}
        else:
            files |= {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
    return files


def bandwidth(cpus: float) -> tuple[int, int]:
    """Return the quota and period in µs for the time of ``cpus`` CPUs.

    A short period delays a throttled host by milliseconds, not by the kernel's usual 100 ms. A tiny
    share needs a longer period because the quota has a minimum.
    """
    period = min(max(_PERIOD, round(_LEAST_QUOTA / cpus)), _LONGEST_PERIOD)
    return (max(_LEAST_QUOTA, round(cpus * period)), period)


def _version_1(theirs: list[Mount], own: list[Path], private: Path) -> tuple[Hierarchy, ...]:
    trees = []
    for controller in _V1_NEEDED:
        path = next((mount.path for mount in theirs if controller in mount.options), None)
        lacking = private / controller.removeprefix("name=")
        mounted = path is not None or lacking in own
        trees.append(Hierarchy(path or lacking, 1, (controller,), mounted))
    apart = [m for m in theirs if _V1_WELCOME in m.options and "cpu" not in m.options]
    trees += [Hierarchy(mount.path, 1, (_V1_WELCOME,), mounted=True) for mount in apart]
    # A version 2 tree next to these limits nothing, but systemd tracks its units there too.
    unified = [mount for mount in theirs if mount.kind == "cgroup2"]
    trees += [Hierarchy(mount.path, 2, (), mounted=True) for mount in unified]
    return tuple(trees)


def make_groups(plan: LabPlan) -> tuple[Hierarchy, ...]:
    """Create every host's groups and limits, and mount the trees that this machine lacks."""
    proc_cgroups = Path("/proc/cgroups").read_text(encoding="ascii")
    trees = hierarchies(mountinfo(), proc_cgroups, plan.names.private_cgroups)
    for hierarchy in trees:
        if not hierarchy.mounted:
            _mount(hierarchy)
        (hierarchy.path / plan.names.cgroup).mkdir(exist_ok=True)
        if hierarchy.version == 2 and hierarchy.controllers:
            _hand_down(hierarchy, plan)
        for host in plan.hosts:
            hierarchy.group(plan.names.cgroup, host.name).mkdir(exist_ok=True)
            _limit(hierarchy, plan, host)
    return trees


def processes(names: Names, host: str) -> tuple[int, ...]:
    """Return the PIDs of one lab host in any order; empty if the host is not running."""
    return tuple(_members(groups[0])) if (groups := _groups(names, host)) else ()


def remove_groups(names: Names, host: str | None = None) -> None:
    """Kill all processes of the lab (or of one ``host``) and remove their groups."""
    deadline = time.monotonic() + _TO_DIE
    while left := [path for path in _groups(names, host) if not _removed(path)]:
        if time.monotonic() > deadline:
            stuck = sorted({pid for path in left for pid in _members(path)})
            raise AutotuneError(
                f"control group {left[0]} cannot be removed: processes {stuck} survived SIGKILL"
            )
        time.sleep(0.005)
    if host is None:
        _unmount(names)


def _groups(names: Names, host: str | None) -> list[Path]:
    trees = [mount.path for mount in mounts(mountinfo()) if mount.kind.startswith("cgroup")]
    paths = [tree / names.cgroup / (host or "") for tree in trees]
    return [path for path in paths if path.is_dir()]


def _hand_down(hierarchy: Hierarchy, plan: LabPlan) -> None:
    """Allow child groups to limit CPU and memory. Version 2 requires this at each level."""
    controllers = " ".join(f"+{controller}" for controller in hierarchy.controllers)
    limited = any(host.cpus is not None or host.memory is not None for host in plan.hosts)
    for directory in (hierarchy.path, hierarchy.path / plan.names.cgroup):
        try:
            (directory / "cgroup.subtree_control").write_text(controllers, encoding="ascii")
        except OSError as error:
            if limited:
                raise AutotuneError(
                    f"cannot limit CPUs and memory of the hosts in {directory} ({error.strerror})",
                    hint="if this is a container, start it with writable control groups",
                ) from None


def _limit(hierarchy: Hierarchy, plan: LabPlan, host: LabHost) -> None:
    group = hierarchy.group(plan.names.cgroup, host.name)
    for file, value in limits(hierarchy, host).items():
        try:
            (group / file).write_text(value, encoding="ascii")
        except OSError as error:
            if file not in _OPTIONAL:
                raise AutotuneError(
                    f"{host.name}: cannot set {file} to {value} ({error.strerror})"
                ) from None


def _mount(hierarchy: Hierarchy) -> None:
    hierarchy.path.mkdir(parents=True, exist_ok=True)
    if hierarchy.version == 2:
        run_checked(["mount", "-t", "cgroup2", "cgroup2", str(hierarchy.path)])
        return
    (controller,) = hierarchy.controllers
    options = f"none,{controller}" if controller.startswith("name=") else controller
    run_checked(["mount", "-t", "cgroup", "-o", options, "cgroup", str(hierarchy.path)])


def _unmount(names: Names) -> None:
    private = names.private_cgroups
    for mount in reversed(mounts(mountinfo())):
        if mount.path.is_relative_to(private):
            run_checked(["umount", str(mount.path)])
    # Never delete recursively here, because anything still mounted must not change.
    for path in sorted(private.glob("*"), reverse=True):
        path.rmdir()
    with contextlib.suppress(FileNotFoundError):
        private.rmdir()


def _removed(group: Path) -> bool:
    _kill(group)
    try:
        for path in _bottom_up(group):
            path.rmdir()
    except FileNotFoundError:
        return not group.exists()
    except OSError:  # busy: a process still runs in the group
        return False
    return True


def _kill(group: Path) -> None:
    """Kill every process in ``group`` and wait up to a second for their exit."""
    with contextlib.ExitStack() as stack:
        handles = []
        for pid in _members(group):
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                stack.callback(os.close, handle)
                # Check again: with the handle open, the PID cannot pass to another process.
                if pid in _members(group):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    handles.append(handle)
        deadline = time.monotonic() + 1.0
        while handles and time.monotonic() < deadline:
            (ended, _, _) = select.select(handles, [], [], deadline - time.monotonic())
            handles = [handle for handle in handles if handle not in ended]


def _members(group: Path) -> Iterator[int]:
    for path in _bottom_up(group):
        with contextlib.suppress(OSError):
            for line in (path / "cgroup.procs").read_text(encoding="ascii").split():
                if line != "0":  # a process in another PID namespace, which has no PID here
                    yield int(line)


def _bottom_up(group: Path) -> list[Path]:
    return [Path(path) for (path, _, _) in os.walk(group, topdown=False)]
