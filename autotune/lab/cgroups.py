"""Control groups that limit the CPU and memory of lab hosts.

A lab host's first process joins the host's control groups before it becomes PID 1, so the groups
contain every descendant. The groups therefore also list the processes to kill when the lab is
removed.
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
from autotune.lab.plan import LabHost, LabNames, LabPlan
from autotune.strict_parsing import split_lines

MOUNT_POINT = Path("/sys/fs/cgroup")
_SYSTEMD_HIERARCHY = "name=systemd"  # the version 1 hierarchy in which systemd tracks its units
_V1_REQUIRED_CONTROLLERS = ("cpu", "memory", _SYSTEMD_HIERARCHY)
# counts the CPU use of a host; this controller is mounted together with "cpu" or separately
_V1_OPTIONAL_CONTROLLER = "cpuacct"

# a tenth of the kernel's default period: throttling delays a host by at most 10 ms
_PERIOD_MICROSECONDS = 10_000
_MIN_QUOTA_MICROSECONDS = 1_000  # the kernel's minimum quota
_MAX_PERIOD_MICROSECONDS = 1_000_000  # the kernel's maximum period
# Files that are missing in kernels without swap accounting, with which hosts may swap.
_OPTIONAL_FILES = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes"})
_KILL_TIMEOUT_SECONDS = 60.0  # time limit for killed processes to exit


@dataclass(frozen=True)
class CgroupHierarchy:
    """One tree of control groups. ``controllers`` lists the resources that the tree limits."""

    path: Path
    version: int
    controllers: tuple[str, ...]
    is_mounted: bool

    def get_group_path(self, lab_group: str, host_name: str) -> Path:
        return self.path / lab_group / host_name


@dataclass(frozen=True)
class Mount:
    """A mount that is listed in ``/proc/self/mountinfo``."""

    path: Path
    kind: str
    options: tuple[str, ...]


def find_hierarchies(
    mountinfo_text: str, cgroups_text: str, private_directory: Path
) -> tuple[CgroupHierarchy, ...]:
    """Return the control group trees of a lab.

    The result contains the trees that this machine mounts. Missing trees get a path under
    ``private_directory``. ``mountinfo_text`` and ``cgroups_text`` are the contents of
    ``/proc/self/mountinfo`` and ``/proc/cgroups``.
    """
    cgroup_mounts = [
        mount for mount in parse_mounts(mountinfo_text) if mount.kind in ("cgroup", "cgroup2")
    ]
    own_mounts = [
        mount.path for mount in cgroup_mounts if mount.path.is_relative_to(private_directory)
    ]
    system_mounts = [mount for mount in cgroup_mounts if mount.path.is_relative_to(MOUNT_POINT)]
    if any(mount.kind == "cgroup2" and mount.path == MOUNT_POINT for mount in system_mounts):
        return (CgroupHierarchy(MOUNT_POINT, 2, ("cpu", "memory"), is_mounted=True),)
    controller_rows = [line.split() for line in split_lines(cgroups_text)]
    # Controllers that a version 1 tree uses.
    v1_controllers = {row[0] for row in controller_rows if len(row) > 1 and row[1] != "0"}
    if not system_mounts and not v1_controllers & {"cpu", "memory"}:
        return (
            CgroupHierarchy(private_directory, 2, ("cpu", "memory"), is_mounted=bool(own_mounts)),
        )
    return _find_v1_hierarchies(system_mounts, own_mounts, private_directory)


def read_mountinfo() -> str:
    """Return ``/proc/self/mountinfo``, which lists the mounts in this process's namespace."""
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def parse_mounts(mountinfo_text: str) -> list[Mount]:
    """Return the mounts in the text of ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""
    mounts = []
    for line in split_lines(mountinfo_text):
        (mount_text, _, filesystem_text) = line.partition(" - ")
        filesystem_fields = filesystem_text.split()
        path = mount_text.split()[4].replace("\\040", " ").replace("\\011", "\t")
        options = tuple(filesystem_fields[2].split(",")) if len(filesystem_fields) > 2 else ()
        mounts.append(Mount(Path(path), filesystem_fields[0], options))
    return mounts


def list_group_limits(hierarchy: CgroupHierarchy, host: LabHost) -> dict[str, str]:
    """Return the values to write to the files of a host's control group in ``hierarchy``, in
    the order in which they are written.
    """
    values_by_file: dict[str, str] = {}
    if host.cpus is not None and "cpu" in hierarchy.controllers:
        (quota, period) = compute_cpu_bandwidth(host.cpus)
        if hierarchy.version == 2:
            values_by_file["cpu.max"] = f"{quota} {period}"
        else:
            values_by_file |= {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
    if host.memory is not None and "memory" in hierarchy.controllers:
        memory_text = str(host.memory)
        if hierarchy.version == 2:
            values_by_file |= {"memory.max": memory_text, "memory.swap.max": "0"}
        else:
            values_by_file |= {
                "memory.limit_in_bytes": memory_text,
                "memory.memsw.limit_in_bytes": memory_text,
            }
    return values_by_file


def compute_cpu_bandwidth(cpus: float) -> tuple[int, int]:
    """Return the quota and period in µs that limit a group to ``cpus`` CPUs.

    With a short period, throttling delays a host by a few milliseconds. With the kernel's default period,
    throttling would delay a host by up to 100 ms. A small fraction of a CPU needs a longer period,
    because the quota has a minimum.
    """
    period = min(
        max(_PERIOD_MICROSECONDS, round(_MIN_QUOTA_MICROSECONDS / cpus)), _MAX_PERIOD_MICROSECONDS
    )
    return (max(_MIN_QUOTA_MICROSECONDS, round(cpus * period)), period)


def _find_v1_hierarchies(
    mounts: list[Mount], private_paths: list[Path], private_directory: Path
) -> tuple[CgroupHierarchy, ...]:
    hierarchies = []
    for controller in _V1_REQUIRED_CONTROLLERS:
        path = next((mount.path for mount in mounts if controller in mount.options), None)
        private_path = private_directory / controller.removeprefix("name=")
        is_mounted = path is not None or private_path in private_paths
        hierarchies.append(CgroupHierarchy(path or private_path, 1, (controller,), is_mounted))
    separate_mounts = [
        m for m in mounts if _V1_OPTIONAL_CONTROLLER in m.options and "cpu" not in m.options
    ]
    hierarchies += [
        CgroupHierarchy(mount.path, 1, (_V1_OPTIONAL_CONTROLLER,), is_mounted=True)
        for mount in separate_mounts
    ]
    # A version 2 tree next to version 1 trees limits nothing, but systemd tracks its units in this tree
    # too.
    unified_mounts = [mount for mount in mounts if mount.kind == "cgroup2"]
    hierarchies += [CgroupHierarchy(mount.path, 2, (), is_mounted=True) for mount in unified_mounts]
    return tuple(hierarchies)


def make_groups(plan: LabPlan) -> tuple[CgroupHierarchy, ...]:
    """Create every host's control groups and limits, mount the trees that this machine lacks, and
    return all trees.
    """
    cgroups_text = Path("/proc/cgroups").read_text(encoding="ascii")
    hierarchies = find_hierarchies(read_mountinfo(), cgroups_text, plan.names.private_cgroups)
    for hierarchy in hierarchies:
        if not hierarchy.is_mounted:
            _mount_hierarchy(hierarchy)
        (hierarchy.path / plan.names.cgroup).mkdir(exist_ok=True)
        if hierarchy.version == 2 and hierarchy.controllers:
            _delegate_controllers(hierarchy, plan)
        for host in plan.hosts:
            hierarchy.get_group_path(plan.names.cgroup, host.name).mkdir(exist_ok=True)
            _write_limits(hierarchy, plan, host)
    return hierarchies


def list_host_processes(lab_names: LabNames, host: str) -> tuple[int, ...]:
    """Return the PIDs of a lab host's processes, in any order; empty if the host is not running."""
    return (
        tuple(_list_member_pids(group_paths[0]))
        if (group_paths := _list_groups(lab_names, host))
        else ()
    )


def remove_groups(lab_names: LabNames, host: str | None = None) -> None:
    """Kill all processes of the lab, or of one ``host``, and remove their control groups."""
    deadline = time.monotonic() + _KILL_TIMEOUT_SECONDS
    while busy_groups := [
        path for path in _list_groups(lab_names, host) if not _remove_group(path)
    ]:
        if time.monotonic() > deadline:
            stuck_pids = sorted({pid for path in busy_groups for pid in _list_member_pids(path)})
            raise AutotuneError(
                f"control group {busy_groups[0]} cannot be removed: "
                f"processes {stuck_pids} survived SIGKILL"
            )
        time.sleep(0.005)
    if host is None:
        _unmount_hierarchies(lab_names)


def _list_groups(lab_names: LabNames, host: str | None) -> list[Path]:
    tree_paths = [
        mount.path for mount in parse_mounts(read_mountinfo()) if mount.kind.startswith("cgroup")
    ]
    group_paths = [tree / lab_names.cgroup / (host or "") for tree in tree_paths]
    return [path for path in group_paths if path.is_dir()]


def _delegate_controllers(hierarchy: CgroupHierarchy, plan: LabPlan) -> None:
    """Allow child groups to limit CPU and memory, which version 2 requires at each level of the tree."""
    controllers_text = " ".join(f"+{controller}" for controller in hierarchy.controllers)
    has_limits = any(host.cpus is not None or host.memory is not None for host in plan.hosts)
    for directory in (hierarchy.path, hierarchy.path / plan.names.cgroup):
        try:
            (directory / "cgroup.subtree_control").write_text(controllers_text, encoding="ascii")
        except OSError as error:
            if has_limits:
                raise AutotuneError(
                    f"cannot limit CPUs and memory of the hosts in {directory} ({error.strerror})",
                    hint="if this is a container, start it with writable control groups",
                ) from None


def _write_limits(hierarchy: CgroupHierarchy, plan: LabPlan, host: LabHost) -> None:
    group_directory = hierarchy.get_group_path(plan.names.cgroup, host.name)
    for file_name, value in list_group_limits(hierarchy, host).items():
        try:
            (group_directory / file_name).write_text(value, encoding="ascii")
        except OSError as error:
            if file_name not in _OPTIONAL_FILES:
                raise AutotuneError(
                    f"{host.name}: cannot set {file_name} to {value} ({error.strerror})"
                ) from None


def _mount_hierarchy(hierarchy: CgroupHierarchy) -> None:
    hierarchy.path.mkdir(parents=True, exist_ok=True)
    if hierarchy.version == 2:
        run_checked(["mount", "-t", "cgroup2", "cgroup2", str(hierarchy.path)])
        return
    (controller,) = hierarchy.controllers
    mount_options = f"none,{controller}" if controller.startswith("name=") else controller
    run_checked(["mount", "-t", "cgroup", "-o", mount_options, "cgroup", str(hierarchy.path)])


def _unmount_hierarchies(lab_names: LabNames) -> None:
    private_directory = lab_names.private_cgroups
    for mount in reversed(parse_mounts(read_mountinfo())):
        if mount.path.is_relative_to(private_directory):
            run_checked(["umount", str(mount.path)])
    # Do not delete recursively, because files below a remaining mount must not be deleted.
    for path in sorted(private_directory.glob("*"), reverse=True):
        path.rmdir()
    with contextlib.suppress(FileNotFoundError):
        private_directory.rmdir()


def _remove_group(group_directory: Path) -> bool:
    _kill_group(group_directory)
    try:
        for path in _list_groups_bottom_up(group_directory):
            path.rmdir()
    except FileNotFoundError:
        return not group_directory.exists()
    except OSError:  # busy: a process still runs in the group
        return False
    return True


def _kill_group(group_directory: Path) -> None:
    """Kill every process in ``group_directory``, and wait up to a second until they have exited."""
    with contextlib.ExitStack() as stack:
        process_handles = []
        for pid in _list_member_pids(group_directory):
            with contextlib.suppress(ProcessLookupError):
                process_handle = os.pidfd_open(pid)
                stack.callback(os.close, process_handle)
                # Check again: while the handle is open, the PID cannot be reused by another
                # process.
                if pid in _list_member_pids(group_directory):
                    signal.pidfd_send_signal(process_handle, signal.SIGKILL)
                    process_handles.append(process_handle)
        deadline = time.monotonic() + 1.0
        while process_handles and time.monotonic() < deadline:
            (exited_handles, _, _) = select.select(
                process_handles, [], [], max(0.0, deadline - time.monotonic())
            )
            process_handles = [
                process_handle
                for process_handle in process_handles
                if process_handle not in exited_handles
            ]


def _list_member_pids(group_directory: Path) -> Iterator[int]:
    for path in _list_groups_bottom_up(group_directory):
        with contextlib.suppress(OSError):
            for line in (path / "cgroup.procs").read_text(encoding="ascii").split():
                if line != "0":  # a process in another PID namespace, which has no PID here
                    yield int(line)


def _list_groups_bottom_up(group_directory: Path) -> list[Path]:
    return [Path(path) for (path, _, _) in os.walk(group_directory, topdown=False)]
