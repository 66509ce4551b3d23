"""Read a host's hardware and kernel settings, without changing anything."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotune.errors import AutotuneError
from autotune.services.sysctl.service import KERNEL_KEYS
from autotune.space.facts import HostFacts
from autotune.strict_parsing import is_uint, split_lines
from autotune.target.model import Target
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all

DEFAULT_MAX_DESCRIPTORS = 1_048_576  # Linux's default for fs.nr_open

# The output consists of `name value` lines. The limits of all enclosing control groups apply, so
# the script reads every level. Version 2 of control groups uses one tree; version 1 uses one tree
# per resource. In a container, the visible tree starts at the container's group. If $1 is `unit`, the
# unit and this login have only the root control group in common.
_FACTS_SCRIPT = r"""
exec 2>/dev/null
of=$1
unset OMP_NUM_THREADS OMP_THREAD_LIMIT # nproc would print them instead of the number of CPUs
echo "cpus $(nproc)"
echo "files $(ulimit -Hn)"
echo "somaxconn $(cat /proc/sys/net/core/somaxconn)"
able=0x$(sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/1/status)
if [ $((able >> 24 & 1)) = 1 ]; then # CAP_SYS_RESOURCE, capabilities(7)
    echo "unit_files $(cat /proc/sys/fs/nr_open)"
else
    echo "unit_files $(sed -n 's/^Max open files *[^ ]* *\([^ ]*\).*/\1/p' /proc/1/limits)"
fi
sed -n 's/^MemTotal: *\([0-9]*\) kB$/memory \1/p' /proc/meminfo
limits() { # directory of a tree, group: its limits, then those of the groups above it
    group=$2
    [ "$of" = login ] || group=
    while :; do
        in=$1/$group
        echo "cpu.max $(cat "$in/cpu.max")"
        echo "memory.max $(cat "$in/memory.max")"
        echo "cpu.cfs $(cat "$in/cpu.cfs_quota_us") $(cat "$in/cpu.cfs_period_us")"
        echo "memory.limit $(cat "$in/memory.limit_in_bytes")"
        case $group in */*) group=${group%/*} ;; *) break ;; esac
    done
}
while IFS=: read -r _ kinds group; do
    case ,$kinds, in
        ,,) limits /sys/fs/cgroup "$group" ;;
        *,cpu,*) limits /sys/fs/cgroup/cpu "$group" ;;
        *,memory,*) limits /sys/fs/cgroup/memory "$group" ;;
    esac
done </proc/self/cgroup
:
"""


def read_host_facts(transport: Transport, *, units: bool = False) -> HostFacts:
    """Return the CPUs, file descriptors and memory (bytes) that this account may use.

    The limits of control groups apply. ``units`` is true if services run as systemd units, which
    may get more descriptors than this account, up to fs.nr_open. In a container that may not raise
    limits, units get at most the descriptors of systemd itself. Raises ``AutotuneError`` if the host
    reports no facts.
    """
    command_result = transport.run(["sh", "-c", _FACTS_SCRIPT, "sh", "unit" if units else "login"])
    facts = parse_facts(command_result.stdout, units=units)
    if facts is None:
        details = f": {command_result.error_text[:200]}" if command_result.error_text else ""
        raise AutotuneError(
            f"{transport.name} returned no CPU count or memory size{details}",
            hint="autotune needs Linux with coreutils and /proc on every host",
        )
    if not units:
        return facts
    kernel_settings = read_kernel_values(transport, KERNEL_KEYS)
    return replace(
        facts, kernel_values=kernel_settings.values, unsettable=kernel_settings.unsettable
    )


def read_facts(
    target: Target, transports: Mapping[str, Transport], *, units: bool = False
) -> dict[str, HostFacts]:
    """Read the facts of each host in a target in parallel, and return the facts, reduced to the target's
    limits.

    Raises an ``AutotuneError`` that lists every host that is unreachable or reports no facts.
    """
    facts = run_on_all(
        (transports[name] for name in target.hosts),
        lambda transport: read_host_facts(transport, units=units),
    ).unwrap()
    return {
        name: facts[transports[name].name].limit_to_host(host)
        for name, host in target.hosts.items()
    }


def parse_facts(output: str, *, units: bool = False) -> HostFacts | None:
    """Return the facts in the output of a host's commands, or ``None`` if CPUs or memory are
    missing or impossible.
    """
    rows = [line.split() for line in split_lines(output)]
    numbers_by_key = {row[0]: int(row[1]) for row in rows if len(row) == 2 and is_uint(row[1])}
    if not numbers_by_key.get("cpus") or not is_uint(f"{numbers_by_key.get('memory')}000"):
        return None
    return HostFacts(
        cpus=min([float(numbers_by_key["cpus"]), *_parse_cpu_quotas(rows)]),
        memory=min([numbers_by_key["memory"] * 1024, *_parse_memory_limits(rows)]),
        nofile=numbers_by_key.get("unit_files" if units else "files", DEFAULT_MAX_DESCRIPTORS),
        somaxconn=numbers_by_key.get("somaxconn", 0),
    )


def _parse_cpu_quotas(output_rows: list[list[str]]) -> Iterator[float]:
    """Yield the number of CPUs that each control group may use: quota divided by period
    (cgroups(7)).
    """
    for row in output_rows:
        match row:
            case ["cpu.max" | "cpu.cfs", quota, period] if _is_positive(quota) and _is_positive(
                period
            ):
                yield int(quota) / int(period)


def _parse_memory_limits(output_rows: list[list[str]]) -> Iterator[int]:
    """Yield the memory limit of each control group in bytes. Without a limit, cgroup version 1
    prints the largest possible value.
    """
    for row in output_rows:
        match row:
            case ["memory.max" | "memory.limit", limit] if _is_positive(limit):
                yield int(limit)


def _is_positive(text: str) -> bool:
    return is_uint(text) and int(text) > 0


# The output contains one line for each kernel setting: state, path and value. Paths are quoted
# arguments. The shell reads the script from its input, so the account only needs permission to run
# `sh` as root.
_KERNEL_SCRIPT = r"""
newline='
'
said=$newline$(grep -s '' -- "$@" /dev/null)$newline
for path; do
    value=${said#*"$newline$path:"}
    value=${value%%"$newline"*}
    if [ ! -e "$path" ]; then echo "absent $path"
    elif [ ! -r "$path" ]; then echo "hidden $path"
    elif [ -w "$path" ]; then echo "writable $path $value"
    else echo "fixed $path $value"
    fi
done
"""
_SYSCTL_ROOT = "/proc/sys/"
_STATE_REASONS = {
    "absent": "this kernel does not support it",
    "hidden": "it cannot be read on this host",
    "fixed": "it cannot be written on this host",
}


@dataclass(frozen=True)
class KernelValues:
    """Kernel values by name. ``unsettable`` maps each setting that cannot be changed to the reason."""

    values: dict[str, str] = field(default_factory=dict)
    unsettable: dict[str, str] = field(default_factory=dict)


def read_kernel_values(transport: Transport, keys: Iterable[str]) -> KernelValues:
    """Return the values of the kernel settings ``keys``, read as root if the account may use sudo."""
    sysctl_paths = (f"{_SYSCTL_ROOT}{kernel_key.replace('.', '/')}" for kernel_key in keys)
    script = f"set -- {shlex.join(sysctl_paths)}\n{_KERNEL_SCRIPT}".encode()
    root_result = transport.run(["sh"], input=script, sudo=True)
    shell_result = root_result if root_result.ok else transport.run(["sh"], input=script)
    return parse_kernel_values(shell_result.stdout)


def parse_kernel_values(output: str) -> KernelValues:
    """Return the kernel values in the output of a host's commands."""
    settings = KernelValues()
    for line in split_lines(output):
        setting_state, _, path_and_value = line.partition(" ")
        sysctl_path, _, value = path_and_value.partition(" ")
        kernel_key = sysctl_path.removeprefix(_SYSCTL_ROOT).replace("/", ".")
        if setting_state in ("writable", "fixed"):
            settings.values[kernel_key] = " ".join(value.split())
        if setting_state in _STATE_REASONS:
            settings.unsettable[kernel_key] = _STATE_REASONS[setting_state]
    return settings
