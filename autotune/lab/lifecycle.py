"""Start and remove a lab. After an interruption at any point, a repeated start or removal recovers
completely.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from autotune import durable_files
from autotune.errors import AutotuneError
from autotune.lab import cgroups, disk, keys, machine, network, prerequisites
from autotune.lab import plan as planning
from autotune.lab.lock import lock_lab, run_checked
from autotune.lab.plan import LabHost, LabNames, LabPlan
from autotune.transports.base import SshHost

# A busy machine boots hosts slowly. Each connection attempt costs the host a process, so attempts have
# a long timeout.
_BOOT_SECONDS = 300.0  # time limit for a host to respond on its SSH port
_SSH_PROBE_SECONDS = 5.0  # time limit for one attempt to connect
_CLEANUP_SECONDS = 30.0  # time limit for processes to stop using a lab's directory


def start_lab(hosts: Iterable[LabHost], state_dir: Path) -> LabPlan:
    """Create and boot ``hosts``, and return the lab's plan once every host responds on its SSH
    port.

    The call is idempotent: running hosts are not changed, and stopped hosts restart with their disks.
    An existing lab with a different plan is replaced. If ``start_lab`` fails or is interrupted,
    everything that it created is removed. Raises ``AutotuneError``.
    """
    plan = planning.build_plan(hosts, state_dir)
    prerequisites.require_prerequisites()
    prerequisites.require_directory(plan.names.directory)
    disk.require_single_filesystem(cgroups.read_mountinfo())
    with lock_lab(plan.names, create=True):
        _require_lab_directory(plan.names)
        if _find_plan(plan.names) != plan:
            _remove_lab(plan.names)
        is_new = not plan.names.plan_file.exists()
        try:
            _start_hosts(plan)
        except BaseException:
            if is_new:
                _remove_lab(plan.names)
            raise
    return plan


def remove_lab(state_dir: Path) -> None:
    """Remove the lab in ``state_dir``: processes, control groups, network links, mounts, disks and
    keys.

    The call is idempotent, and works even without a record of the lab. Raises ``AutotuneError``.
    """
    lab_names = planning.derive_names(state_dir)
    prerequisites.require_root()
    with lock_lab(lab_names, create=False):
        _remove_lab(lab_names)


def halt_host(state_dir: Path, host: str) -> None:
    """Stop one host immediately, like a power failure. ``start_lab`` restarts the host with the same
    disk.
    """
    plan = require_lab(state_dir)
    plan.find_host(host)
    prerequisites.require_root()
    with lock_lab(plan.names, create=False):
        cgroups.remove_groups(plan.names, host)


def require_lab(state_dir: Path) -> LabPlan:
    """Return the plan of the lab in ``state_dir``. Raises ``AutotuneError`` if none exists."""
    plan = planning.read_plan(planning.derive_names(state_dir))
    if plan is None:
        raise AutotuneError(f"no lab exists in {state_dir}", hint="run `autotune lab up TARGET`")
    return plan


def answers_ssh(address: str, port: int = 22, timeout: float = _SSH_PROBE_SECONDS) -> bool:
    """True if an SSH server responds at ``address`` within ``timeout`` seconds (RFC 4253, 4.2)."""
    try:
        with socket.create_connection((address, port), timeout=timeout) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@dataclass(frozen=True)
class HostStatus:
    """State of a lab host. ``pid`` is the host's PID 1, as seen in this machine's PID namespace.

    ``ssh`` is true if the host's SSH server responds.
    """

    name: str
    address: str
    pid: int | None
    ssh: bool

    @property
    def running(self) -> bool:
        return self.pid is not None


def list_host_status(state_dir: Path) -> tuple[HostStatus, ...]:
    """Return the status of every lab host in ``state_dir``, in order; empty if no lab exists."""
    plan = planning.read_plan(planning.derive_names(state_dir))
    if plan is None:
        return ()

    def read_status(host: LabHost) -> HostStatus:
        pid = machine.find_init_pid(plan.names, host.name)
        return HostStatus(
            host.name, host.address, pid, pid is not None and answers_ssh(host.address)
        )

    with ThreadPoolExecutor(max_workers=16) as pool:
        return tuple(pool.map(read_status, plan.hosts))


def build_ssh_host(state_dir: Path, host: str) -> SshHost:
    """Return the SSH settings for ``host``: user root, the lab's key and the host's known key."""
    plan = require_lab(state_dir)
    return SshHost(
        name=host,
        address=plan.find_host(host).address,
        user="root",
        port=22,
        identity_file=str(plan.names.key),
        known_hosts=str(plan.names.known_hosts),
    )


def build_host_ssh_command(state_dir: Path, host: str) -> list[str]:
    """Return the command that opens a shell on ``host``. A remote command may be appended.

    Raises ``AutotuneError`` if another account can change the lab's SSH configuration.
    """
    prerequisites.require_trusted_directory(state_dir)
    plan = require_lab(state_dir)
    return ["ssh", "-F", str(plan.names.ssh_config), plan.find_host(host).name]


def _require_lab_directory(lab_names: LabNames) -> None:
    """Raise ``AutotuneError`` if the directory contains files, but no lab."""
    if any(lab_names.directory.iterdir()) and not contains_lab(lab_names):
        raise AutotuneError(
            f"{lab_names.directory} is not empty, and contains no lab",
            hint="name a new or empty directory: --dir DIR",
        )


def contains_lab(lab_names: LabNames) -> bool:
    """True if the directory contains the record or the key of this lab.

    Without them, files such as ``hosts`` or ``known_hosts`` belong to someone else.
    """
    public_key = lab_names.key.with_suffix(".pub")
    has_key = public_key.is_file() and keys.is_lab_key(lab_names, public_key.read_bytes())
    orphaned_files = durable_files.find_orphaned_files(lab_names.plan_file)
    return has_key or _find_plan(lab_names) is not None or bool(orphaned_files)


def _find_plan(lab_names: LabNames) -> LabPlan | None:
    try:
        return planning.read_plan(lab_names)
    except AutotuneError:  # replace a lab whose record cannot be read
        return None


def _start_hosts(plan: LabPlan) -> None:
    planning.write_plan(plan)
    keys.make_keys(plan)
    stopped_hosts = [
        host for host in plan.hosts if machine.find_init_pid(plan.names, host.name) is None
    ]
    if stopped_hosts:
        prerequisites.require_inotify(len(stopped_hosts))
    for host in stopped_hosts:
        cgroups.remove_groups(plan.names, host.name)
        network.remove_host_link(plan, host)
        disk.make_disk(plan, host)
    network.make_bridge(plan)
    hierarchies = cgroups.make_groups(plan)
    if stopped_hosts:
        machine.boot_hosts(plan, stopped_hosts, hierarchies)
    _await_ssh(plan)  # a host that is already running may still be booting


def _await_ssh(plan: LabPlan) -> None:
    deadline = time.monotonic() + _BOOT_SECONDS
    remaining_hosts = list(plan.hosts)
    while remaining_hosts := [host for host in remaining_hosts if not answers_ssh(host.address)]:
        for host in remaining_hosts:
            running_pids = cgroups.list_host_processes(plan.names, host.name)
            if time.monotonic() > deadline or not running_pids:
                raise AutotuneError(
                    f"{host.name} did not boot: {_explain_boot_failure(plan, host, running_pids)}"
                )
        time.sleep(0.02)


def _explain_boot_failure(plan: LabPlan, host: LabHost, running_pids: tuple[int, ...]) -> str:
    console_tail = machine.read_console_tail(plan.names, host.name)
    if not running_pids:
        return console_tail or "it exited without output"
    return (
        f"no response within {_BOOT_SECONDS:g} s through "
        f"{run_checked(['ip', 'route', 'get', host.address]).strip()}"
        f"; load average {os.getloadavg()[0]:.1f}; CPU time of its processes: "
        f"{machine.describe_processes(running_pids)}\n{console_tail}"
    )


def _remove_lab(lab_names: LabNames) -> None:
    cgroups.remove_groups(lab_names)
    network.remove_links(lab_names)
    if not contains_lab(lab_names):
        return
    # The record is deleted last, so that an interrupted removal can be repeated.
    for path in (
        lab_names.machines_directory,
        lab_names.key,
        lab_names.key.with_suffix(".pub"),
        lab_names.known_hosts,
        lab_names.ssh_config,
        *durable_files.find_orphaned_files(lab_names.plan_file),
        lab_names.plan_file,
    ):
        _delete_path(path)


def _delete_path(path: Path) -> None:
    deadline = time.monotonic() + _CLEANUP_SECONDS
    while path.is_dir():
        try:
            shutil.rmtree(path)
        except OSError:
            # A host process that is still starting may write its last output to the directory.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    path.unlink(missing_ok=True)
