"""Check whether this machine meets the requirements for labs."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.errors import AutotuneError

# Programs that a lab needs, with their Debian packages.
PROGRAM_PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "setsid": "util-linux",
}
PROC_DIRECTORY = Path("/proc")
INOTIFY_PER_HOST = 8  # inotify instances per host: systemd uses five, and its services use the rest


def _is_installed(program: str) -> bool:
    search_path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return shutil.which(program, path=search_path) is not None


def list_missing_packages(is_installed: Callable[[str], bool] = _is_installed) -> tuple[str, ...]:
    """Return the Debian packages that a lab needs but this machine lacks."""
    return tuple(
        sorted({package for name, package in PROGRAM_PACKAGES.items() if not is_installed(name)})
    )


def require_prerequisites() -> None:
    """Raise ``AutotuneError`` with the reasons and a hint if this machine cannot run a lab."""
    missing_packages = list_missing_packages()
    if reasons := list_obstacles(missing_packages):
        can_install = os.geteuid() != 0 or missing_packages
        hint = (
            _format_install_advice(missing_packages)
            if can_install
            else "use a physical or virtual machine, or a privileged container"
        )
        raise AutotuneError("cannot create a lab: " + "; ".join(reasons), hint=hint)


def list_obstacles(missing_packages: Sequence[str]) -> list[str]:
    """Return the reasons why a lab is impossible, including ``missing_packages``."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("only root can create namespaces, mounts and a bridge")
    if missing_packages:
        reasons.append("missing packages: " + ", ".join(missing_packages))
    if not reasons:  # root in a container often has no permission to mount
        probe_command = ("unshare", "--net", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
        if subprocess.run(probe_command, capture_output=True, check=False).returncode != 0:
            reasons.append("root cannot create namespaces and mounts here")
    return reasons


def require_root() -> None:
    """Raise ``AutotuneError`` unless autotune runs as root."""
    if os.geteuid() != 0:
        raise AutotuneError(
            "creating and removing labs requires root", hint=_format_install_advice(())
        )


def require_directory(directory: Path) -> None:
    """Raise ``AutotuneError`` if ``directory`` cannot contain the disks of lab hosts."""
    if directory.is_relative_to("/run"):
        raise AutotuneError(
            f"{directory}: a lab cannot be under /run, because each host mounts its own /run",
            hint="choose a directory such as /var/lib/autotune/labs/mine",
        )
    if any(character in str(directory) for character in ',:\\\n "%'):
        raise AutotuneError(
            f"{directory}: the path of a lab cannot contain a comma, colon, backslash, space, quote or"
            " percent sign",
            hint="choose a directory without these characters, such as /var/lib/autotune/labs/mine",
        )


def require_trusted_directory(directory: Path) -> None:
    """Raise ``AutotuneError`` if another account can change ``directory``, which contains keys and
    configurations that root uses.
    """
    for location in (directory, *directory.resolve().parents):
        try:
            status = location.stat()
        except FileNotFoundError:
            continue  # this account is going to create it
        # In a directory with the sticky bit, only owners can rename or delete their directories.
        may_be_shared = location != directory and status.st_mode & stat.S_ISVTX
        is_writable = status.st_mode & 0o022 and not may_be_shared
        if is_writable or status.st_uid not in (0, os.geteuid()):
            raise AutotuneError(
                f"{directory}: a lab cannot be there, because other accounts can change {location}",
                hint="choose a directory such as /var/lib/autotune/labs/mine",
            )


def require_inotify(host_count: int, proc_directory: Path = PROC_DIRECTORY) -> None:
    """Raise ``AutotuneError`` if ``host_count`` more hosts need more inotify instances than are free.

    Without free instances, systemd hangs at boot or starts with failed units, without any message.
    """
    instance_limit = int((proc_directory / "sys/fs/inotify/max_user_instances").read_text())
    # The kernel limits the inotify instances of each account.
    used_count = sum(_count_inotify_instances(process) for process in proc_directory.glob("[0-9]*"))
    if used_count + host_count * INOTIFY_PER_HOST > instance_limit:
        raise AutotuneError(
            f"{used_count} of {instance_limit} inotify instances are in use. {host_count} hosts need up"
            f" to {host_count * INOTIFY_PER_HOST} more and would not boot",
            hint=f"run `sysctl -w fs.inotify.max_user_instances={8 * instance_limit}` as root",
        )


def _count_inotify_instances(process_directory: Path) -> int:
    instance_count = 0
    with contextlib.suppress(OSError):  # the process has exited
        if process_directory.stat().st_uid != os.geteuid():
            return 0
        for descriptor in (process_directory / "fd").iterdir():
            with contextlib.suppress(OSError):  # the descriptor was closed
                instance_count += str(descriptor.readlink()) == "anon_inode:inotify"
    return instance_count


def _format_install_advice(packages: tuple[str, ...]) -> str:
    if packages:
        install_command = "apt-get install --no-install-recommends " + " ".join(packages)
        return (
            install_command
            if os.geteuid() == 0
            else f"sudo {install_command}, then repeat the command with sudo"
        )
    return "repeat the command with sudo"


# For `make test`: exit with status 0 if a lab is possible, otherwise print the reasons.
if __name__ == "__main__":
    from autotune.exit_handling import run_command

    sys.exit(run_command(require_prerequisites, as_json=False))
