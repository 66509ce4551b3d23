"""Data for the diagnosis of a service: counters, log, resources that can run out, and recommended
changes.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from autotune.services.base import Argv, Placement, Role, Settings

# The confidence of a rule depends on how directly the rule observes the cause.
# Two findings with the lowest confidence have less weight than one direct observation.
REPORTED, MEASURED, INFERRED, POSSIBLE = 0.95, 0.85, 0.7, 0.4
# minimum share of socket samples with waiting connections; a smaller share is only a short burst
MIN_QUEUED_FRACTION = 0.25
# A CPU, a link or a pool counts as full if on average at least this share of it is in use. Bursts use
# the rest.
FULL_FRACTION = 0.90
# A pool of workers counts as full if at least this share is busy. The share is low because there is
# only one sample per second.
BUSY_FRACTION = 0.75
QUERIES_OUTSIDE_LOAD = 2  # each server is queried once before the load and once after it
# With fewer waiting connections per worker, a request is delayed by less than a tenth of its
# duration (Little's law).
NEGLIGIBLE_WAITING = 0.1
# accepted requests per worker; above this ratio, requests wait inside multi-threaded workers
CROWDED_RATIO = 1.25
# Names of counters for servers that report the states of their workers: busy workers, and workers
# that wait for the next request on a connection.
BUSY_WORKERS, KEEPALIVE_WORKERS = "working", "kept"
# Name under which rules find the number of correct responses among a service's counters.
ANSWERED_REQUESTS = "answered_requests"


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
    HANDSHAKES = "handshakes"  # each request comes over a new connection
    UPSTREAM_HANDSHAKES = (
        "upstream handshakes"  # each request opens a new connection to the next tier
    )
    WRONG_ANSWERS = "answers"  # no resource is short, but a host returns wrong responses


@dataclass(frozen=True)
class InstanceActivity:
    """The activity of a service on a host during a reading.

    ``cpu`` is the number of CPUs in use, and ``main_cpu`` the number without processes that another
    process of the service started. ``cpu_delay`` is how long, in seconds per second, the service's
    processes were runnable without getting a CPU. ``waiting_connections`` and
    ``accepted_connections`` are the mean numbers of connections at the service's socket.
    ``queued_fraction`` is the share of samples with waiting connections, and
    ``accepted_when_queued`` the mean number of accepted connections in those samples. If a server
    reports the states of its workers, ``accepted_connections`` is the mean number of busy workers,
    and ``accepted_when_queued`` is the maximum. ``unread_connections`` is the mean number of
    accepted connections whose request no worker has read. ``answered_queries`` and ``unanswered_queries``
    count the successful and failed queries of the service's counters. ``refusal`` describes how the
    service refused a query.
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
    main_cpu: float | None = None
    cpu_delay: float | None = None
    rss: int = 0
    descriptors: int | None = None
    descriptor_limit: int | None = None
    waiting_connections: float = 0.0
    max_waiting: int = 0
    backlog: int | None = None
    accepted_connections: float = 0.0
    unread_connections: float = 0.0
    queued_fraction: float = 0.0
    accepted_when_queued: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)
    answered_queries: int = 0
    unanswered_queries: int = 0
    refusal: str | None = None
    log_complaints: Mapping[str, int] = field(default_factory=dict)
    fault: str | None = None

    @property
    def label(self) -> str:
        return f"{self.tier}.{self.service}"


@dataclass(frozen=True)
class InstanceReading:
    """One service on one host during one reading, as the input for the service's rules.

    ``settings`` are the service's own settings by bare name. ``failed_requests`` counts failed
    requests, and ``errors_dominate`` is true if failed requests outnumber late requests.
    ``idle_fraction`` is the idle share of the host's CPU time, if it is known.
    ``answered_requests`` is the number of correct responses of the stack; 0 if unknown.
    """

    activity: InstanceActivity
    settings: Settings
    failed_requests: int
    errors_dominate: bool
    idle_fraction: float | None
    answered_requests: int = 0

    def get_setting(self, parameter_name: str) -> int | None:
        """Return the tuned or current value as an integer, or ``None`` if the value is not a
        number.
        """
        setting_value = self.settings.get(parameter_name)
        return int(setting_value) if isinstance(setting_value, int | float) else None

    @property
    def idle_clause(self) -> str:
        """Return a clause about the idle CPU share, to append to a sentence."""
        return (
            ""
            if self.idle_fraction is None
            else f" while {self.idle_fraction:.0%} of the CPU was idle"
        )


@dataclass(frozen=True)
class ResourceShortage:
    """A resource that ran out. ``evidence`` is one line of observations that users can verify."""

    resource: Resource
    evidence: str
    confidence: float


DiagnosisRule = Callable[[InstanceReading], ResourceShortage | None]


@dataclass(frozen=True, kw_only=True)
class CounterQuery:
    """How to query a server's counters, through a socket or with a command, and how to parse the
    reply.

    ``counter_names`` are the numeric counters, and ``level_names`` are counters that both rise and
    fall. ``parse_counters`` parses a reply that is not in the common format of names and numbers.
    ``is_local_only`` is true if only the server's own host may query the counters and an open
    connection would occupy a worker. ``find_socket`` returns the Unix socket that is used instead
    of the port: a path, or a name in the working directory. ``interval_seconds`` is the interval at
    which the command runs during a reading; if it is 0, the command runs only before and after the
    reading. ``refusal_pattern`` matches the error of a server that reached its limit of clients.
    """

    request: bytes
    is_complete: Callable[[bytes], bool]
    build_command: Callable[[Placement], Argv]
    counter_names: frozenset[str]
    level_names: frozenset[str]
    parse_counters: Callable[[str], Mapping[str, float]] = lambda _: {}
    is_local_only: bool = False
    interval_seconds: float = 0.0
    find_socket: Callable[[Placement], str] | None = None
    refusal_pattern: re.Pattern[str] | None = None


# For servers whose port serves only clients. Their counters can be read only by a command.
build_command_query = partial(
    CounterQuery,
    request=b"",
    is_complete=lambda _: True,
    counter_names=frozenset(),
    is_local_only=True,
)


@dataclass(frozen=True)
class ClientLimit:
    """The parameter that limits how many clients a server has.

    ``refused_counter`` counts rejected connections, and ``closed_counter`` counts pauses in accepting
    connections. ``refused_counter`` and ``closed_counter`` name a counter or a kind of log message.
    ``queues_excess`` is true if clients beyond the limit wait. ``alternative_advice`` names other
    changes that help.
    """

    parameter: str
    refused_counter: str
    closed_counter: str = ""
    queues_excess: bool = False
    alternative_advice: str = ""


@dataclass(frozen=True)
class LookupCounters:
    """The names of a cache's lookup counters, and of the parameter for its size.

    ``evictions`` counts items that were removed for lack of space; "" if the cache does not count
    evictions.
    """

    gets: str
    hits: str
    misses: str
    evictions: str = ""
    size_parameter: str = ""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All data for the diagnosis of a service. ``None`` means that the data are not available.

    ``find_log`` returns the path of the service's error log, or the systemd unit whose journal contains
    the log. ``complaint_patterns`` maps kinds of log messages to patterns, in addition to the patterns
    for all services. ``recommended_changes`` maps resources to changes: a parameter with a direction
    (``backlog+``), or with a value (``pm=static``). Changes to a host service help any service on that
    host. Changes that reduce CPU work in one service help all services in its tier.
    ``threads_parameter`` is the parameter for the number of threads that do all of the service's work.
    ``forks_helpers`` is true if these threads belong to the main process, and other processes only help,
    for example by writing a snapshot.
    ``accepts_early`` is true if the service accepts connections before a worker is free to read the
    requests. ``kept_connections`` contains the boolean parameter that keeps connections to the
    application open, and the parameter for the maximum number of idle connections per worker.
    ``refusal_rules`` detect rejected requests, ``worker_rules`` detect busy workers, and
    ``cache_rules`` detect a cache that is too small. ``minor_rules`` detect shortages that cost little,
    so they apply only if no other rule explains the reading.
    """

    counter_query: CounterQuery | None
    find_log: Callable[[Placement], str | None] | None
    recommended_changes: Mapping[Resource, tuple[str, ...]]
    complaint_patterns: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    threads_parameter: str = ""
    forks_helpers: bool = False
    accepts_early: bool = False
    kept_connections: tuple[str, str] = ("", "")
    client_limit: ClientLimit | None = None
    lookup_counters: LookupCounters | None = None
    refusal_rules: tuple[DiagnosisRule, ...] = ()
    worker_rules: tuple[DiagnosisRule, ...] = ()
    cache_rules: tuple[DiagnosisRule, ...] = ()
    minor_rules: tuple[DiagnosisRule, ...] = ()


def parse_parameter(change: str) -> str:
    """Return the bare name of the parameter in a recommended change, such as ``backlog+``."""
    return change.partition("=")[0].rstrip("+-")


EMPTY_DIAGNOSIS = Diagnosis(counter_query=None, find_log=None, recommended_changes={})


def build_counter_rule(
    counter: str, explanation: str, resource: Resource = Resource.WORKERS
) -> DiagnosisRule:
    """Return a rule for a counter, or a kind of log message, that by itself shows which resource
    ran out.

    The evidence consists of the count and ``explanation``.
    """

    def rule(reading: InstanceReading) -> ResourceShortage | None:
        activity = reading.activity
        count = int(activity.counters.get(counter, 0)) or activity.log_complaints.get(counter, 0)
        return ResourceShortage(resource, f"{count} {explanation}", MEASURED) if count else None

    return rule


CounterValues = Mapping[str, float]  # counters and numeric settings; a missing name counts as 0


def build_evidence_rule(
    resource: Resource,
    confidence: float,
    is_exhausted: Callable[[CounterValues], object],
    format_evidence: Callable[[CounterValues], str],
) -> DiagnosisRule:
    """Return a rule that reports ``resource`` if ``is_exhausted`` is true for the counters."""

    def rule(reading: InstanceReading) -> ResourceShortage | None:
        numeric_settings = {
            name: value
            for name, value in reading.settings.items()
            if isinstance(value, int | float)
        }
        all_values = {
            **numeric_settings,
            **reading.activity.counters,
            ANSWERED_REQUESTS: float(reading.answered_requests),
        }
        counter_values = defaultdict(float, all_values)
        return (
            ResourceShortage(resource, format_evidence(counter_values), confidence)
            if is_exhausted(counter_values)
            else None
        )

    return rule


def build_ratio_rule(
    counter: str,
    reference_counter: str,
    min_share: float,
    min_count: int,
    resource: Resource,
    event_text: str,
    advice: str,
) -> DiagnosisRule:
    """Return a rule that applies if ``counter`` is at least ``min_count``, and its ratio to
    ``reference_counter`` is at least ``min_share``.
    """
    return build_evidence_rule(
        resource,
        INFERRED,
        lambda c: c[counter] >= max(min_count, min_share * c[reference_counter]),
        lambda c: (
            f"{c[counter]:.0f} {event_text}, {reference_counter} {c[reference_counter]:.0f}: {advice}"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class WorkerPool:
    """A pool of workers, each of which handles one request at a time.

    ``processes_parameter`` and ``threads_parameter`` (per process) are the parameters that limit
    the number of workers. ``increase_advice`` helps if all workers are running,
    ``faster_start_advice`` if workers start on demand but too slowly, and ``keepalive_advice`` if
    keep-alive connections occupy workers. ``answers_queries`` is true if status queries occupy a
    worker. ``log_complaint`` contains the kind and the text of the log message about an exhausted
    pool.
    """

    processes_parameter: str
    threads_parameter: str = ""
    worker_noun: str = "workers"
    increase_advice: str
    faster_start_advice: str = ""
    keepalive_advice: str = ""
    answers_queries: bool = False
    log_complaint: tuple[str, str] = ("", "")

    def detect_exhaustion(self, reading: InstanceReading) -> ResourceShortage | None:
        """Return a shortage if all workers are busy and requests wait, at the socket or in worker
        threads.
        """
        activity = reading.activity
        threads_per_process = reading.get_setting(self.threads_parameter) or 1
        max_processes = reading.get_setting(self.processes_parameter) or activity.workers
        max_workers = max_processes * threads_per_process
        available_workers = (
            min(activity.workers * threads_per_process, max_workers)
            if self.faster_start_advice
            else max_workers
        )
        busy_text, confidence = self._find_busy_evidence(activity, available_workers, max_workers)
        if not confidence and threads_per_process > 1:
            busy_text, confidence = _find_crowded_evidence(activity, max_workers)
        if not (activity.workers and confidence):
            return None
        advice = (
            self.keepalive_advice
            if activity.counters.get(KEEPALIVE_WORKERS, 0.0) > 0.5 * available_workers
            else self.increase_advice
        )
        if available_workers < FULL_FRACTION * max_workers:
            advice = f"they start too slowly: {self.faster_start_advice}"
        evidence = (
            f"{busy_text} of {available_workers} {self.worker_noun}, {max_workers} allowed, and "
            f"{activity.waiting_connections:.0f}"
            " connections waited at the socket (up to "
            f"{activity.max_waiting}){reading.idle_clause}: {advice}"
        )
        return ResourceShortage(Resource.WORKERS, evidence, confidence)

    def _find_busy_evidence(
        self, activity: InstanceActivity, running_workers: int, max_workers: int
    ) -> tuple[str, float]:
        """Return the evidence that no worker is free, and its confidence, which is 0 if a worker
        may be free.
        """
        idle_connections = activity.counters.get(KEEPALIVE_WORKERS, 0.0)
        if activity.queued_fraction < MIN_QUEUED_FRACTION:
            return "", 0.0
        if self.log_complaint[0] in activity.log_complaints:
            return f"“{self.log_complaint[1]}” in its log", REPORTED
        if self.answers_queries and activity.unanswered_queries:
            return f"none free to report its state, {activity.unanswered_queries} times,", MEASURED
        if activity.accepted_when_queued + idle_connections >= BUSY_FRACTION * running_workers:
            keepalive_text = (
                f" and {idle_connections:.0f} held by idle keep-alive connections"
                if idle_connections
                else ""
            )
            return f"{round(activity.accepted_when_queued, 1):g} busy{keepalive_text}", MEASURED
        # The kernel does not show which connections to a TCP port the server has accepted, and a
        # truncated reading ends before the next query. A free worker accepts connections
        # immediately, provided that it gets CPU time.
        is_unobserved = (
            activity.answered_queries <= QUERIES_OUTSIDE_LOAD
            if activity.answered_queries
            else not activity.accepted_when_queued
        )
        if (
            is_unobserved
            and running_workers >= FULL_FRACTION * max_workers
            and activity.waiting_connections >= NEGLIGIBLE_WAITING * running_workers
        ):
            return "none free", INFERRED
        return "", 0.0


def _find_crowded_evidence(activity: InstanceActivity, max_workers: int) -> tuple[str, float]:
    """Return the evidence that more requests were accepted than there are threads, and its
    confidence, which is 0 if a thread may be free.
    """
    if activity.accepted_connections >= CROWDED_RATIO * max_workers:
        return f"{activity.accepted_connections:.1f} requests for all", INFERRED
    if activity.unread_connections >= (CROWDED_RATIO - 1.0) * max_workers:
        return f"{activity.unread_connections:.1f} accepted requests waited for one", INFERRED
    return "", 0.0
