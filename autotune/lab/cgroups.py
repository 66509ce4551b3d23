"""Where the machines of a lab are held to their share of CPU and memory.

A machine's process joins its control groups before it becomes the machine, so everything it ever
starts is inside them: they are the limits, and also the list of what must die with the lab.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.lab.hosts import LabHost

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
