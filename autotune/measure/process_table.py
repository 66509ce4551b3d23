"""Which processes are whose: ``/proc/PID/stat`` and what stands beside it, summed by service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from autotune.measure.sample import Processes

TICKS = 100.0
PAGE = os.sysconf("SC_PAGE_SIZE")
_PID_FILE = re.compile(r"^/proc/(\d+)/(stat|schedstat|descriptors|limit)$")


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
    """One line of ``/proc/PID/stat``; times in seconds, memory in bytes."""

    pid: int
    program: str
    state: str
    parent: int
    session: int
    cpu: float
    threads: int
    rss: int


def process(text: str) -> Process | None:
    """The name stands in parentheses and may hold anything: fields count from the last one."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    if len(fields) < 22 or not pid.isdigit():
        return None
    # user, system, and those of children that ended and were waited for
    cpu = sum(int(ticks) for ticks in fields[11:15]) / TICKS
    return Process(
        pid=int(pid),
        program=name,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu=cpu,
        threads=int(fields[17]),
        rss=int(fields[21]) * PAGE,
    )


def group(texts: Mapping[str, str], owners: Owners) -> dict[str, Processes]:
    """Processes of each service among the ``/proc/PID/…`` files in ``texts``."""
    members: dict[str, list[Process]] = {}
    for found in _processes(texts):
        if name := owners.of(found):
            members.setdefault(name, []).append(found)
    return {name: _sum(processes, texts) for name, processes in members.items()}


def _processes(texts: Mapping[str, str]) -> Iterator[Process]:
    for path, text in texts.items():
        match = _PID_FILE.match(path)
        if match and match[2] == "stat" and (found := process(text)):
            yield found


def _sum(processes: list[Process], texts: Mapping[str, str]) -> Processes:
    parents = {p.parent for p in processes}
    workers = [p for p in processes if p.pid not in parents] or processes
    busiest = max(processes, key=lambda p: _number(texts, p.pid, "descriptors") or 0)
    delays = [_delay(texts.get(f"/proc/{p.pid}/schedstat", "")) for p in processes]
    return Processes(
        workers=len(workers),
        running=sum(p.state == "R" for p in processes),
        threads=sum(p.threads for p in workers),
        cpu=sum(p.cpu for p in processes),
        delay=_total(delays),
        rss=max(p.rss for p in processes),
        descriptors=_number(texts, busiest.pid, "descriptors"),
        descriptor_limit=_number(texts, busiest.pid, "limit"),
    )


def _number(texts: Mapping[str, str], pid: int, name: str) -> int | None:
    text = texts.get(f"/proc/{pid}/{name}", "").strip()
    return int(text) if text.isdigit() else None


def _delay(text: str) -> float | None:
    fields = text.split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else None


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
