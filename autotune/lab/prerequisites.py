"""What this machine must have before it can carry a lab."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.errors import AutotuneError

#: A program a lab runs, and the Debian package it comes in.
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "setsid": "util-linux",
}
PACKAGES = tuple(sorted(set(PROGRAMS.values())))
KERNEL = Path("/proc")
INOTIFY = 8  # instances that a host may take: systemd five, and the services that come with it


def _is_installed(program: str) -> bool:
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return shutil.which(program, path=path) is not None


def missing_packages(installed: Callable[[str], bool] = _is_installed) -> tuple[str, ...]:
    """The Debian packages a lab needs and this machine lacks."""
    return tuple(sorted({package for name, package in PROGRAMS.items() if not installed(name)}))


def require() -> None:
    """Raise ``AutotuneError``, with what is missing and how to get it, if no lab can be made."""
    lacks = missing_packages()
    if reasons := obstacles(lacks):
        able = os.geteuid() != 0 or lacks
        hint = _advice(lacks) if able else "use a machine, or a container that is privileged"
        raise AutotuneError("a lab cannot be made here: " + "; ".join(reasons), hint=hint)


def obstacles(lacks: Sequence[str]) -> list[str]:
    """Why no lab can be made, ``lacks`` being the packages that are missing; none if one can."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("it needs root (namespaces, mounts and a bridge are made)")
    if lacks:
        reasons.append("these packages are missing: " + ", ".join(lacks))
    if not reasons:  # root of a container often may not mount
        attempt = ("unshare", "--net", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
        if subprocess.run(attempt, capture_output=True, check=False).returncode != 0:
            reasons.append("this root may not make namespaces and mounts")
    return reasons


def require_root() -> None:
    """Raise ``AutotuneError`` unless this is root."""
    if os.geteuid() != 0:
        raise AutotuneError("a lab is made and removed by root", hint=_advice(()))


def require_directory(directory: Path) -> None:
    """Raise ``AutotuneError`` if the machines' disks cannot be kept in ``directory``."""
    if directory.is_relative_to("/run"):
        raise AutotuneError(
            f"{directory}: a lab cannot be kept under /run, which each machine has its own of",
            hint="choose a directory such as /var/lib/autotune/labs/mine",
        )
    if any(character in str(directory) for character in ',:\\\n "%'):
        raise AutotuneError(
            f"{directory}: a lab's directory cannot have a comma, colon, backslash, space, quote or"
            " percent sign in its path",
            hint="they mean something in the options of a mount and in an SSH configuration",
        )


def require_inotify(hosts: int, kernel: Path = KERNEL) -> None:
    """Raise ``AutotuneError`` if this many more ``hosts`` would run out of inotify instances.

    A systemd that gets none hangs for ever at boot, or has failed units, without any message.
    """
    limit = int((kernel / "sys/fs/inotify/max_user_instances").read_text())
    used = sum(_inotify(process) for process in kernel.glob("[0-9]*"))  # the limit is an account's
    if used + hosts * INOTIFY > limit:
        raise AutotuneError(
            f"{used} of {limit} inotify instances are in use, and {hosts} hosts take up to "
            f"{hosts * INOTIFY}: they would not boot",
            hint=f"sysctl fs.inotify.max_user_instances={8 * limit}",
        )


def _inotify(process: Path) -> int:
    count = 0
    with contextlib.suppress(OSError):  # it has ended
        if process.stat().st_uid != os.geteuid():
            return 0
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed
                count += str(descriptor.readlink()) == "anon_inode:inotify"
    return count


def _advice(packages: tuple[str, ...]) -> str:
    if packages:
        install = "apt-get install --no-install-recommends " + " ".join(packages)
        return install if os.geteuid() == 0 else f"sudo {install}, then run it again with sudo"
    return "run it again with sudo"


if (
    __name__ == "__main__"
):  # for `make test`: ends with 0 where a lab can be made, else with why not
    from autotune.outcome import end

    sys.exit(end(require, as_json=False))
