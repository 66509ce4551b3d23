"""Linux' own accounts of a host, ``{path: text}``, read into a Sample. Pure; proc(5) is the source.

A file that is missing or cut short leaves its part of the sample empty: kernels and containers
differ in what they show, and a probe must never fail a reading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autotune.monitor.process_table import Owners, Processes, by_service
from autotune.strict import decimal, is_whole, split_lines, whole

TICKS = 100.0  # USER_HZ, which Linux fixes at 100 for what it shows to programs
MEMORY = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
CPU_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TCP_COUNTERS = frozenset(
    {"ListenOverflows", "ListenDrops", "RetransSegs", "OutSegs", "TCPReqQFullDrop", "CurrEstab"}
)
FILES = (
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
SS = "ss -ltnH"  # also the name of its output among the texts of a sample
_SPEED = re.compile(r"^/sys/class/net/([^/]+)/speed$")
_UNLIMITED = 1 << 60  # bytes; without a limit version 1 shows nearly 2⁶³
_LISTENS = "00010000"  # __SO_ACCEPTCON
_CONNECTED = "03"  # SS_CONNECTED; what waits to be accepted is shown as SS_CONNECTING


@dataclass(frozen=True)
class Queue:
    """A listening socket: connections ``waiting`` to be accepted, its backlog (``None``: not
    shown) and, for a unix socket, how many are ``accepted`` and still open."""

    place: str
    waiting: int
    backlog: int | None = None
    accepted: int = 0


@dataclass(frozen=True)
class Sample:
    """One look at one host, ``at`` seconds on its own monotonic clock (time since boot).

    ``cpu`` holds seconds by kind, summed over the CPUs that the kernel shows, which in a container
    are the whole machine's; ``used`` those of the host's own control group, if that has a quota;
    ``throttled`` how long the quota kept it waiting. ``memory`` holds bytes, ``Group…`` those of the
    group; ``tcp`` the kernel's counters by their own names; ``network`` bytes in and out by
    interface, ``link`` its bytes/s.
    """

    at: float
    cpu: Mapping[str, float] = field(default_factory=dict)
    running: int = 0
    switches: int = 0
    load: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    tcp: Mapping[str, int] = field(default_factory=dict)
    sockets: Mapping[str, int] = field(default_factory=dict)
    network: Mapping[str, int] = field(default_factory=dict)
    link: Mapping[str, float] = field(default_factory=dict)
    files: tuple[int, int] | None = None
    used: float | None = None
    throttled: float | None = None
    queues: tuple[Queue, ...] = ()
    processes: Mapping[str, Processes] = field(default_factory=dict)


def sample(texts: Mapping[str, str], owners: Owners) -> Sample:
    """One sample of all that was read at one instant: files by path, and what `ss` printed."""
    stat, memory = (_rows(texts.get(path, "")) for path in ("/proc/stat", "/proc/meminfo"))
    interfaces = _rows(texts.get("/proc/net/dev", "").replace(":", ": "))
    files = texts.get("/proc/sys/fs/file-nr", "").split()
    return Sample(
        at=_first_number(texts.get("/proc/uptime", "")),
        cpu={k: whole(v) / TICKS for k, v in zip(CPU_KINDS, stat.get("cpu", ()), strict=False)},
        running=_single(stat, "procs_running"),
        switches=_single(stat, "ctxt"),
        load=_first_number(texts.get("/proc/loadavg", "")),
        memory={name: whole(memory[name][0], 1024) for name in MEMORY if memory.get(name)}
        | _group_memory(texts),
        tcp=_counters(texts.get("/proc/net/snmp", "") + texts.get("/proc/net/netstat", "")),
        sockets=_sockets(texts.get("/proc/net/sockstat", ""), texts.get("/proc/net/sockstat6", "")),
        network={name: whole(row[0]) + whole(row[8]) for name, row in interfaces.items()
                 if len(row) >= 9 and is_whole(row[0])},
        link=_links(texts),
        files=(whole(files[0]), whole(files[2])) if len(files) == 3 else None,
        used=_used(texts),
        throttled=_throttled(texts),
        queues=(*parse_ss(texts.get(SS, "")), *unix_queues(texts.get("/proc/net/unix", ""))),
        processes=by_service(texts, owners),
    )  # fmt: skip


def parse_ss(text: str) -> Iterator[Queue]:
    """``ss -ltnH``: state, Recv-Q (waiting), Send-Q (backlog), local address and port, peer."""
    for line in split_lines(text):
        fields = line.split()
        numeric = all(map(is_whole, fields[1:3]))
        if len(fields) >= 5 and fields[0] == "LISTEN" and numeric:
            yield Queue(":" + fields[3].rpartition(":")[2], whole(fields[1]), whole(fields[2]))


def unix_queues(text: str) -> Iterator[Queue]:
    """Named unix sockets that listen. The kernel lists a connection that waits under the same name,
    connecting and without an inode, and an accepted one as connected."""
    waiting: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    listening: set[str] = set()
    for line in split_lines(text):
        fields = line.split(None, 7)
        if len(fields) < 8:
            continue
        flags, state, place = fields[3], fields[5], fields[7]
        if flags == _LISTENS:
            listening.add(place)
        elif state == _CONNECTED:
            accepted[place] += 1
        else:
            waiting[place] += 1
    for place in sorted(listening):
        yield Queue(place, waiting[place], None, accepted[place])


def _rows(text: str) -> dict[str, list[str]]:
    rows = (line.split() for line in split_lines(text))
    return {row[0].rstrip(":"): row[1:] for row in rows if row}


def _first_number(text: str) -> float:
    try:
        return decimal(text.split(None, 1)[0])
    except (IndexError, ValueError):
        return 0.0


def _single(rows: Mapping[str, list[str]], name: str) -> int:
    row = rows.get(name)
    return whole(row[0]) if row else 0


def _counters(text: str) -> dict[str, int]:
    """Pairs of lines, names then values, as /proc/net/snmp and /proc/net/netstat have them."""
    counters: dict[str, int] = {}
    lines = split_lines(text)
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names.startswith(("Tcp:", "TcpExt:")):
            pairs = zip(names.split()[1:], values.split()[1:], strict=False)
            counters |= {name: whole(value) for name, value in pairs if name in TCP_COUNTERS}
    return counters


def _sockets(four: str, six: str) -> dict[str, int]:
    """TCP sockets by state: in use, orphaned, in TIME-WAIT."""
    sockets: Counter[str] = Counter()
    for row in (_rows(four).get("TCP", []), _rows(six).get("TCP6", [])):
        for name, value in zip(row[::2], row[1::2], strict=False):
            if name in ("inuse", "orphan", "tw"):
                sockets[name] += whole(value)
    return dict(sockets)


def _links(texts: Mapping[str, str]) -> dict[str, float]:
    """Bytes/s of each interface whose speed (Mb/s) is known; virtual ones say -1 or nothing."""
    return {
        match[1]: speed * 1e6 / 8
        for path, text in texts.items()
        if (match := _SPEED.match(path)) and (speed := _first_number(text)) > 0
    }


def _used(texts: Mapping[str, str]) -> float | None:
    """Seconds of CPU that this host's own group has used, if it has a quota (cgroup v2, then v1).

    On a machine that is no container, the group holds everything and has no quota.
    """
    rows = _rows(texts.get("/sys/fs/cgroup/cpu.stat", ""))
    if _single(rows, "nr_periods"):
        return _single(rows, "usage_usec") * 1e-6
    rows = _rows(texts.get("/sys/fs/cgroup/cpu/cpu.stat", ""))
    usage = texts.get("/sys/fs/cgroup/cpuacct/cpuacct.usage", "").strip()
    return whole(usage) * 1e-9 if usage and _single(rows, "nr_periods") else None


def _group_memory(texts: Mapping[str, str]) -> dict[str, int]:
    """What this host's own group may use and does use, where it has a limit (cgroup v2, then v1).

    Inactive cached files count as free, because the kernel drops them first.
    """
    for current, limit, stat, idle in (
        ("memory.current", "memory.max", "memory.stat", "inactive_file"),
        (
            "memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes",
            "memory/memory.stat", "total_inactive_file",
        ),
    ):  # fmt: skip
        allowed = texts.get(f"/sys/fs/cgroup/{limit}", "").strip()
        used = texts.get(f"/sys/fs/cgroup/{current}", "").strip()
        if is_whole(allowed) and is_whole(used) and whole(allowed) < _UNLIMITED:
            given_up = _single(_rows(texts.get(f"/sys/fs/cgroup/{stat}", "")), idle)
            return {"GroupLimit": whole(allowed), "GroupUsed": max(0, whole(used) - given_up)}
    return {}


def _throttled(texts: Mapping[str, str]) -> float | None:
    """Seconds that a CPU quota has kept this host's processes waiting (cgroup v2, then v1)."""
    for path, name, unit in (
        ("/sys/fs/cgroup/cpu.stat", "throttled_usec", 1e-6),
        ("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", 1e-9),
    ):
        rows = _rows(texts.get(path, ""))
        if name in rows:
            return _single(rows, name) * unit
    return None
