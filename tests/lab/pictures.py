"""Everything about a lab host that tuning it could change, in lines, looked at from outside it.

A host's disk is an overlay: what it changed lies in the upper layer, a directory of this machine. What
lies there and is as it is below is no change: a file that was put back with its content, bits, owner
and time is not to be told from one that was never touched.
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
#: Of these a host sees nothing that this machine has there.
OWN = frozenset({*EMPTIED_DIRECTORIES, *EMPTY_DIRECTORY_MODES, HIDDEN_DIRECTORY})
#: What a host that runs writes by itself: logs, caches, temporary files, state of systemd.
PASSING = frozenset({
    "dev", "proc", "run", "sys", "tmp", "root/.ansible", "var/cache", "var/log", "var/tmp",
    "var/lib/nginx", "var/lib/php", "var/lib/systemd", "var/lib/autotune/lease", "etc/.updated",
    "var/.updated", "etc/.pwd.lock",
    "var/lib/dpkg/alternatives/php-fpm.sock",  # by Debian's unit, whenever it starts
    "var/lib/varnish",  # compiled anew, and shared memory, whenever it starts
    "var/lib/mysql",  # a database writes by itself: its rows are compared instead
})  # fmt: skip
#: Redis saves its own data when it likes; that which autotune loads has a file of its own.
DATA, LOADED = "var/lib/redis", "autotune.rdb"
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
    """Its files that differ from this machine's, each line ``path kind …``; of a host that runs also
    ``kernel``, ``runtime`` (units made for this boot), ``mount`` and ``unit`` lines."""
    files = sorted(_changes(names.machine_directory(host) / "upper", ""))
    pid = machine.find_init_pid(names, host)
    return files if pid is None else files + _running(pid)


def of_files(lines: list[str]) -> list[str]:
    """Without what is only true of a host that runs, and other after it was booted again."""
    return [line for line in lines if not line.startswith(("kernel", "runtime", "mount", "unit"))]


def below(path: str) -> str | None:
    """The line about a path as this machine shows it to a host, ``None`` if it does not."""
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
    """``hidden``: nothing of the lower layer shows here."""
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
            if shown != known:
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
    """``None``: a whiteout, which hides what is below."""
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
    """Access control lists and the like."""
    names = os.listxattr(file, follow_symlinks=False)
    found = {name: os.getxattr(file, name, follow_symlinks=False) for name in sorted(names)
             if not name.startswith("trusted.overlay.")}  # fmt: skip
    return f" {found}" if found else ""
