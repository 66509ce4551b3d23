"""What diagnosing needs of a service: its counters, its log, what it can run out of, what helps."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from autotune.services.base import Argv, Role, Settings, Site

# How directly a rule sees its cause.
TOLD, MEASURED, INFERRED = 0.95, 0.85, 0.7
QUEUED = 0.25  # of the looks at a socket that found connections waiting: less is a burst
FULL = 0.90  # of a CPU, a link, a pool: what is left over is lost to bursts
BUSY = 0.75  # of the workers of a pool, which are looked at once a second
AROUND = 2  # times a server is asked in any reading: before there is load and after
# Waiting connections per worker: they add less than a tenth of a request's time (Little's law).
FLEETING = 0.1
CROWDED = 1.25  # requests accepted per worker: those with threads accept what waits for one
# Names of counters for servers that show what their workers do: workers with a request in hand, and
# workers kept for the next request of a connection.
WORKING, KEPT = "working", "kept"


class Resource(enum.StrEnum):
    """What can run out."""

    CPU = "cpu"
    WORKERS = "workers"
    CONNECTIONS = "connections"
    DESCRIPTORS = "descriptors"
    MEMORY = "memory"
    NETWORK = "network"
    STORE = "store"
    LOCKS = "locks"
    DISK = "disk"
    CACHE = "cache"
    GENERATOR = "generator"
    ANSWERS = "answers"  # no resource is short: a host gives wrong answers


@dataclass(frozen=True)
class PartActivity:
    """A service on a host over a reading: ``cpu`` in CPUs; ``delay`` seconds/s its processes were
    runnable and had no CPU; ``waiting`` and ``accepted`` the mean connections at its socket;
    ``queued`` the fraction of looks that found some waiting; ``occupied`` the mean accepted in those
    looks. For a server that shows what its workers do, ``accepted`` is the mean number of workers with
    a request in hand, and ``occupied`` the largest. ``answers`` and ``unanswered`` count the requests
    for its counters with and without an answer; ``refused`` is the refusal it gave instead."""

    name: str
    tier: str
    host: str
    service: str
    role: Role
    runs_application: bool = False
    workers: int = 0
    threads: int = 0
    cpu: float = 0.0
    delay: float | None = None
    rss: int = 0
    descriptors: int | None = None
    descriptor_limit: int | None = None
    waiting: float = 0.0
    waiting_max: int = 0
    backlog: int | None = None
    accepted: float = 0.0
    queued: float = 0.0
    occupied: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)
    answers: int = 0
    unanswered: int = 0
    refused: str | None = None
    complaints: Mapping[str, int] = field(default_factory=dict)
    fault: str | None = None

    @property
    def label(self) -> str:
        return f"{self.tier}.{self.service}"


@dataclass(frozen=True)
class PartReading:
    """One service on one host during one reading: what the service's own rules look at.

    ``settings`` are its own, by their bare names; ``failed`` the requests that failed in the reading,
    and ``mostly_errors`` whether they are more than the late ones; ``idle`` the fraction of its
    host's CPU time that nobody used, where known.
    """

    activity: PartActivity
    settings: Settings
    failed: int
    mostly_errors: bool
    idle: float | None

    def setting(self, name: str) -> int | None:
        """The value tuned or in place, where it is a whole number."""
        value = self.settings.get(name)
        return int(value) if isinstance(value, int | float) else None

    @property
    def meanwhile(self) -> str:
        """The idle share of the CPU, as the end of a sentence about what was busy."""
        return "" if self.idle is None else f" while {self.idle:.0%} of the CPU was idle"


@dataclass(frozen=True)
class Finding:
    """What a service runs out of; ``evidence`` is one line that can be checked."""

    resource: Resource
    evidence: str
    confidence: float


Rule = Callable[[PartReading], Finding | None]


@dataclass(frozen=True, kw_only=True)
class CounterQuery:
    """How a server is asked for its counters, at a socket and by a command, and how its answer is read.

    ``names`` are the numbers looked for, ``levels`` those of them that go up and down; ``more``
    reads counters that are no number behind a name. ``at_home``: it answers its own host alone, and a
    connection that stays open would occupy a worker. ``socket`` is the unix socket that it answers at
    instead of its port, by its path or its name in the site's directory. ``every``: seconds between two
    runs of the command during a reading; with 0 it runs only before and after.
    """

    question: bytes
    complete: Callable[[bytes], bool]
    command: Callable[[Site], Argv]
    names: frozenset[str]
    levels: frozenset[str]
    more: Callable[[str], Mapping[str, float]] = lambda _: {}
    at_home: bool = False
    every: float = 0.0
    socket: Callable[[Site], str] | None = None


# For a server that only a command can ask: its port, if it has one, is for its clients.
by_command = partial(
    CounterQuery, question=b"", complete=lambda _: True, names=frozenset(), at_home=True
)


@dataclass(frozen=True)
class ClientLimit:
    """The parameter that limits a server's clients; ``refused`` and ``closed`` are its counters, or kinds
    of complaints, of connections turned away and of times it stopped accepting. ``queues``: clients
    beyond the limit wait. ``instead`` is what else helps, as text behind what to raise."""

    parameter: str
    refused: str
    closed: str = ""
    queues: bool = False
    instead: str = ""


@dataclass(frozen=True)
class Lookups:
    """A cache's counters."""

    gets: str
    hits: str
    misses: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything about a service that diagnosing needs; ``None`` says that there is none.

    ``log`` gives the path of its error log, or the systemd unit whose journal has it; ``complaints``
    are patterns of lines there by kind, beside those every program writes. ``moves`` are what to
    change where a resource ran out: parameters with a direction, `+` more and `-` less, or a choice
    to take; those of a service of the host help any service on that host, and less work for the CPU in
    any service of a tier helps all of them. ``threads`` is the
    parameter that says how many threads do all its work. ``refusal_rules`` detect that it turned
    requests away, ``worker_rules`` that all its workers are taken, ``cache_rules`` that it forgets
    too much.
    """

    counters: CounterQuery | None
    log: Callable[[Site], str | None] | None
    moves: Mapping[Resource, tuple[str, ...]]
    complaints: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    threads: str = ""
    clients: ClientLimit | None = None
    lookups: Lookups | None = None
    refusal_rules: tuple[Rule, ...] = ()
    worker_rules: tuple[Rule, ...] = ()
    cache_rules: tuple[Rule, ...] = ()


NOTHING = Diagnosis(counters=None, log=None, moves={})


def counted(kind: str, why: str, resource: Resource = Resource.WORKERS) -> Rule:
    """A rule for a counter, or else a kind of complaint, that by itself shows what ran out. Its
    evidence is the count and ``why``."""

    def rule(part: PartReading) -> Finding | None:
        activity = part.activity
        number = int(activity.counters.get(kind, 0)) or activity.complaints.get(kind, 0)
        return Finding(resource, f"{number} {why}", MEASURED) if number else None

    return rule


Counts = Mapping[str, float]  # counters, and settings that are numbers; what is not there is 0


def evident(
    resource: Resource,
    confidence: float,
    holds: Callable[[Counts], object],
    evidence: Callable[[Counts], str],
) -> Rule:
    """A rule for counters that show what ran out where ``holds`` is true of them."""

    def rule(part: PartReading) -> Finding | None:
        numbers = {k: v for k, v in part.settings.items() if isinstance(v, int | float)}
        counts = defaultdict(float, {**numbers, **part.activity.counters})
        return Finding(resource, evidence(counts), confidence) if holds(counts) else None

    return rule


def frequent(
    counter: str, of: str, share: float, least: int, resource: Resource, what: str, move: str
) -> Rule:
    """A rule for a counter that shows what is short once it is at least ``share`` of another counter,
    ``of``, and at least ``least``."""
    return evident(
        resource,
        INFERRED,
        lambda c: c[counter] >= max(least, share * c[of]),
        lambda c: f"{c[counter]:.0f} {what}, {of} {c[of]:.0f}: {move}",
    )


@dataclass(frozen=True, kw_only=True)
class WorkerPool:
    """Workers that handle one request each: ``processes``, and ``threads`` in each of them, name the
    parameters that limit their number. ``more`` is what helps where all of them are running,
    ``sooner`` where they are started on demand, but too slowly, ``let_go`` where kept connections
    hold them. ``asked``: one of them answers when the server is asked for its state. ``logged``: the
    kind of complaint that no worker was left, and its words."""

    processes: str
    threads: str = ""
    called: str = "workers"
    more: str
    sooner: str = ""
    let_go: str = ""
    asked: bool = False
    logged: tuple[str, str] = ("", "")

    def taken(self, part: PartReading) -> Finding | None:
        """All are busy and more requests wait, at the socket or accepted by workers with threads."""
        activity, each = part.activity, part.setting(self.threads) or 1
        most = (part.setting(self.processes) or activity.workers) * each
        there = min(activity.workers * each, most) if self.sooner else most
        busy, confidence = self._busy(activity, there, most)
        if not confidence and each > 1 and activity.accepted >= CROWDED * most:
            busy, confidence = f"{activity.accepted:.1f} requests for all", INFERRED
        if not (activity.workers and confidence):
            return None
        move = self.let_go if activity.counters.get(KEPT, 0.0) > 0.5 * there else self.more
        if there < FULL * most:
            move = f"they are started too slowly: {self.sooner}"
        evidence = (
            f"{busy} of {there} {self.called}, {most} allowed; {activity.waiting:.0f} connections waited"
            f" at its socket (up to {activity.waiting_max}){part.meanwhile}: {move}"
        )
        return Finding(Resource.WORKERS, evidence, confidence)

    def _busy(self, activity: PartActivity, there: int, most: int) -> tuple[str, float]:
        """The evidence that no worker is free for what waits, and its confidence; 0 if one may be."""
        kept = activity.counters.get(KEPT, 0.0)
        if activity.queued < QUEUED:
            return "", 0.0
        if self.logged[0] in activity.complaints:
            return f"“{self.logged[1]}” in its log", TOLD
        if self.asked and activity.unanswered:
            return f"none free to tell of its state, {activity.unanswered} times,", MEASURED
        if activity.occupied + kept >= BUSY * there:
            held = f" and {kept:.0f} held by kept connections" if kept else ""
            return f"{round(activity.occupied, 1):g} busy{held}", MEASURED
        # A TCP port does not show what was accepted, and a reading cut short ends before the server was
        # asked. But a free worker accepts at once, unless the machine keeps it from running.
        unseen = activity.answers <= AROUND if activity.answers else not activity.occupied
        if unseen and there >= FULL * most and activity.waiting >= FLEETING * there:
            return "not one free", INFERRED
        return "", 0.0
