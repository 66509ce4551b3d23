"""What of a lab is running, and how to get in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from autotune.lab import journal, machine
from autotune.lab import plan as planning
from autotune.lab.hosts import LabHost
from autotune.lab.lifecycle import answers, existing
from autotune.lab.plan import LabPlan
from autotune.transports.endpoint import SshHost


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
    plan = journal.read(planning.names(state_dir))
    if plan is None:
        return ()
    with ThreadPoolExecutor(max_workers=16) as pool:
        return tuple(pool.map(lambda host: _status(plan, host), plan.hosts))


def access(state_dir: Path, host: str) -> SshHost:
    """How to reach ``host`` of the lab: root, the lab's key, and the key it is known by."""
    plan = existing(state_dir)
    known = plan.host(host)
    return SshHost(
        name=known.name,
        address=known.address,
        user="root",
        port=22,
        identity=str(plan.names.key),
        known_hosts=str(plan.names.known_hosts),
    )


def ssh_command(state_dir: Path, host: str) -> list[str]:
    """The argv that opens a terminal on ``host``; a remote command may follow it."""
    plan = existing(state_dir)
    return ["ssh", "-F", str(plan.names.ssh_config), plan.host(host).name]


def _status(plan: LabPlan, host: LabHost) -> HostStatus:
    pid = machine.pid(plan.names, host.name)
    return HostStatus(host.name, host.address, pid, pid is not None and answers(host.address))
