"""How a host comes to life: a process in its groups, its namespaces, its root, then systemd.

Its network and mounts belong to namespaces without a name, which end with the last process in
them. Nothing of a host outlives its processes but its groups and its directory.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import cgroups, network
from autotune.lab.cgroups import Hierarchy
from autotune.lab.lock import run_checked
from autotune.lab.plan import LabHost, LabPlan, Names

_PATIENCE = 10.0  # s for a process to come as far as its namespaces

# Joins the groups first, so that it is found and ended with the lab from here on.
_JOIN = """
set -eu
boot=$1 directory=$2 host=$3 address=$4 groups=$5
shift 5
exec 2>"$directory/console.log"
while [ "$groups" -gt 0 ]; do
    echo $$ >"$1/cgroup.procs"
    groups=$((groups - 1))
    shift
done
exec unshare --net --mount -- sh -c "$boot" sh "$directory" "$host" "$address" "$@"
"""
# Says where the cable goes and waits for it. End of input instead: whoever wanted it is gone.
# The disk is volatile: a host that waits for writes of this machine's disk would disturb the others.
# Remaining words, `name source`: trees of control groups that this machine has no mount of.
_BOOT = """
set -eu
directory=$1 host=$2 address=$3
shift 3
echo $$
read -r _
ip link set lo up
ip address add "$address" dev eth0
ip link set eth0 up
mount -t overlay overlay \
    -o "volatile,lowerdir=/,upperdir=$directory/upper,workdir=$directory/work" "$directory/root"
mount -t tmpfs -o mode=755 tmpfs /run
if [ $# -gt 0 ]; then
    mkdir /run/cgroup
    mount -t tmpfs -o mode=755 tmpfs /run/cgroup
    while [ $# -gt 0 ]; do
        if [ "$1" = . ]; then
            umount /run/cgroup
        else
            mkdir "/run/cgroup/$1"
        fi
        mount --bind "$2" "/run/cgroup/$1"
        shift 2
    done
    mount --rbind /run/cgroup /sys/fs/cgroup
fi
exec systemd-nspawn --quiet --boot --directory="$directory/root" --machine="$host" \
    --hostname="$host" --register=no --keep-unit --console=pipe --link-journal=no \
    --network-namespace-path=/proc/self/ns/net --resolv-conf=off --timezone=off \
    --drop-capability=CAP_MKNOD </dev/null >>"$directory/console.log" 2>&1
"""


@dataclass(frozen=True)
class Launched:
    """A host's process that waits, in its namespaces, for the cable and the word to go on."""

    host: LabHost
    pid: int
    go: int

    def release(self) -> None:
        os.write(self.go, b"go\n")


def boot(plan: LabPlan, hosts: Sequence[LabHost], trees: tuple[Hierarchy, ...]) -> None:
    """Start ``hosts`` together; returns when each has its network and becomes systemd."""
    with contextlib.ExitStack() as stack:
        started = [_start(plan, host, trees, stack) for host in hosts]
        waiting = [
            Launched(host, _pid(host, told, plan.names), go)
            for host, (told, go) in zip(hosts, started, strict=True)
        ]
        pids = {launched.host.name: launched.pid for launched in waiting}
        run_checked(["ip", "-batch", "-"], text=network.cables(plan, pids))
        for launched in waiting:
            launched.release()


def pid(names: Names, host: str) -> int | None:
    """The process that is PID 1 of ``host``, as this machine counts, if it is running."""
    for member in cgroups.processes(names, host):
        with contextlib.suppress(OSError):
            if first(Path(f"/proc/{member}/status").read_text(encoding="utf-8")):
                return member
    return None


def first(status: str) -> bool:
    """Whether the process of this ``/proc/PID/status`` is PID 1 of a namespace below ours."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            numbers = line.split()[1:]
            return len(numbers) > 1 and numbers[-1] == "1"
    return False


def console(names: Names, host: str) -> str:
    """The last lines a host printed while it booted."""
    try:
        text = (names.machine(host) / "console.log").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.strip().splitlines()[-5:])


def command(plan: LabPlan, host: LabHost, trees: Iterable[Hierarchy]) -> list[str]:
    """The argv that becomes ``host`` once it is released."""
    joined = [str(tree.group(plan.names.cgroup, host.name)) for tree in trees]
    return [
        # Its own session, and nobody's child: it must outlive this process and its terminal.
        *("setsid", "--fork", "sh", "-c", _JOIN, "sh", _BOOT),
        *(str(plan.names.machine(host.name)), host.name, plan.interface(host.address)),
        *(str(len(joined)), *joined),
        *covers(trees, plan.names.private_cgroups),
    ]


def covers(trees: Iterable[Hierarchy], private: Path) -> list[str]:
    """What a machine must see below /sys/fs/cgroup, if that differs from what is there.

    Pairs of a name (``.``: the place itself) and where it is mounted.
    """
    known = list(trees)
    if not any(tree.path.is_relative_to(private) for tree in known):
        return []
    words = []
    for tree in known:
        words += ["." if tree.path == private else tree.path.name, str(tree.path)]
    return words


def _start(
    plan: LabPlan, host: LabHost, trees: tuple[Hierarchy, ...], stack: contextlib.ExitStack
) -> tuple[int, int]:
    (told, telling) = os.pipe()
    (heard, go) = os.pipe()
    for end in (told, go):
        stack.callback(os.close, end)
    try:
        subprocess.run(
            command(plan, host, trees),
            stdin=heard,
            stdout=telling,
            stderr=subprocess.DEVNULL,
            check=True,
            cwd="/",
            env=_environment(os.environ),
        )
    finally:
        os.close(telling)
        os.close(heard)
    return (told, go)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    return {
        "PATH": own.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",  # net.* sysctls, each host its own
    }


def _pid(host: LabHost, told: int, names: Names) -> int:
    deadline = time.monotonic() + _PATIENCE
    said = b""
    while not said.endswith(b"\n"):
        (ready, _, _) = select.select([told], [], [], max(0.0, deadline - time.monotonic()))
        more = os.read(told, 64) if ready else b""
        if not more:
            raise AutotuneError(f"{host.name} did not start: {console(names, host.name)}")
        said += more
    return int(said)
