"""Parse a host's statistics in /proc and /sys (proc(5)) to a sample, with pure functions.

If a file is missing or truncated, its fields in the sample are empty. Kernels and containers show
different files, and a sample must never make a reading fail.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from autotune.monitor.process_table import (
    TICKS_PER_SECOND,
    ProcessOwners,
    ServiceProcesses,
    sum_by_service,
)
from autotune.strict_parsing import is_uint, parse_decimal, parse_uint, split_lines

MEMORY_FIELDS = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
CPU_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TCP_COUNTERS = frozenset(
    {
        "ActiveOpens",
        "PassiveOpens",
        "ListenOverflows",
        "ListenDrops",
        "RetransSegs",
        "TCPSynRetrans",
        "OutSegs",
        "TCPReqQFullDrop",
        "CurrEstab",
    }
)
SAMPLED_FILES = (
    "/proc/uptime",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/snmp",
    "/proc/net/netstat",
    "/proc/net/sockstat",
    "/proc/net/sockstat6",
    "/proc/net/dev",
    "/proc/net/unix",
    "/proc/sys/fs/file-nr",
    "/sys/fs/cgroup/cpu.stat",
    "/sys/fs/cgroup/cpu/cpu.stat",
    "/sys/fs/cgroup/cpuacct/cpuacct.usage",
    "/sys/fs/cgroup/memory.current",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.stat",
    "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.stat",
)
# Commands that list sockets. In a sample, each command is also the key of its output.
SS_COMMAND = "ss -ltnH"
CONNECTIONS_COMMAND = "ss -tnH state established"
_LINK_SPEED_PATTERN = re.compile(r"^/sys/class/net/([^/]+)/speed$")
_UNLIMITED_BYTES = 1 << 60  # without a limit, cgroup v1 shows nearly 2⁶³ bytes
_LISTENING_FLAG = "00010000"  # __SO_ACCEPTCON
_CONNECTED_STATE = "03"  # SS_CONNECTED; a waiting connection is SS_CONNECTING


@dataclass(frozen=True)
class ListenQueue:
    """A listening socket. ``waiting`` is the number of connections that wait to be accepted, and
    ``backlog`` is the maximum, if known.

    For a unix socket, ``accepted_count`` is the number of accepted connections that are still open. For
    a TCP port, ``unread_count`` is the number of connections with data that no process has read, if the
    connections of this port were listed. This number includes the waiting connections.
    """

    address: str
    waiting: int
    backlog: int | None = None
    accepted_count: int = 0
    unread_count: int = 0


class InterfaceBytes(NamedTuple):
    """The bytes that a network interface has received and sent."""

    received: int
    sent: int


@dataclass(frozen=True)
class HostSample:
    """One sample of one host, at ``uptime`` seconds of its monotonic clock (time since boot).

    - ``cpu``: seconds by kind, summed over all CPUs that the kernel shows (in a container, the CPUs of
      the machine).
    - ``quota_cpu_seconds``: CPU time of the host's own control group, set only with a quota.
      ``throttled_seconds``: time for which the quota throttled the control group.
    - ``memory``: sizes in bytes. Keys that start with ``Group`` describe the control group.
    - ``tcp``: the kernel's counters, by their names in /proc/net.
    - ``network``: received and sent bytes by interface. ``link_speeds``: bytes/s by interface.
    """

    uptime: float
    cpu: Mapping[str, float] = field(default_factory=dict)
    running: int = 0
    context_switches: int = 0
    load: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    tcp: Mapping[str, int] = field(default_factory=dict)
    sockets: Mapping[str, int] = field(default_factory=dict)
    network: Mapping[str, InterfaceBytes] = field(default_factory=dict)
    link_speeds: Mapping[str, float] = field(default_factory=dict)
    open_files: tuple[int, int] | None = None
    quota_cpu_seconds: float | None = None
    throttled_seconds: float | None = None
    queues: tuple[ListenQueue, ...] = ()
    processes: Mapping[str, ServiceProcesses] = field(default_factory=dict)


def build_sample(texts: Mapping[str, str], owners: ProcessOwners) -> HostSample:
    """Return the sample in texts that were read at the same time: files by path, and output of `ss`."""
    stat, memory = (_split_rows(texts.get(path, "")) for path in ("/proc/stat", "/proc/meminfo"))
    interfaces = _split_rows(texts.get("/proc/net/dev", "").replace(":", ": "))
    file_counts = texts.get("/proc/sys/fs/file-nr", "").split()
    return HostSample(
        uptime=_parse_first_number(texts.get("/proc/uptime", "")),
        cpu={
            k: parse_uint(v) / TICKS_PER_SECOND
            for k, v in zip(CPU_KINDS, stat.get("cpu", ()), strict=False)
        },
        running=_read_single(stat, "procs_running"),
        context_switches=_read_single(stat, "ctxt"),
        load=_parse_first_number(texts.get("/proc/loadavg", "")),
        memory={
            name: parse_uint(memory[name][0], 1024) for name in MEMORY_FIELDS if memory.get(name)
        }
        | _read_group_memory(texts),
        tcp=_parse_counters(texts.get("/proc/net/snmp", "") + texts.get("/proc/net/netstat", "")),
        sockets=_count_sockets(
            texts.get("/proc/net/sockstat", ""), texts.get("/proc/net/sockstat6", "")
        ),
        network={
            name: InterfaceBytes(parse_uint(row[0]), parse_uint(row[8]))
            for name, row in interfaces.items()
            if len(row) >= 9 and is_uint(row[0])
        },
        link_speeds=_parse_link_speeds(texts),
        open_files=(parse_uint(file_counts[0]), parse_uint(file_counts[2]))
        if len(file_counts) == 3
        else None,
        quota_cpu_seconds=_read_quota_cpu(texts),
        throttled_seconds=_read_throttled_seconds(texts),
        queues=(
            *_add_unread_counts(
                parse_ss(texts.get(SS_COMMAND, "")), texts.get(CONNECTIONS_COMMAND, "")
            ),
            *parse_unix_queues(texts.get("/proc/net/unix", "")),
        ),
        processes=sum_by_service(texts, owners),
    )


def parse_ss(text: str) -> Iterator[ListenQueue]:
    """Yield the sockets in the output of ``ss -ltnH``.

    The output's columns are state, Recv-Q (waiting connections), Send-Q (backlog), address and peer.
    """
    for line in split_lines(text):
        fields = line.split()
        are_numeric = all(map(is_uint, fields[1:3]))
        if len(fields) >= 5 and fields[0] == "LISTEN" and are_numeric:
            yield ListenQueue(
                ":" + fields[3].rpartition(":")[2], parse_uint(fields[1]), parse_uint(fields[2])
            )


def _add_unread_counts(queues: Iterable[ListenQueue], text: str) -> Iterator[ListenQueue]:
    """Yield each queue with its ``unread_count``, from the output of ``CONNECTIONS_COMMAND``.

    If several queues have the same port, only the first queue gets the count.
    """
    unread_counts = count_unread_connections(text)
    for queue in queues:
        yield replace(queue, unread_count=unread_counts.pop(queue.address, 0))


def count_unread_connections(text: str) -> Counter[str]:
    """Return the number of connections with unread data for each local port, such as ``:8000``.

    Each line of ``CONNECTIONS_COMMAND`` contains Recv-Q (unread bytes), Send-Q, local and peer address.
    """
    unread_counts: Counter[str] = Counter()
    for line in split_lines(text):
        fields = line.split()
        if len(fields) >= 4 and is_uint(fields[0]) and parse_uint(fields[0]):
            unread_counts[":" + fields[2].rpartition(":")[2]] += 1
    return unread_counts


def parse_unix_queues(text: str) -> Iterator[ListenQueue]:
    """Yield the named listening sockets in ``/proc/net/unix``.

    The kernel lists connections under the name of the socket. Waiting connections are in the state
    "connecting", and accepted connections are in the state "connected".
    """
    waiting: Counter[str] = Counter()
    accepted_counts: Counter[str] = Counter()
    listening_paths: set[str] = set()
    for line in split_lines(text):
        fields = line.split(None, 7)
        if len(fields) < 8:
            continue
        socket_flags, socket_state, socket_path = fields[3], fields[5], fields[7]
        if socket_flags == _LISTENING_FLAG:
            listening_paths.add(socket_path)
        elif socket_state == _CONNECTED_STATE:
            accepted_counts[socket_path] += 1
        else:
            waiting[socket_path] += 1
    for socket_path in sorted(listening_paths):
        yield ListenQueue(socket_path, waiting[socket_path], None, accepted_counts[socket_path])


def _split_rows(text: str) -> dict[str, list[str]]:
    rows = (line.split() for line in split_lines(text))
    return {row[0].rstrip(":"): row[1:] for row in rows if row}


def _parse_first_number(text: str) -> float:
    try:
        return parse_decimal(text.split(None, 1)[0])
    except (IndexError, ValueError):
        return 0.0


def _read_single(rows: Mapping[str, list[str]], name: str) -> int:
    row = rows.get(name)
    return parse_uint(row[0]) if row else 0


def _parse_counters(text: str) -> dict[str, int]:
    """Return counters from the line pairs (names, values) of /proc/net/snmp and /proc/net/netstat."""
    counters: dict[str, int] = {}
    lines = split_lines(text)
    for names, counter_values in zip(lines[::2], lines[1::2], strict=False):
        if names.startswith(("Tcp:", "TcpExt:")):
            name_value_pairs = zip(names.split()[1:], counter_values.split()[1:], strict=False)
            counters |= {
                name: parse_uint(value) for name, value in name_value_pairs if name in TCP_COUNTERS
            }
    return counters


def _count_sockets(ipv4_text: str, ipv6_text: str) -> dict[str, int]:
    """Return the number of TCP sockets by state: in use, orphaned, in TIME-WAIT."""
    socket_counts: Counter[str] = Counter()
    for row in (_split_rows(ipv4_text).get("TCP", []), _split_rows(ipv6_text).get("TCP6", [])):
        for state_name, socket_count in zip(row[::2], row[1::2], strict=False):
            if state_name in ("inuse", "orphan", "tw"):
                socket_counts[state_name] += parse_uint(socket_count)
    return dict(socket_counts)


def _parse_link_speeds(text_by_path: Mapping[str, str]) -> dict[str, float]:
    """Return the speed of each interface in bytes/s, if known. The kernel's files are in Mb/s."""
    return {
        match[1]: speed * 1e6 / 8
        for path, text in text_by_path.items()
        if (match := _LINK_SPEED_PATTERN.match(path)) and (speed := _parse_first_number(text)) > 0
    }


def _read_quota_cpu(text_by_path: Mapping[str, str]) -> float | None:
    """Return the CPU seconds of this host's control group (cgroup v2, then v1), or ``None`` without a
    quota.

    Outside a container, the control group covers the whole machine and has no quota.
    """
    rows = _split_rows(text_by_path.get("/sys/fs/cgroup/cpu.stat", ""))
    if _read_single(rows, "nr_periods"):
        return _read_single(rows, "usage_usec") * 1e-6
    rows = _split_rows(text_by_path.get("/sys/fs/cgroup/cpu/cpu.stat", ""))
    usage = text_by_path.get("/sys/fs/cgroup/cpuacct/cpuacct.usage", "").strip()
    return parse_uint(usage) * 1e-9 if usage and _read_single(rows, "nr_periods") else None


def _read_group_memory(text_by_path: Mapping[str, str]) -> dict[str, int]:
    """Return the memory limit and usage of this host's control group (cgroup v2, then v1); empty
    without a limit.

    Cached files count as free, as in MemAvailable of a host, because the kernel drops them if the group
    needs memory. A database that reads more files than fit would otherwise seem to lack memory.
    """
    for usage_file, limit_file, stat, prefix in (
        ("memory.current", "memory.max", "memory.stat", ""),
        (
            "memory/memory.usage_in_bytes",
            "memory/memory.limit_in_bytes",
            "memory/memory.stat",
            "total_",
        ),
    ):
        allowed_memory = text_by_path.get(f"/sys/fs/cgroup/{limit_file}", "").strip()
        used_memory = text_by_path.get(f"/sys/fs/cgroup/{usage_file}", "").strip()
        if (
            is_uint(allowed_memory)
            and is_uint(used_memory)
            and parse_uint(allowed_memory) < _UNLIMITED_BYTES
        ):
            sizes = _split_rows(text_by_path.get(f"/sys/fs/cgroup/{stat}", ""))
            cached_bytes = sum(
                _read_single(sizes, f"{prefix}{kind}_file") for kind in ("inactive", "active")
            )
            return {
                "GroupLimit": parse_uint(allowed_memory),
                "GroupUsed": max(0, parse_uint(used_memory) - cached_bytes),
            }
    return {}


def _read_throttled_seconds(text_by_path: Mapping[str, str]) -> float | None:
    """Return the seconds for which a CPU quota throttled this host (cgroup v2, then v1)."""
    for path, name, unit_seconds in (
        ("/sys/fs/cgroup/cpu.stat", "throttled_usec", 1e-6),
        ("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", 1e-9),
    ):
        rows = _split_rows(text_by_path.get(path, ""))
        if name in rows:
            return _read_single(rows, name) * unit_seconds
    return None
