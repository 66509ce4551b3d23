"""The disk of a host: what is its own, written before it boots, and removed with it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import cgroups, keys, overlay
from autotune.lab.hosts import LabHost
from autotune.lab.overlay import Absent, Directory, Entry, File, Link
from autotune.lab.plan import LabPlan

_LOWER = Path("/")
_OPAQUE = "trusted.overlay.opaque"  # Linux, Documentation/filesystems/overlayfs.rst
_DONE = "made"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def make_disk(plan: LabPlan, host: LabHost) -> None:
    """Write what ``host`` has of its own; a disk it had since this machine booted is kept."""
    directory = plan.names.machine(host.name)
    booted = _BOOT_ID.read_text(encoding="ascii")
    done = directory / _DONE
    if done.exists() and done.read_text(encoding="ascii") == booted:
        _trust(directory / "work")
        return
    remove_disk(directory, only_root=True)
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(parents=True)
    private = directory / keys.HOST_KEY
    texts = overlay.HostKeys(
        private.read_text(encoding="ascii"), keys.public(private), keys.public(plan.names.key)
    )
    lay(directory / "upper", overlay.root(plan, host, texts, _LOWER), _LOWER)
    _hide_labs(directory / "upper", plan.names.directory)
    done.write_text(booted, encoding="ascii")


def lay(upper: Path, entries: Iterable[Entry], lower: Path) -> None:
    """Write ``entries`` into ``upper``; directories above them take the bits they have below."""
    upper.chmod(0o755)
    for entry in entries:
        path = upper / entry.path
        _parents(upper, path.parent, lower)
        match entry:
            case Directory(mode=mode, uid=uid, gid=gid):
                path.mkdir(exist_ok=True)
                path.chmod(mode)
                os.chown(path, uid, gid)
                os.setxattr(path, _OPAQUE, b"y")
            case File(content=content, mode=mode):
                path.write_text(content, encoding="utf-8")
                path.chmod(mode)
            case Link(to=to):
                path.symlink_to(to)
            case Absent():
                os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def require_one_filesystem(mountinfo: str) -> None:
    """Raise ``AutotuneError`` if the system's software is spread over several filesystems.

    An overlay sees one filesystem: a host's /usr would be empty.
    """
    needed = {Path("/usr"), Path("/etc"), Path("/var"), Path("/var/lib")}
    apart = sorted(str(mount.path) for mount in cgroups.mounts(mountinfo) if mount.path in needed)
    if apart:
        raise AutotuneError(
            "a lab cannot be made here: "
            + ", ".join(apart)
            + " is not on the filesystem of /, which the hosts share",
            hint="use a machine, or a virtual machine, with one filesystem for the system",
        )


def remove_disk(directory: Path, *, only_root: bool = False) -> None:
    """Remove the disk in ``directory``; with ``only_root`` keep the host's keys."""
    if not directory.exists():
        return
    if only_root:
        for name in ("upper", "work", "root"):
            if (directory / name).exists():
                shutil.rmtree(directory / name)
    else:
        shutil.rmtree(directory)


def _trust(work: Path) -> None:
    """A volatile overlay refuses to be mounted again, for it may have lost writes in a crash.

    Of this machine, that is; its hosts stop at will, and nothing written is lost by that.
    """
    shutil.rmtree(work / "work" / "incompat", ignore_errors=True)


def _hide_labs(upper: Path, directory: Path) -> None:
    """Where the lab is kept inside a shared directory, its hosts must not see one another."""
    inside = directory.relative_to("/")
    if inside.parts[0] in overlay.SHARED:
        lay(upper, [Directory(str(inside), 0o700)], _LOWER)


def _parents(upper: Path, directory: Path, lower: Path) -> None:
    if directory == upper or directory.exists():
        return
    _parents(upper, directory.parent, lower)
    directory.mkdir()
    below = lower / directory.relative_to(upper)
    if below.exists():
        known = below.stat()
        directory.chmod(stat.S_IMODE(known.st_mode))
        os.chown(directory, known.st_uid, known.st_gid)
