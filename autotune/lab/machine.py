"""Boot a lab host: a process enters the host's control groups, namespaces and root file system, and
becomes systemd.

The network and mounts belong to unnamed namespaces, which vanish with their last process. Only a
host's control groups and directory outlive its processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import cgroups, network
from autotune.lab.cgroups import CgroupHierarchy
from autotune.lab.lock import run_checked
from autotune.lab.plan import LabHost, LabNames, LabPlan
from autotune.strict_parsing import split_lines

_START_SECONDS = 60.0  # time limit for a process to create its namespaces

# The script joins the control groups first, so that removing the lab also kills the script's process.
_JOIN_SCRIPT = """
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
# The script prints its PID, and waits for the line of input which signals that the network interface
# exists. The script exits if the input ends. The disk is volatile, because waiting for this machine's
# disk would disturb other hosts. The script's remaining arguments are pairs `name source` for control
# group trees that this machine does not mount.
_BOOT_SCRIPT = """
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


def boot_hosts(
    plan: LabPlan, hosts: Sequence[LabHost], hierarchies: tuple[CgroupHierarchy, ...]
) -> None:
    """Start ``hosts`` together, and return once each host is connected to the bridge and starts
    systemd.
    """
    with contextlib.ExitStack() as exit_stack:
        started_processes = [_start_host(plan, host, hierarchies, exit_stack) for host in hosts]
        pids_by_host = {
            host.name: _read_pid(host, pid_pipe, plan.names)
            for host, (pid_pipe, _) in zip(hosts, started_processes, strict=True)
        }
        run_checked(["ip", "-batch", "-"], input_text=network.format_link_batch(plan, pids_by_host))
        for _, release_pipe in started_processes:
            release_host(release_pipe)


def release_host(release_pipe: int) -> None:
    """Signal to a waiting host process, through ``release_pipe``, that its network interface exists."""
    os.write(release_pipe, b"go\n")


def find_init_pid(lab_names: LabNames, host: str) -> int | None:
    """Return the PID, on this machine, of the process that is PID 1 on ``host``, or ``None`` if the
    host is not running.
    """
    for pid in cgroups.list_host_processes(lab_names, host):
        with contextlib.suppress(OSError):
            if is_namespace_init(Path(f"/proc/{pid}/status").read_text(encoding="utf-8")):
                return pid
    return None


def is_namespace_init(status_text: str) -> bool:
    """True if the text of a ``/proc/PID/status`` file belongs to PID 1 of a child namespace."""
    for line in split_lines(status_text):
        if line.startswith("NSpid:"):
            namespace_pids = line.split()[1:]
            return len(namespace_pids) > 1 and namespace_pids[-1] == "1"
    return False


def read_console_tail(lab_names: LabNames, host: str) -> str:
    """Return the last lines on a host's console during boot."""
    try:
        console_text = (lab_names.get_machine_directory(host) / "console.log").read_text(
            encoding="utf-8", errors="replace"
        )
    except FileNotFoundError:
        return ""
    return "\n".join(split_lines(console_text.strip())[-5:])


def describe_processes(pids: Iterable[int]) -> str:
    """Return the name, state and CPU time (in seconds, including exited children) of each process
    (proc(5)).
    """
    process_texts = []
    for pid in pids:
        with contextlib.suppress(OSError):
            stat_text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            (process_name, _, stat_rest) = stat_text.partition("(")[2].rpartition(") ")
            (process_state, *fields) = stat_rest.split()
            cpu_seconds = sum(map(int, fields[10:14])) / os.sysconf("SC_CLK_TCK")
            process_texts.append(f"{process_name} ({process_state}, {cpu_seconds:.1f} s)")
    return ", ".join(process_texts)


def build_boot_command(
    plan: LabPlan, host: LabHost, hierarchies: Iterable[CgroupHierarchy]
) -> list[str]:
    """Return the command whose process boots ``host`` once `release_host` signals it."""
    joined_groups = [str(tree.get_group_path(plan.names.cgroup, host.name)) for tree in hierarchies]
    return [
        # A new session without a parent process outlives this process and its terminal.
        *("setsid", "--fork", "sh", "-c", _JOIN_SCRIPT, "sh", _BOOT_SCRIPT),
        *(
            str(plan.names.get_machine_directory(host.name)),
            host.name,
            plan.format_interface_address(host.address),
        ),
        *(str(len(joined_groups)), *joined_groups),
        *list_cgroup_mounts(hierarchies, plan.names.private_cgroups),
    ]


def list_cgroup_mounts(
    hierarchies: Iterable[CgroupHierarchy], private_directory: Path
) -> list[str]:
    """Return the mounts that a host needs below /sys/fs/cgroup, or none if this machine's mounts
    suffice.

    The result consists of pairs of words: a name (``.`` for the directory itself) and a source path.
    """
    tree_paths = [tree.path for tree in hierarchies]
    if not any(path.is_relative_to(private_directory) for path in tree_paths):
        return []
    mount_pairs = [
        ("." if path == private_directory else path.name, str(path)) for path in tree_paths
    ]
    return [mount_argument for mount_pair in mount_pairs for mount_argument in mount_pair]


def _start_host(
    plan: LabPlan,
    host: LabHost,
    hierarchies: tuple[CgroupHierarchy, ...],
    exit_stack: contextlib.ExitStack,
) -> tuple[int, int]:
    """Start a host's process, and return two file descriptors: the first to read the process's PID, the
    second to release the process.
    """
    (pid_pipe, stdout) = os.pipe()
    (stdin, release_pipe) = os.pipe()
    for pipe_end in (pid_pipe, release_pipe):
        exit_stack.callback(os.close, pipe_end)
    try:
        subprocess.run(
            build_boot_command(plan, host, hierarchies),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            check=True,
            cwd="/",
            env={
                "PATH": os.environ.get("PATH", "/usr/bin:/bin")
                + ":/usr/local/sbin:/usr/sbin:/sbin",
                "LANG": "C.UTF-8",
                "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",  # each host has its own net.* sysctls
            },
        )
    finally:
        os.close(stdout)
        os.close(stdin)
    return (pid_pipe, release_pipe)


def _read_pid(host: LabHost, pid_pipe: int, lab_names: LabNames) -> int:
    deadline = time.monotonic() + _START_SECONDS
    pid_line = b""
    while not pid_line.endswith(b"\n"):
        (ready, _, _) = select.select([pid_pipe], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(pid_pipe, 64) if ready else b""
        if not chunk:
            raise AutotuneError(
                f"{host.name} did not start: {read_console_tail(lab_names, host.name)}"
            )
        pid_line += chunk
    return int(pid_line)
