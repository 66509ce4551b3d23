"""Find the processes of each service in ``/proc/PID/stat`` and the files next to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.strict_parsing import is_uint, parse_uint, split_lines

TICKS_PER_SECOND = 100.0  # USER_HZ, which is always 100 in Linux user space
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")  # for hosts that do not print their own page size
PAGE_SIZE_SECTION = "pagesize"  # of the host's kernel in bytes: 64 KiB on some arm64 hosts
# Sections of a stream that contain one line per process instead of the text of one file.
OPEN_FILES_SECTION = "open"  # size of /proc/PID/fd: the number of open descriptors since Linux 6.2
FILE_LIMIT_SECTION = "allowed"  # the descriptor limit in /proc/PID/limits
PSS_SECTION = "pss"  # the proportional set size in /proc/PID/smaps_rollup, readable by root


@dataclass(frozen=True)
class ServiceProcesses:
    """The processes of one service.

    ``workers`` is the number of processes without masters. ``cpu`` is the CPU time in seconds since the
    processes started, including exited children. ``main_cpu`` excludes all processes that another process
    of the service started. ``scheduling_delay`` is the time in seconds that the processes waited for a
    CPU. ``max_rss`` is the size of the largest process in bytes. ``max_pss`` is the largest proportional
    set size (PSS) in bytes, or ``None`` if unknown. ``descriptors`` is the largest number of open
    descriptors of one process.
    """

    workers: int = 0
    running: int = 0
    threads: int = 0
    cpu: float = 0.0
    scheduling_delay: float | None = None
    max_rss: int = 0
    descriptors: int | None = None
    descriptor_limit: int | None = None
    max_pss: int | None = None
    main_cpu: float | None = None


@dataclass(frozen=True)
class ProcessOwners:
    """Rules that assign processes to services: by session for private processes, otherwise by program.

    ``programs`` contains names as in ``/proc/PID/comm``, which Linux cuts to 15 characters. ``groups``
    contains the same mapping for each control group, for services whose processes the program alone does
    not show. A control group is any unique part of its path.
    """

    sessions: Mapping[int, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def find_owner(self, process: ProcessStat, group_paths: str = "") -> str | None:
        """Return the service of a process, or ``None``. ``group_paths`` is the text of
        ``/proc/PID/cgroup``.
        """
        if self.sessions:
            return self.sessions.get(process.session)
        name = self.programs.get(process.program)
        if name is None or not self.groups:
            return name
        for group, programs in self.groups.items():
            if group in group_paths:
                return programs.get(process.program)
        # A process outside of all groups belongs to another program, unless the group is unknown.
        has_group = any(name in programs.values() for programs in self.groups.values())
        return None if has_group else name


@dataclass(frozen=True)
class ProcessStat:
    """One line of ``/proc/PID/stat``, with times in seconds and sizes in bytes.

    ``children_cpu`` is the CPU time of exited children.
    """

    pid: int
    program: str
    state: str
    parent: int
    session: int
    cpu: float
    children_cpu: float
    threads: int
    rss: int


def parse_process_stat(text: str, page_bytes: int = PAGE_BYTES) -> ProcessStat | None:
    """Parse a line of ``/proc/PID/stat``. Fields are counted from the last parenthesis, because a
    program's name may contain any text.
    """
    head, _, stat_tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = stat_tail.split()
    if len(fields) < 22 or not is_uint(pid):
        return None
    user, system, ended_user, ended_system = (
        parse_uint(ticks) / TICKS_PER_SECOND for ticks in fields[11:15]
    )
    return ProcessStat(
        pid=parse_uint(pid),
        program=name,
        state=fields[0],
        parent=parse_uint(fields[1]),
        session=parse_uint(fields[3]),
        cpu=user + system,
        children_cpu=ended_user + ended_system,
        threads=parse_uint(fields[17]),
        rss=parse_uint(fields[21], page_bytes),
    )


def sum_by_service(
    text_by_path: Mapping[str, str], owners: ProcessOwners
) -> dict[str, ServiceProcesses]:
    """Return the sums over each service's processes, from files that were read at the same time."""
    processes_by_service: dict[str, list[tuple[ProcessStat, str]]] = {}
    page_size = text_by_path.get(PAGE_SIZE_SECTION, "")
    page_bytes = parse_uint(page_size) if is_uint(page_size) else PAGE_BYTES
    for path, text in text_by_path.items():
        directory = path.removesuffix("/stat")
        if directory in (path, "/proc"):
            continue
        if (process := parse_process_stat(text, page_bytes)) and (
            name := owners.find_owner(process, text_by_path.get(f"{directory}/cgroup", ""))
        ):
            processes_by_service.setdefault(name, []).append((process, directory))
    return {
        name: _sum_processes(service_members, text_by_path)
        for name, service_members in processes_by_service.items()
    }


def _sum_processes(
    processes_with_paths: list[tuple[ProcessStat, str]], text_by_path: Mapping[str, str]
) -> ServiceProcesses:
    processes = [process for process, _ in processes_with_paths]
    parents, pids = {p.parent for p in processes}, {p.pid for p in processes}
    workers = [p for p in processes if p.pid not in parents] or processes
    schedule_times = [
        _parse_schedstat(text_by_path.get(f"{path}/schedstat", ""))
        for _, path in processes_with_paths
    ]
    cpu_delays = [times[1] for times in schedule_times if times]
    own_cpu = [*map(_compute_cpu_seconds, processes, schedule_times)]
    descriptor_counts, descriptor_limits, pss_kilobytes = (
        dict(_parse_numbers(text_by_path, OPEN_FILES_SECTION, " ")),
        dict(_parse_numbers(text_by_path, FILE_LIMIT_SECTION, ":")),
        dict(_parse_numbers(text_by_path, PSS_SECTION, ":")),
    )
    # Before Linux 6.2, the size of /proc/PID/fd is not the number of descriptors.
    fullest_process = max(
        (path for _, path in processes_with_paths),
        key=lambda path: descriptor_counts.get(f"{path}/fd", 0),
    )
    return ServiceProcesses(
        workers=len(workers),
        running=sum(p.state == "R" for p in processes),
        threads=sum(p.threads for p in workers),
        cpu=sum(own_cpu) + sum(p.children_cpu for p in processes),
        scheduling_delay=sum(cpu_delays) if cpu_delays else None,
        max_rss=max(p.rss for p in processes),
        max_pss=_find_max_pss([path for _, path in processes_with_paths], pss_kilobytes),
        descriptors=descriptor_counts.get(f"{fullest_process}/fd") or None,
        descriptor_limit=descriptor_limits.get(f"{fullest_process}/limits"),
        main_cpu=sum(
            seconds
            for process, seconds in zip(processes, own_cpu, strict=True)
            if process.parent not in pids
        ),
    )


def _parse_numbers(
    text_by_path: Mapping[str, str], section: str, separator: str
) -> Iterator[tuple[str, int]]:
    """Yield the path and the number in lines such as ``path 12``, ``path:Max open files 1024 4096
    files`` or ``path:Pss: 12 kB``.
    """
    for line in split_lines(text_by_path.get(section, "")):
        path, _, number_text = line.partition(separator)
        words = number_text.removeprefix("Max open files").removeprefix("Pss:").split()
        if words and is_uint(words[0]):
            yield path, parse_uint(words[0])


def _find_max_pss(directories: Sequence[str], kilobytes: Mapping[str, int]) -> int | None:
    """Return the largest proportional set size in bytes, or ``None`` if most sizes are unknown.

    Some sizes are missing if processes exit while their files are read.
    """
    pss_sizes = [kilobytes.get(f"{directory}/smaps_rollup") for directory in directories]
    readable_sizes = [pss_size for pss_size in pss_sizes if pss_size is not None]
    return 1024 * max(readable_sizes) if 2 * len(readable_sizes) > len(pss_sizes) else None


def _parse_schedstat(text: str) -> tuple[float, float] | None:
    """Return the seconds that the first thread of a process ran, and the seconds that it waited for a
    CPU.
    """
    fields = text.split()
    return (parse_uint(fields[0]) / 1e9, parse_uint(fields[1]) / 1e9) if len(fields) == 3 else None


def _compute_cpu_seconds(
    process: ProcessStat, scheduler_times: tuple[float, float] | None
) -> float:
    # The CPU time of many nearly idle processes would be zero in hundredths of a second. The
    # scheduler's nanoseconds are exact, but cover only one thread.
    return scheduler_times[0] if scheduler_times and process.threads == 1 else process.cpu
