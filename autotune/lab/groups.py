"""The control groups of a lab, made, limited, emptied and removed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import cgroups
from autotune.lab.cgroups import Hierarchy
from autotune.lab.hosts import LabHost
from autotune.lab.plan import LabPlan, Names
from autotune.lab.programs import ran

_PATIENCE = 10.0  # s a killed process is given to be gone


def here(names: Names) -> tuple[Hierarchy, ...]:
    """The control group trees a lab uses on this machine."""
    return cgroups.hierarchies(
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
    return [mount.path for mount in cgroups.mounts(text) if mount.kind.startswith("cgroup")]


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
    for file, value in cgroups.limits(hierarchy, host).items():
        try:
            (group / file).write_text(value, encoding="ascii")
        except OSError as error:
            if file not in cgroups.OPTIONAL:
                raise AutotuneError(
                    f"{host.name}: {file} cannot be set to {value}: {error.strerror}"
                ) from None


def _mount(hierarchy: Hierarchy) -> None:
    hierarchy.path.mkdir(parents=True, exist_ok=True)
    if hierarchy.version == 2:
        ran(["mount", "-t", "cgroup2", "cgroup2", str(hierarchy.path)])
        return
    (controller,) = hierarchy.controllers
    options = f"none,{controller}" if controller.startswith("name=") else controller
    ran(["mount", "-t", "cgroup", "-o", options, "cgroup", str(hierarchy.path)])


def _unmount(names: Names) -> None:
    private = names.private_cgroups
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    for mount in reversed(cgroups.mounts(text)):
        if mount.path.is_relative_to(private):
            ran(["umount", str(mount.path)])
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
