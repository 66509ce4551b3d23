"""Which processes are whose: ``/proc/PID/stat`` and what stands beside it, summed by service."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autotune.monitor.sample import Processes

TICKS = 100.0
PAGE = os.sysconf("SC_PAGE_SIZE")


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
class ProcessFiles:
    """What was read about one process: ``/proc/PID/stat`` and ``schedstat``, how many descriptors
    it has open and how many it may (``None``: not seen)."""

    stat: str
    schedstat: str = ""
    descriptors: int | None = None
    descriptor_limit: int | None = None


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
    if len(fields) < 22 or not pid.isdigit():
        return None
    user, system, ended_user, ended_system = (int(ticks) / TICKS for ticks in fields[11:15])
    return Process(
        pid=int(pid),
        program=name,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu=user + system,
        ended=ended_user + ended_system,
        threads=int(fields[17]),
        rss=int(fields[21]) * PAGE,
    )


def group(files: Iterable[ProcessFiles], owners: Owners) -> dict[str, Processes]:
    """The processes of each service, summed up."""
    members: dict[str, list[tuple[Process, ProcessFiles]]] = {}
    for read in files:
        if (found := process(read.stat)) and (name := owners.of(found)):
            members.setdefault(name, []).append((found, read))
    return {name: _sum(those) for name, those in members.items()}


def _sum(members: list[tuple[Process, ProcessFiles]]) -> Processes:
    processes = [found for found, _ in members]
    parents = {p.parent for p in processes}
    workers = [p for p in processes if p.pid not in parents] or processes
    fullest = max((read for _, read in members), key=lambda read: read.descriptors or 0)
    scheduled = [_scheduled(read.schedstat) for _, read in members]
    delays = [times[1] for times in scheduled if times]
    return Processes(
        workers=len(workers),
        running=sum(p.state == "R" for p in processes),
        threads=sum(p.threads for p in workers),
        cpu=sum(map(_cpu, processes, scheduled)),
        delay=sum(delays) if delays else None,
        rss=max(p.rss for p in processes),
        descriptors=fullest.descriptors,
        descriptor_limit=fullest.descriptor_limit,
    )


def _scheduled(text: str) -> tuple[float, float] | None:
    """Seconds that a process' first thread ran, and was ready to run, by the scheduler's account."""
    fields = text.split()
    return (int(fields[0]) / 1e9, int(fields[1]) / 1e9) if len(fields) == 3 else None


def _cpu(process: Process, scheduled: tuple[float, float] | None) -> float:
    # In whole hundredths of a second, hundreds of processes that do a little each seem to do
    # nothing: where there is but one thread the scheduler's nanoseconds are taken.
    own = scheduled[0] if scheduled and process.threads == 1 else process.cpu
    return own + process.ended
