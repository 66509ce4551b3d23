"""Bring a lab up, and take it down without a trace, even if either was killed at any moment."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from autotune import durable
from autotune.errors import AutotuneError
from autotune.lab import cgroups, disk, keys, machine, network, prerequisites
from autotune.lab import plan as planning
from autotune.lab.lock import alone, run_checked
from autotune.lab.plan import LabHost, LabPlan, Names
from autotune.transports.base import SshHost

# A busy machine boots slowly. Each try costs the host a process, so a try waits long for an answer.
_BOOT = 300.0  # s for a host to answer on its SSH port
_ANSWER = 5.0  # s for one try of it
_GONE = 30.0  # s to wait until no process uses a directory


def up(hosts: Iterable[LabHost], state_dir: Path) -> LabPlan:
    """Make and boot ``hosts``; returns when each answers on its SSH port.

    Idempotent: hosts that run already are left alone, ones that stopped are started again with
    their disks as they were, and a lab described differently is replaced. What a failed or
    interrupted ``up`` has made is taken down again. Raises ``AutotuneError``.
    """
    plan = planning.plan(hosts, state_dir)
    prerequisites.require()
    prerequisites.require_directory(plan.names.directory)
    disk.require_one_filesystem(cgroups.mountinfo())
    with alone(plan.names, make=True):
        if _known(plan.names) != plan:
            _remove(plan.names)
        fresh = not plan.names.journal.exists()
        try:
            _make(plan)
        except BaseException:
            if fresh:
                _remove(plan.names)
            raise
    return plan


def down(state_dir: Path) -> None:
    """Remove the lab kept in ``state_dir``: processes, groups, links, mounts, disks, keys.

    Idempotent, and needs no record of what was made. Raises ``AutotuneError``.
    """
    names = planning.names(state_dir)
    prerequisites.require_root()
    with alone(names, make=False):
        _remove(names)


def halt(state_dir: Path, host: str) -> None:
    """Stop one host at once, as a power cut does; ``up`` starts it again with its disk."""
    plan = existing(state_dir)
    plan.host(host)
    prerequisites.require_root()
    with alone(plan.names, make=False):
        cgroups.remove_groups(plan.names, host)


def existing(state_dir: Path) -> LabPlan:
    """The lab kept in ``state_dir``; raises ``AutotuneError`` if there is none."""
    plan = planning.read_plan(planning.names(state_dir))
    if plan is None:
        raise AutotuneError(f"there is no lab in {state_dir}", hint="`autotune lab up TARGET`")
    return plan


def answers(address: str, port: int = 22, timeout: float = _ANSWER) -> bool:
    """Whether an SSH server greets at ``address`` within ``timeout`` seconds (RFC 4253, 4.2)."""
    try:
        with socket.create_connection((address, port), timeout=timeout) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@dataclass(frozen=True)
class HostStatus:
    """``pid``: the host's PID 1 as this machine counts; ``ssh``: its SSH server greets."""

    name: str
    address: str
    pid: int | None
    ssh: bool

    @property
    def running(self) -> bool:
        return self.pid is not None


def status(state_dir: Path) -> tuple[HostStatus, ...]:
    """Every host of the lab kept in ``state_dir``, in its order; empty if there is no lab."""
    plan = planning.read_plan(planning.names(state_dir))
    if plan is None:
        return ()

    def of(host: LabHost) -> HostStatus:
        pid = machine.pid(plan.names, host.name)
        return HostStatus(host.name, host.address, pid, pid is not None and answers(host.address))

    with ThreadPoolExecutor(max_workers=16) as pool:
        return tuple(pool.map(of, plan.hosts))


def access(state_dir: Path, host: str) -> SshHost:
    """How to reach ``host`` of the lab: root, the lab's key, and the key it is known by."""
    plan = existing(state_dir)
    return SshHost(
        name=host,
        address=plan.host(host).address,
        user="root",
        port=22,
        identity=str(plan.names.key),
        known_hosts=str(plan.names.known_hosts),
    )


def ssh_command(state_dir: Path, host: str) -> list[str]:
    """The argv that opens a terminal on ``host``; a remote command may follow it."""
    plan = existing(state_dir)
    return ["ssh", "-F", str(plan.names.ssh_config), plan.host(host).name]


def _known(names: Names) -> LabPlan | None:
    try:
        return planning.read_plan(names)
    except AutotuneError:  # an unreadable record is a lab to be replaced
        return None


def _make(plan: LabPlan) -> None:
    planning.write_plan(plan)
    keys.make_keys(plan)
    stopped = [host for host in plan.hosts if machine.pid(plan.names, host.name) is None]
    if stopped:
        prerequisites.require_inotify(len(stopped))
    for host in stopped:
        cgroups.remove_groups(plan.names, host.name)
        network.remove_cable(plan, host)
        disk.make_disk(plan, host)
    network.make_bridge(plan)
    trees = cgroups.make_groups(plan)
    if stopped:
        machine.boot(plan, stopped, trees)
    _await(plan)  # a host that was running already may still be booting


def _await(plan: LabPlan) -> None:
    deadline = time.monotonic() + _BOOT
    left = list(plan.hosts)
    while left := [host for host in left if not answers(host.address)]:
        for host in left:
            running = cgroups.processes(plan.names, host.name)
            if time.monotonic() > deadline or not running:
                raise AutotuneError(f"{host.name} did not boot: {_reason(plan, host, running)}")
        time.sleep(0.02)


def _reason(plan: LabPlan, host: LabHost, running: tuple[int, ...]) -> str:
    console = machine.console(plan.names, host.name)
    if not running:
        return console or "it ended and printed nothing"
    return (
        f"no answer within {_BOOT:g} s by {run_checked(['ip', 'route', 'get', host.address]).strip()}"
        f"; load average {os.getloadavg()[0]:.1f}; CPU time of its processes: "
        f"{machine.activity(running)}\n{console}"
    )


def _remove(names: Names) -> None:
    cgroups.remove_groups(names)
    network.remove_links(names)
    # The record goes last: as long as anything is left, there is a lab to take down.
    for path in (names.machines, names.key, names.key.with_suffix(".pub"), names.known_hosts,
                 names.ssh_config, *durable.left_behind(names.journal), names.journal):  # fmt: skip
        _delete(path)


def _delete(path: Path) -> None:
    deadline = time.monotonic() + _GONE
    while path.is_dir():
        try:
            shutil.rmtree(path)
        except OSError:
            # A process that was about to become a host may still write its last output in there.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    path.unlink(missing_ok=True)
