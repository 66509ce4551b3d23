"""What a host is made of and what its kernel is set to, asked of the host itself. Read-only."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotune.errors import AutotuneError
from autotune.services.sysctl.service import KEYS
from autotune.space.facts import HostFacts
from autotune.strict import is_whole, split_lines
from autotune.target.model import Target
from autotune.transports.base import Transport
from autotune.transports.parallel import run_on_all

UNLIMITED = 1_048_576  # what Linux allows where nobody has said otherwise (fs.nr_open)

# `name value` lines. A group of processes is held to its own limits and to those of the groups it
# is in, so all of them are looked at: version 2 has one tree of groups, version 1 one for each
# resource. In a container the tree shown begins at the container's own group. A unit is not in the
# group of this login ($1 is `unit`), but it is in the outermost one.
_ASK = r"""
exec 2>/dev/null
of=$1
echo "cpus $(nproc)"
echo "files $(ulimit -Hn)"
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


def host_facts(transport: Transport, *, units: bool = False) -> HostFacts:
    """CPUs and descriptors this account may use, and memory in bytes; limits of groups count.

    ``units``: services run as units of systemd, which may grant them more descriptors than this
    account has: up to fs.nr_open, or, in a container without the right to raise limits, up to
    what systemd itself was given. Raises ``AutotuneError`` if the host does not say.
    """
    asked = transport.run(["sh", "-c", _ASK, "sh", "unit" if units else "login"])
    host = parse_facts(asked.stdout, units=units)
    if host is None:
        words = f": {asked.error_text[:200]}" if asked.error_text else ""
        raise AutotuneError(
            f"{transport.name} does not report its CPUs and memory{words}",
            hint="autotune needs Linux with coreutils and /proc on every host",
        )
    if not units:
        return host
    settings = kernel(transport, KEYS)
    return replace(host, kernel=settings.values, refused=settings.refused)


def facts(
    target: Target, transports: Mapping[str, Transport], *, units: bool = False
) -> dict[str, HostFacts]:
    """What each host of a target has, asked of all at once, within what the target grants of it.

    Raises ``AutotuneError`` with every host that does not say or cannot be reached.
    """
    facts = run_on_all(
        (transports[name] for name in target.hosts),
        lambda transport: host_facts(transport, units=units),
    ).unwrap()
    return {name: facts[transports[name].name].within(host)
            for name, host in target.hosts.items()}  # fmt: skip


def parse_facts(output: str, *, units: bool = False) -> HostFacts | None:
    """The facts in what a host printed; ``None`` without its CPUs or its memory."""
    rows = [line.split() for line in split_lines(output)]
    numbers = {row[0]: int(row[1]) for row in rows if len(row) == 2 and is_whole(row[1])}
    if not numbers.get("cpus") or "memory" not in numbers:
        return None
    return HostFacts(
        cpus=min([float(numbers["cpus"]), *_quotas(rows)]),
        memory=min([numbers["memory"] * 1024, *_memories(rows)]),
        nofile=numbers.get("unit_files" if units else "files", UNLIMITED),
    )


def _quotas(rows: list[list[str]]) -> Iterator[float]:
    """CPUs that groups may use: a quota of microseconds in each period (cgroups(7))."""
    for row in rows:
        match row:
            case ["cpu.max" | "cpu.cfs", quota, period] if _positive(quota) and _positive(period):
                yield int(quota) / int(period)


def _memories(rows: list[list[str]]) -> Iterator[int]:
    """Bytes that groups may use. Without a limit, version 1 shows the largest there could be."""
    for row in rows:
        match row:
            case ["memory.max" | "memory.limit", limit] if _positive(limit):
                yield int(limit)


def _positive(word: str) -> bool:
    return is_whole(word) and int(word) > 0


# A line for each file of a key: its state, its path, its value. Paths are arguments, each of them quoted.
# The shell reads all this from its input: an account need be allowed to run nothing but `sh` as root.
_ASK_KERNEL = r"""
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
_SYS = "/proc/sys/"
_WHY = {
    "absent": "this kernel does not have it",
    "hidden": "it cannot be read here",
    "fixed": "it cannot be written here",
}


@dataclass(frozen=True)
class Kernel:
    """Values by their names, and why others cannot be set, each in a few words."""

    values: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def kernel(transport: Transport, keys: Iterable[str]) -> Kernel:
    """Ask for these keys, with the rights that setting them would take."""
    paths = (f"{_SYS}{key.replace('.', '/')}" for key in keys)
    script = f"set -- {shlex.join(paths)}\n{_ASK_KERNEL}".encode()
    asked = transport.run(["sh"], input=script, sudo=True)
    answer = asked if asked.ok else transport.run(["sh"], input=script)
    return parse_kernel(answer.stdout)


def parse_kernel(output: str) -> Kernel:
    """The values in what a host printed."""
    settings = Kernel()
    for line in split_lines(output):
        state, _, rest = line.partition(" ")
        path, _, value = rest.partition(" ")
        key = path.removeprefix(_SYS).replace("/", ".")
        if state in ("writable", "fixed"):
            settings.values[key] = " ".join(value.split())
        if state in _WHY:
            settings.refused[key] = _WHY[state]
    return settings
