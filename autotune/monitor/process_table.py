"""Which service each process belongs to: ``/proc/PID/stat`` and files beside it, summed by service."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autotune.strict import is_whole, split_lines, whole

TICKS = 100.0
PAGE = os.sysconf("SC_PAGE_SIZE")
# Sections of a stream that are not the text of one file: a line for each process.
OPEN = "open"  # /proc/PID/fd and how many descriptors are in it: as its size, since Linux 6.2
ALLOWED = "allowed"  # the line of /proc/PID/limits about them


@dataclass(frozen=True)
class Processes:
    """The processes of one service. ``workers`` leaves out masters; ``cpu`` is CPU seconds since
    they started, with those of ended children; ``delay`` is seconds they waited for a CPU; ``rss`` is
    the largest, in bytes; ``descriptors`` is the largest number open in one process."""

    workers: int = 0
    running: int = 0
    threads: int = 0
    cpu: float = 0.0
    delay: float | None = None
    rss: int = 0
    descriptors: int | None = None
    descriptor_limit: int | None = None


@dataclass(frozen=True)
class Owners:
    """How a process is known to be a service's: by the session it belongs to (private processes
    lead one each), else by the name of its program (``comm``, of which Linux keeps 15 letters)."""

    sessions: Mapping[int, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)

    def of(self, process: Process) -> str | None:
        if self.sessions:
            return self.sessions.get(process.session)
        return self.programs.get(process.program)


@dataclass(frozen=True)
class Process:
    """One line of ``/proc/PID/stat``; times in seconds, memory in bytes. ``ended`` is the CPU time of
    its children that have ended."""

    pid: int
    program: str
    state: str
    parent: int
    session: int
    cpu: float
    ended: float
    threads: int
    rss: int


def process(text: str) -> Process | None:
    """The name stands in parentheses and may hold anything: fields count from the last one."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    if len(fields) < 22 or not is_whole(pid):
        return None
    user, system, ended_user, ended_system = (whole(ticks) / TICKS for ticks in fields[11:15])
    return Process(
        pid=whole(pid),
        program=name,
        state=fields[0],
        parent=whole(fields[1]),
        session=whole(fields[3]),
        cpu=user + system,
        ended=ended_user + ended_system,
        threads=whole(fields[17]),
        rss=whole(fields[21], PAGE),
    )


def by_service(files: Mapping[str, str], owners: Owners) -> dict[str, Processes]:
    """The processes of each service, summed up, out of all files that were read at one instant."""
    members: dict[str, list[tuple[Process, str]]] = {}
    for path, text in files.items():
        directory = path.removesuffix("/stat")
        if directory in (path, "/proc"):
            continue
        if (read := process(text)) and (name := owners.of(read)):
            members.setdefault(name, []).append((read, directory))
    return {name: _sum(those, files) for name, those in members.items()}


def _sum(members: list[tuple[Process, str]], files: Mapping[str, str]) -> Processes:
    processes = [read for read, _ in members]
    parents = {p.parent for p in processes}
    workers = [p for p in processes if p.pid not in parents] or processes
    scheduled = [_scheduled(files.get(f"{path}/schedstat", "")) for _, path in members]
    delays = [times[1] for times in scheduled if times]
    opened, allowed = dict(_numbers(files, OPEN, " ")), dict(_numbers(files, ALLOWED, ":"))
    # Before Linux 6.2 the directory has no size.
    fullest = max((path for _, path in members), key=lambda path: opened.get(f"{path}/fd", 0))
    return Processes(
        workers=len(workers),
        running=sum(p.state == "R" for p in processes),
        threads=sum(p.threads for p in workers),
        cpu=sum(map(_cpu, processes, scheduled)),
        delay=sum(delays) if delays else None,
        rss=max(p.rss for p in processes),
        descriptors=opened.get(f"{fullest}/fd") or None,
        descriptor_limit=allowed.get(f"{fullest}/limits"),
    )


def _numbers(files: Mapping[str, str], name: str, between: str) -> Iterator[tuple[str, int]]:
    """``path 12`` or ``path:Max open files  1024  4096  files``: each path and its first number."""
    for line in split_lines(files.get(name, "")):
        path, _, rest = line.partition(between)
        words = rest.removeprefix("Max open files").split()
        if words and is_whole(words[0]):
            yield path, whole(words[0])


def _scheduled(text: str) -> tuple[float, float] | None:
    """Seconds that a process' first thread ran, and was ready to run, by the scheduler's account."""
    fields = text.split()
    return (whole(fields[0]) / 1e9, whole(fields[1]) / 1e9) if len(fields) == 3 else None


def _cpu(process: Process, scheduled: tuple[float, float] | None) -> float:
    # Counted in hundredths of a second, hundreds of processes that do a little each seem to do
    # nothing, so the scheduler's nanoseconds are used where there is only one thread.
    own = scheduled[0] if scheduled and process.threads == 1 else process.cpu
    return own + process.ended
