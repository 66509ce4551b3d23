"""Diagnosis data of a service: counters, log, resources that can run out, and recommended moves."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from autotune.services.base import Argv, Role, Settings, Site

# Confidence of a rule by how directly it observes the cause.
TOLD, MEASURED, INFERRED = 0.95, 0.85, 0.7
QUEUED = 0.25  # share of socket samples with waiting connections; less is a burst
FULL = 0.90  # share of a CPU, a link or a pool; bursts use the rest
BUSY = 0.75  # share of a pool's workers, which are sampled once per second
AROUND = 2  # queries of a server in any reading: before and after the load
# Waiting connections per worker that add less than a tenth of a request's time (Little's law).
FLEETING = 0.1
CROWDED = 1.25  # accepted requests per worker; threaded workers accept waiting requests
# Counter names for servers that report worker states: busy workers, and workers that wait for the
# next request of a connection.
WORKING, KEPT = "working", "kept"


class Resource(enum.StrEnum):
    """A resource that can run out."""

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
    ANSWERS = "answers"  # no resource is short: a host returns wrong answers


@dataclass(frozen=True)
class PartActivity:
    """Activity of a service on a host over a reading.

    ``cpu`` is in CPUs. ``delay`` is the time (s/s) that its processes were runnable without a CPU.
    ``waiting`` and ``accepted`` are mean connections at its socket. ``queued`` is the share of
    samples with waiting connections, and ``occupied`` the mean accepted in those samples. If a
    server reports its workers, ``accepted`` is the mean number of busy workers, and ``occupied``
    the largest. ``answers`` and ``unanswered`` count successful and failed queries of its counters.
    ``refused`` is the refusal.
    """

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
    """One service on one host during one reading, as input of the service's rules.

    ``settings`` are its own by bare name. ``failed`` counts failed requests, and ``mostly_errors``
    is true if they outnumber late ones. ``idle`` is the idle share of the host's CPU time, if
    known.
    """

    activity: PartActivity
    settings: Settings
    failed: int
    mostly_errors: bool
    idle: float | None

    def setting(self, name: str) -> int | None:
        """Return the tuned or current value as a whole number, or ``None`` for other types."""
        value = self.settings.get(name)
        return int(value) if isinstance(value, int | float) else None

    @property
    def meanwhile(self) -> str:
        """Return the idle CPU share as the end of a sentence."""
        return "" if self.idle is None else f" while {self.idle:.0%} of the CPU was idle"


@dataclass(frozen=True)
class Finding:
    """A resource that ran out. ``evidence`` is one verifiable line."""

    resource: Resource
    evidence: str
    confidence: float


Rule = Callable[[PartReading], Finding | None]


@dataclass(frozen=True, kw_only=True)
class CounterQuery:
    """How to query a server's counters, at a socket and by a command, and parse its response.

    ``names`` are the numeric counters, ``levels`` those that rise and fall. ``more`` parses
    counters in other formats. ``at_home`` is true if only its own host may query it and an open
    connection would occupy a worker. ``socket`` is the unix socket used instead of the port, as a
    path or a name in the site's directory. ``every`` is the interval of the command in seconds
    during a reading; with 0 it runs only before and after.
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


# For servers that only a command can query, because their port serves clients.
by_command = partial(
    CounterQuery, question=b"", complete=lambda _: True, names=frozenset(), at_home=True
)


@dataclass(frozen=True)
class ClientLimit:
    """The parameter that limits a server's clients.

    ``refused`` and ``closed`` are counters or kinds of complaints: rejected connections, and pauses
    in accepting. ``queues`` is true if clients beyond the limit wait. ``instead`` is text that
    names other moves.
    """

    parameter: str
    refused: str
    closed: str = ""
    queues: bool = False
    instead: str = ""


@dataclass(frozen=True)
class Lookups:
    """Names of a cache's lookup counters."""

    gets: str
    hits: str
    misses: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All diagnosis data of a service. ``None`` means not available.

    ``log`` returns the path of its error log, or the systemd unit of its journal. ``complaints``
    are patterns of log lines by kind, in addition to the common ones. ``moves`` are recommended by
    resource: parameters with a direction (`+` more, `-` less), or a choice. Moves of a host service
    help any service on that host. Less work for the CPU in a service helps all services of its
    tier. ``threads`` is the parameter for the number of threads that do all its work.
    ``refusal_rules`` detect rejected requests, ``worker_rules`` occupied workers, and ``cache_rules``
    a cache that is too small.
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
    """Return a rule for a counter, or a kind of complaint, that shows by itself what ran out.

    Its evidence is the count and ``why``.
    """

    def rule(part: PartReading) -> Finding | None:
        activity = part.activity
        number = int(activity.counters.get(kind, 0)) or activity.complaints.get(kind, 0)
        return Finding(resource, f"{number} {why}", MEASURED) if number else None

    return rule


Counts = Mapping[str, float]  # counters and numeric settings; missing names are 0


def evident(
    resource: Resource,
    confidence: float,
    holds: Callable[[Counts], object],
    evidence: Callable[[Counts], str],
) -> Rule:
    """Return a rule for counters that show what ran out if ``holds`` is true."""

    def rule(part: PartReading) -> Finding | None:
        numbers = {k: v for k, v in part.settings.items() if isinstance(v, int | float)}
        counts = defaultdict(float, {**numbers, **part.activity.counters})
        return Finding(resource, evidence(counts), confidence) if holds(counts) else None

    return rule


def frequent(
    counter: str, of: str, share: float, least: int, resource: Resource, what: str, move: str
) -> Rule:
    """Return a rule for a counter of at least ``least`` and at least ``share`` of the counter
    ``of``.
    """
    return evident(
        resource,
        INFERRED,
        lambda c: c[counter] >= max(least, share * c[of]),
        lambda c: f"{c[counter]:.0f} {what}, {of} {c[of]:.0f}: {move}",
    )


@dataclass(frozen=True, kw_only=True)
class WorkerPool:
    """A pool of workers that each handle one request.

    ``processes`` and ``threads`` (per process) are the parameters that limit their number. ``more``
    helps if all run, ``sooner`` if they start on demand but too slowly, ``let_go`` if kept
    connections occupy them. ``asked`` is true if a worker answers state queries. ``logged``
    contains the kind of complaint for an exhausted pool, and its text.
    """

    processes: str
    threads: str = ""
    called: str = "workers"
    more: str
    sooner: str = ""
    let_go: str = ""
    asked: bool = False
    logged: tuple[str, str] = ("", "")

    def taken(self, part: PartReading) -> Finding | None:
        """Return a finding if all workers are busy and requests wait, at the socket or in worker
        threads.
        """
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
            move = f"they start too slowly: {self.sooner}"
        evidence = (
            f"{busy} of {there} {self.called}, {most} allowed, and {activity.waiting:.0f}"
            f" connections waited at the socket (up to {activity.waiting_max}){part.meanwhile}: {move}"
        )
        return Finding(Resource.WORKERS, evidence, confidence)

    def _busy(self, activity: PartActivity, there: int, most: int) -> tuple[str, float]:
        """Return the evidence that no worker is free, and its confidence, or 0 if one may be free."""
        kept = activity.counters.get(KEPT, 0.0)
        if activity.queued < QUEUED:
            return "", 0.0
        if self.logged[0] in activity.complaints:
            return f"“{self.logged[1]}” in its log", TOLD
        if self.asked and activity.unanswered:
            return f"none free to report its state, {activity.unanswered} times,", MEASURED
        if activity.occupied + kept >= BUSY * there:
            held = f" and {kept:.0f} held by kept connections" if kept else ""
            return f"{round(activity.occupied, 1):g} busy{held}", MEASURED
        # A TCP port does not show accepted connections, and a truncated reading ends before the
        # next query. A free worker accepts immediately if it gets CPU time.
        unseen = activity.answers <= AROUND if activity.answers else not activity.occupied
        if unseen and there >= FULL * most and activity.waiting >= FLEETING * there:
            return "none free", INFERRED
        return "", 0.0
