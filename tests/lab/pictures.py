"""The state of a lab host that tuning could change, as lines of text, read from outside the host.

A host's disk is an overlay: its changes are in the upper layer, a directory of this machine. A file
in the upper layer that equals the lower file is not a change: a restored file with the same
content, mode, owner and time cannot be distinguished from an unchanged file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from autotune.lab import machine
from autotune.lab.disk import EMPTIED_DIRECTORIES, EMPTY_DIRECTORY_MODES, HIDDEN_DIRECTORY
from autotune.lab.plan import LabNames
from autotune.services.sysctl.service import KERNEL_KEYS

LOWER = Path("/")
# : Directories in which a host sees no files of this machine.
OWN = frozenset({*EMPTIED_DIRECTORIES, *EMPTY_DIRECTORY_MODES, HIDDEN_DIRECTORY})
# : Paths that a running host itself writes: logs, caches, temporary files, the state of systemd.
PASSING = frozenset({
    "dev", "proc", "run", "sys", "tmp", "root/.ansible", "var/cache", "var/log", "var/tmp",
    "var/lib/nginx", "var/lib/php", "var/lib/systemd", "var/lib/autotune/lease", "etc/.updated",
    "var/.updated", "etc/.pwd.lock",
    "var/lib/dpkg/alternatives/php-fpm.sock",  # written by Debian's unit at each start
    "var/lib/varnish",  # compiled VCL and shared memory, written at each start
    "var/lib/caddy",  # its last configuration, written at each start and reload
    "var/lib/mysql",  # written by the database; its rows are compared instead
})  # fmt: skip
# : Redis saves its own data at any time; the data that autotune loads is in a separate file.
DATA, LOADED = "var/lib/redis", "autotune.rdb"
# Another lab may make this directory on this machine during a test. A host that has removed its own then
# sees it, and copies it when autotune writes there. autotune itself makes it with mode 700.
MACHINE_DIRECTORY = f"{HIDDEN_DIRECTORY} directory 755 0:0"
UNITS = ("nginx", "apache2", "php8.2-fpm", "memcached", "redis-server")
PROPERTIES = "Id,ActiveState,UnitFileState,DropInPaths,LimitNOFILE"
_RUNNING = f"""
sysctl "$@" 2>&1 | sed 's/ = / /; s/^/kernel /'
find /run/systemd/system /run/systemd/system.control ! -type d -printf 'runtime %p %l\\n' 2>/dev/null
awk '$5 ~ "^/(etc|usr|var|srv)" {{ print "mount", $5, $6 }}' /proc/self/mountinfo
systemctl show --property {PROPERTIES} -- {" ".join(UNITS)} | sed 's/^$/-/; s/^/unit /' |
    paste -sd ' ' | sed 's/ unit - /\\n/g'
"""


def picture(names: LabNames, host: str) -> list[str]:
    """Return the files of a host that differ from this machine's, each as a line ``path kind …``.
    For a running host, add ``kernel``, ``runtime`` (units created for this boot), ``mount`` and
    ``unit`` lines.
    """
    files = sorted(_changes(names.get_machine_directory(host) / "upper", ""))
    pid = machine.find_init_pid(names, host)
    return files if pid is None else files + _running(pid)


def of_files(lines: list[str]) -> list[str]:
    """Return the lines without those that apply only to a running host and change at each boot."""
    return [line for line in lines if not line.startswith(("kernel", "runtime", "mount", "unit"))]


def below(path: str) -> str | None:
    """Return the line about a path of the lower layer, or ``None`` if a host does not see it."""
    if _own(path):
        return None
    try:
        return _line(LOWER / path, path)
    except FileNotFoundError:
        return None


def _running(pid: int) -> list[str]:
    argv = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--root"]
    argv += ["env", "--chdir=/", "sh", "-c", _RUNNING, "sh", *KERNEL_KEYS]
    return subprocess.check_output(argv, text=True, timeout=120).splitlines()


def _own(path: str) -> bool:
    return any(path == own or path.startswith(f"{own}/") for own in OWN)


def _changes(upper: Path, inside: str, *, hidden: bool = False) -> Iterator[str]:
    """Yield the changes below a directory. If ``hidden``, the lower layer is not visible there."""
    hidden = hidden or _opaque(upper / inside)
    there = {entry.name: entry for entry in os.scandir(upper / inside)}
    if hidden and not _own(inside):
        for name in _listed(LOWER / inside) - set(there):
            yield f"{_join(inside, name)} absent"
    for name, entry in there.items():
        path = _join(inside, name)
        if path in PASSING or (inside == DATA and name != LOADED):
            continue
        known = below(path)
        try:
            shown = _line(Path(entry.path), path)
        except FileNotFoundError:
            continue
        if shown is None and known:
            yield f"{path} absent"
        elif shown is not None:
            if shown not in (known, MACHINE_DIRECTORY):
                yield shown
            if entry.is_dir(follow_symlinks=False):
                yield from _changes(upper, path, hidden=hidden)


def _join(inside: str, name: str) -> str:
    return f"{inside}/{name}" if inside else name


def _listed(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def _opaque(directory: Path) -> bool:
    return "trusted.overlay.opaque" in os.listxattr(directory)


def _line(file: Path, path: str) -> str | None:
    """Return the line about a file, or ``None`` for a whiteout, which hides the lower file."""
    known = file.lstat()
    whose = f"{stat.S_IMODE(known.st_mode):o} {known.st_uid}:{known.st_gid}{_attributes(file)}"
    time = f"{known.st_mtime_ns // 10**9}.{known.st_mtime_ns % 10**9:09d}"
    if stat.S_ISREG(known.st_mode):
        return f"{path} file {whose} {time} {hashlib.sha256(file.read_bytes()).hexdigest()}"
    if stat.S_ISLNK(known.st_mode):
        return f"{path} link {whose} {time} -> {file.readlink()}"
    if stat.S_ISCHR(known.st_mode) and known.st_rdev == 0:
        return None
    kind = "directory" if stat.S_ISDIR(known.st_mode) else "other"
    return f"{path} {kind} {whose}"


def _attributes(file: Path) -> str:
    """Return extended attributes, such as access control lists."""
    names = os.listxattr(file, follow_symlinks=False)
    found = {name: os.getxattr(file, name, follow_symlinks=False) for name in sorted(names)
             if not name.startswith("trusted.overlay.")}  # fmt: skip
    return f" {found}" if found else ""
