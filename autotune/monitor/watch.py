"""Watching every host while a reading runs: nothing here can fail a reading or load a host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from autotune.deploy.private_servers import PID_SUFFIX
from autotune.deploy.stack import Part, Stack
from autotune.monitor.counters import CounterReader, Counters, query_of
from autotune.monitor.process_table import Owners
from autotune.monitor.sample import Sample
from autotune.monitor.samplers import LocalSampler
from autotune.monitor.server_log import LogPosition, complaints, log_of, position, since
from autotune.monitor.stream import Stream
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport

INTERVAL = 0.25  # seconds between samples of this machine: queues come and go
SHARE = 0.005  # of one CPU that sampling may take: what costs more is done less often
CREDIT = 0.005  # CPU seconds: a reading that is cut short is over before its share would allow much
PROCESSES_EVERY = 1.0  # seconds: there may be hundreds
COUNTERS_EVERY = 1.0  # seconds
PATIENCE = 3.0  # seconds that a host's last look may take to arrive
_COMM = 15  # letters the kernel keeps of a program's name
T = TypeVar("T")


@dataclass(frozen=True)
class WatchedHost:
    """A host, the CPUs it may use, the parts of the stack on it, and the way to it (``None``: it is
    this machine)."""

    name: str
    cpus: float
    parts: tuple[Part, ...]
    transport: Transport | None = None


@dataclass(frozen=True)
class Observations:
    """All that was seen during one reading: samples and CPU seconds taken by host, counters and
    complaints by part; and, by part, ``faults`` of those that answer wrong even at rest."""

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, tuple[Counters | None, ...]] = field(default_factory=dict)
    complaints: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)


def hosts_of(
    stack: Stack, cpus: Mapping[str, float], transports: Mapping[str, Transport | None]
) -> tuple[WatchedHost, ...]:
    """The hosts of a stack; one without a transport, or with a local one, is this machine."""
    names = dict.fromkeys(part.site.host for part in stack.parts)
    return tuple(
        WatchedHost(
            name,
            cpus[name],
            tuple(part for part in stack.parts if part.site.host == name),
            None if isinstance(transports.get(name), LocalTransport) else transports.get(name),
        )
        for name in names
    )


class Watch:
    """``with Watch(hosts, seconds) as watch: reading = take(…)``, then ``watch.seen``.

    ``seconds`` is how long the reading is going to take at most. Leaving tells the streams of other
    hosts to end with one last look; one that does not come within ``PATIENCE`` is done without.
    Whatever goes wrong is listed in ``seen.failures``.
    """

    def __init__(self, hosts: Sequence[WatchedHost], seconds: float) -> None:
        self._hosts, self._seconds = hosts, max(1, round(seconds))
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._streams: dict[str, Stream] = {}
        self._logs: dict[str, tuple[Part, LogPosition]] = {}
        self._samples: dict[str, tuple[Sample, ...]] = {}
        self._cost: dict[str, float] = {}
        self._counters: dict[str, list[Counters | None]] = {}
        self._complaints: dict[str, Mapping[str, int]] = {}
        self._failures: list[str] = []

    def __enter__(self) -> Self:
        elsewhere = [host for host in self._hosts if host.transport is not None]
        for host in self._hosts:
            if host.transport is None:
                self._guarded(self._note_logs, host)
                self._start(self._sample_here, host)
            else:
                # Known from here on, so that leaving at once still tells it to end.
                self._guarded(self._prepare, (host, elsewhere.index(host) / len(elsewhere)))
                if host.name in self._streams:
                    self._start(self._sample_there, host)
        for host in self._hosts:
            for part in host.parts:
                if query_of(part):
                    self._start(self._count, (part, host.transport))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for stream in list(self._streams.values()):
            self._start(_stop, stream)
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for host in self._streams:
            self._failures.append(f"{host} did not tell in time what it saw")
        for part, begun in self._logs.values():
            self._guarded(self._read_log, (part, begun))

    @property
    def seen(self) -> Observations:
        counters = {part: tuple(found) for part, found in self._counters.items()}
        return Observations(
            dict(self._samples),
            dict(self._cost),
            counters,
            dict(self._complaints),
            tuple(self._failures),
        )

    def _start(self, act: Callable[[T], None], what: T) -> None:
        thread = threading.Thread(target=self._guarded, args=(act, what), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, act: Callable[[T], None], what: T) -> None:
        try:
            act(what)
        except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the reading
            self._failures.append(f"{act.__name__.strip('_')}: {type(error).__name__}: {error}")

    def _sample_here(self, host: WatchedHost) -> None:
        sampler = LocalSampler(owners(host))
        begun = due = time.monotonic()
        try:
            while not self._over.is_set():
                now = time.monotonic()
                full = now >= due
                if full:
                    due = now + PROCESSES_EVERY
                sampler.look(processes=full)
                self._over.wait(max(INTERVAL, pause(sampler.cost, now - begun)))
            sampler.look(processes=True)
        finally:
            self._samples[host.name], self._cost[host.name] = sampler.samples(), sampler.cost

    def _prepare(self, what: tuple[WatchedHost, float]) -> None:
        host, later = what
        assert host.transport is not None
        logs = tuple(dict.fromkeys(log for part in host.parts if (log := log_of(part))))
        self._streams[host.name] = Stream(host.transport, owners(host), self._seconds, logs, later)

    def _sample_there(self, host: WatchedHost) -> None:
        try:
            found = self._streams[host.name].run()
        finally:
            del self._streams[host.name]
        self._samples[host.name], self._cost[host.name] = found.samples, found.cost
        for part in host.parts:
            if log := log_of(part):
                self._complaints[part.name] = complaints(found.logs.get(log, ""), part)

    def _count(self, what: tuple[Part, Transport | None]) -> None:
        part, transport = what
        reader = CounterReader(part, transport)
        found = self._counters.setdefault(part.name, [])
        try:
            found.append(reader.read(by_command=True))
            while not self._over.wait(COUNTERS_EVERY):
                if reader.cheap:
                    found.append(reader.read())
            found.append(reader.read(by_command=True))
        finally:
            reader.close()

    def _note_logs(self, host: WatchedHost) -> None:
        for part in host.parts:
            if path := log_of(part):
                self._logs[part.name] = part, position(path)

    def _read_log(self, what: tuple[Part, LogPosition]) -> None:
        part, begun = what
        self._complaints[part.name] = complaints(since(begun), part)


def _stop(stream: Stream) -> None:
    stream.stop()


def pause(cost: float, elapsed: float) -> float:
    """Seconds until ``cost`` CPU seconds of sampling are no more than its share of the time since
    it began, ``elapsed`` seconds ago, and the credit it starts with."""
    return (cost - CREDIT) / SHARE - elapsed


def owners(host: WatchedHost) -> Owners:
    """Private processes are known by the session that their recorded leader began; those of the
    distribution's units by the names of their programs."""
    sessions: dict[int, str] = {}
    programs: dict[str, str] = {}
    for part in host.parts:
        record = Path(part.site.directory) / f"{part.service.name}{PID_SUFFIX}"
        if host.transport is None and record.exists():
            sessions[int(record.read_text())] = part.name
        for alternatives in part.service.programs.values():
            programs |= {Path(program).name[:_COMM]: part.name for program in alternatives}
    return Owners(sessions, programs)
