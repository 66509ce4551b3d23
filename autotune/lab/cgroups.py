"""Where the machines of a lab are held to their share of CPU and memory.

A machine's process joins its control groups before it becomes the machine, so everything it ever
starts is inside them: they are the limits, and also the list of what must die with the lab.
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

MOUNT_POINT = Path("/sys/fs/cgroup")
_SYSTEMD = "name=systemd"  # the version 1 hierarchy in which systemd keeps its units apart
_V1_NEEDED = ("cpu", "memory", _SYSTEMD)
_V1_WELCOME = "cpuacct"  # mounted with "cpu" or apart from it: a host then knows what it used

_PERIOD = 10_000  # µs; a tenth of the kernel's default: a host out of time waits 10 ms at most
_LEAST_QUOTA = 1_000  # µs; the kernel takes no less
_LONGEST_PERIOD = 1_000_000  # µs; nor more


@dataclass(frozen=True)
class Hierarchy:
    """One tree of control groups: ``controllers`` are the resources it divides."""

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


def hierarchies(mountinfo: str, proc_cgroups: str, private: Path) -> tuple[Hierarchy, ...]:
    """The trees a lab uses: those of this machine, and what it lacks mounted under ``private``.

    ``mountinfo`` and ``proc_cgroups`` are the texts of ``/proc/self/mountinfo`` and
    ``/proc/cgroups``.
    """
    found = [
        mount
        for mount in mounts(mountinfo)
        if mount.kind in ("cgroup", "cgroup2")
        and (mount.path.is_relative_to(MOUNT_POINT) or mount.path.is_relative_to(private))
    ]
    own = [mount for mount in found if mount.path.is_relative_to(private)]
    theirs = [mount for mount in found if mount not in own]
    if any(mount.kind == "cgroup2" and mount.path == MOUNT_POINT for mount in theirs):
        return (_unified(MOUNT_POINT, mounted=True),)
    if not theirs and _unbound(proc_cgroups):
        return (_unified(private, mounted=bool(own)),)
    return _version_1(theirs, own, private)


def mounts(mountinfo: str) -> list[Mount]:
    """What is mounted, as ``/proc/self/mountinfo`` tells it (proc_pid_mountinfo(5))."""
    known = []
    for line in mountinfo.splitlines():
        (before, _, after) = line.partition(" - ")
        fields = after.split()
        path = before.split()[4].replace("\\040", " ").replace("\\011", "\t")
        options = tuple(fields[2].split(",")) if len(fields) > 2 else ()
        known.append(Mount(Path(path), fields[0], options))
    return known


def limits(hierarchy: Hierarchy, host: LabHost) -> dict[str, str]:
    """What to write into which files of the host's group in ``hierarchy``, in this order."""
    wanted: dict[str, str] = {}
    if host.cpus is not None and "cpu" in hierarchy.controllers:
        (quota, period) = bandwidth(host.cpus)
        if hierarchy.version == 2:
            wanted["cpu.max"] = f"{quota} {period}"
        else:
            wanted |= {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
    if host.memory is not None and "memory" in hierarchy.controllers:
        if hierarchy.version == 2:
            wanted |= {"memory.max": str(host.memory), "memory.swap.max": "0"}
        else:
            wanted |= {
                "memory.limit_in_bytes": str(host.memory),
                "memory.memsw.limit_in_bytes": str(host.memory),
            }
    return wanted


#: Files a kernel without swap accounting does not have; without them a host may swap.
OPTIONAL = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes"})


def bandwidth(cpus: float) -> tuple[int, int]:
    """Quota and period, in µs, that give ``cpus`` CPUs' worth of time.

    The period is short, so that a throttled host answers late by milliseconds, not by the
    kernel's usual 100 ms; a tiny share needs a longer one for the least quota there is.
    """
    period = min(max(_PERIOD, round(_LEAST_QUOTA / cpus)), _LONGEST_PERIOD)
    return (max(_LEAST_QUOTA, round(cpus * period)), period)


def _unified(path: Path, *, mounted: bool) -> Hierarchy:
    return Hierarchy(path, 2, ("cpu", "memory"), mounted)


def _version_1(theirs: list[Mount], own: list[Mount], private: Path) -> tuple[Hierarchy, ...]:
    known = []
    for controller in _V1_NEEDED:
        there = next((mount for mount in theirs if controller in mount.options), None)
        if there is not None:
            known.append(Hierarchy(there.path, 1, (controller,), mounted=True))
            continue
        path = private / controller.removeprefix("name=")
        known.append(
            Hierarchy(path, 1, (controller,), mounted=any(mount.path == path for mount in own))
        )
    known += [
        Hierarchy(mount.path, 1, (_V1_WELCOME,), mounted=True)
        for mount in theirs
        if _V1_WELCOME in mount.options and "cpu" not in mount.options
    ]
    # A version 2 tree beside them carries no controller, but systemd keeps its units there too.
    known += [
        Hierarchy(mount.path, 2, (), mounted=True) for mount in theirs if mount.kind == "cgroup2"
    ]
    return tuple(known)


def _unbound(proc_cgroups: str) -> bool:
    """Whether CPU and memory are free to be used by version 2 (no version 1 tree holds them)."""
    held = {
        fields[0]
        for fields in map(str.split, proc_cgroups.splitlines())
        if len(fields) > 1 and fields[1] != "0"
    }
    return not held & {"cpu", "memory"}


_PATIENCE = 10.0  # s a killed process is given to be gone


def here(names: Names) -> tuple[Hierarchy, ...]:
    """The control group trees a lab uses on this machine."""
    return hierarchies(
        Path("/proc/self/mountinfo").read_text(encoding="utf-8"),
        Path("/proc/cgroups").read_text(encoding="ascii"),
        names.private_cgroups,
    )


def make_groups(plan: LabPlan) -> tuple[Hierarchy, ...]:
    """Make every host's groups, with its limits; mounts the trees this machine lacks."""
    known = here(plan.names)
    for hierarchy in known:
        if not hierarchy.mounted:
            _mount(hierarchy)
        (hierarchy.path / plan.names.cgroup).mkdir(exist_ok=True)
        if hierarchy.version == 2 and hierarchy.controllers:
            _hand_down(hierarchy, plan)
        for host in plan.hosts:
            hierarchy.group(plan.names.cgroup, host.name).mkdir(exist_ok=True)
            _limit(hierarchy, plan, host)
    return known


def processes(names: Names, host: str) -> tuple[int, ...]:
    """The processes of one host of the lab, in no order; empty if it is not running."""
    for tree in _trees():
        group = tree / names.cgroup / host
        if group.is_dir():
            return tuple(_members(group))
    return ()


def remove_groups(names: Names, host: str | None = None) -> None:
    """Kill whatever runs in the lab (or in one ``host`` of it) and remove its groups."""
    deadline = time.monotonic() + _PATIENCE
    while left := [path for path in _groups(names, host) if not _removed(path)]:
        if time.monotonic() > deadline:
            stuck = sorted({pid for path in left for pid in _members(path)})
            raise AutotuneError(f"processes that will not die hold {left[0]}: {stuck}")
        time.sleep(0.005)
    if host is None:
        _unmount(names)


def _groups(names: Names, host: str | None) -> list[Path]:
    paths = [tree / names.cgroup / (host or "") for tree in _trees()]
    return [path for path in paths if path.is_dir()]


def _trees() -> list[Path]:
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return [mount.path for mount in mounts(text) if mount.kind.startswith("cgroup")]


def _hand_down(hierarchy: Hierarchy, plan: LabPlan) -> None:
    """Let groups below divide CPU and memory (version 2 asks for it level by level)."""
    wanted = " ".join(f"+{controller}" for controller in hierarchy.controllers)
    limited = any(host.cpus is not None or host.memory is not None for host in plan.hosts)
    for directory in (hierarchy.path, hierarchy.path / plan.names.cgroup):
        try:
            (directory / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
        except OSError as error:
            if limited:
                raise AutotuneError(
                    f"the hosts' cpus and memory cannot be limited: {directory}: {error.strerror}",
                    hint="inside a container, give it its own writable control groups",
                ) from None


def _limit(hierarchy: Hierarchy, plan: LabPlan, host: LabHost) -> None:
    group = hierarchy.group(plan.names.cgroup, host.name)
    for file, value in limits(hierarchy, host).items():
        try:
            (group / file).write_text(value, encoding="ascii")
        except OSError as error:
            if file not in OPTIONAL:
                raise AutotuneError(
                    f"{host.name}: {file} cannot be set to {value}: {error.strerror}"
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
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    for mount in reversed(mounts(text)):
        if mount.path.is_relative_to(private):
            run_checked(["umount", str(mount.path)])
    # Never a recursive removal here: whatever is still mounted must stay as it is.
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
    except OSError:  # busy: somebody is still in there
        return False
    return True


def _kill(group: Path) -> None:
    """Kill every process in ``group`` and wait until they are gone."""
    with contextlib.ExitStack() as stack:
        handles = []
        for pid in _members(group):
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                stack.callback(os.close, handle)
                # Ask again, now that the number cannot pass to another process.
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
                if line != "0":  # a process of another pid namespace, not to be named from here
                    yield int(line)


def _bottom_up(group: Path) -> list[Path]:
    return [Path(path) for (path, _, _) in os.walk(group, topdown=False)]
