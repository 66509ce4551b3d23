"""One reading with the activity of hosts and services: the input of the bottleneck rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.deploy.stack import Stack
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostActivity, host_activity, part_activity
from autotune.monitor.watch import Observations, WatchedHost
from autotune.parameter_name import own_settings
from autotune.services.base import Role, Settings
from autotune.services.diagnosis import PartActivity, PartReading, Resource
from autotune.services.registry import diagnosis
from autotune.target.slo import Slo


@dataclass(frozen=True)
class Bottleneck:
    """``evidence`` is one verifiable line. ``confidence`` is 0 … 1.

    The confidence is how directly the rule observed the bottleneck, times the fraction of the readings
    just above the peak that agree.
    """

    tier: str
    service: str
    host: str
    resource: Resource
    evidence: str
    confidence: float

    def __str__(self) -> str:
        return f"{self.tier}.{self.service} on {self.host}: {self.resource}: {self.evidence}"


@dataclass(frozen=True)
class ReadingContext:
    """Everything known about one reading. Pure data for the rules.

    ``fastest`` is the shortest ``floor`` of all readings with the same settings.
    """

    reading: Reading
    slo: Slo
    settings: Settings
    hosts: Mapping[str, HostActivity]
    parts: tuple[PartActivity, ...]
    fastest: float | None = None

    def of_role(self, *roles: Role) -> tuple[PartActivity, ...]:
        return tuple(part for part in self.parts if part.role in roles)

    @property
    def pools(self) -> tuple[PartActivity, ...]:
        """The processes that run the application."""
        return tuple(part for part in self.parts if part.runs_application and part.workers)

    def on(self, host: str) -> tuple[PartActivity, ...]:
        return tuple(part for part in self.parts if part.host == host)

    def setting(self, part: PartActivity, name: str) -> int | None:
        """Return a service's setting as a whole number; ``None`` if it is not a number."""
        value = self.settings.get(f"{part.label}.{name}")
        return int(value) if isinstance(value, int | float) else None

    def threads(self, part: PartActivity) -> int | None:
        """Return the number of threads that do a service's work; at least 1, even if set to 0."""
        name = diagnosis(part.service).threads
        threads = self.setting(part, name) if name else None
        return None if threads is None else max(threads, 1)

    def of_part(self, part: PartActivity) -> PartReading:
        """Return the input for the rules of the part's own service."""
        own = own_settings(self.settings, part.label)
        idle = 1.0 - self.hosts[part.host].busy if part.host in self.hosts else None
        return PartReading(part, own, self.reading.failed, self.mostly_errors, idle)

    @property
    def mostly_errors(self) -> bool:
        """True if more requests failed than were late: refusals, not slowness."""
        return self.reading.failed > (self.reading.violations - self.reading.failed)

    @property
    def answered(self) -> float:
        """Requests/s with a correct answer, late or not, over the time with load.

        In a reading that was cut short, this time is shorter than its seconds.
        """
        reading = self.reading
        seconds = min(reading.seconds, reading.intended / reading.rate) if reading.rate > 0 else 0
        return (reading.intended - reading.failed) / seconds if seconds > 0 else 0.0

    @property
    def met(self) -> bool:
        """True if the reading met the SLO."""
        return self.slo.met(self.reading)


def context_of(
    reading: Reading,
    observations: Observations,
    *,
    stack: Stack,
    hosts: tuple[WatchedHost, ...],
    settings: Settings,
    slo: Slo,
) -> ReadingContext:
    """Return the context of one watched reading."""
    activities = {host.name: host_activity(host, observations, reading.seconds) for host in hosts}
    return ReadingContext(
        reading,
        slo,
        settings,
        {name: activity for name, activity in activities.items() if activity is not None},
        tuple(part_activity(part, observations, reading.seconds) for part in stack.parts),
    )


def floor(context: ReadingContext) -> float | None:
    """Return the 10th percentile of the latency in seconds; ``None`` if it was not measured.

    Queues come and go and spare some requests, but a wait of every request shows even here. Without
    latencies, the result is the time that a request spends in PHP, by Little's law.
    """
    return context.reading.percentile(0.1) if context.reading.histogram else time_inside(context)


def time_inside(context: ReadingContext) -> float | None:
    """Return the seconds that a request spends in a PHP process (requests there = rate × time)."""
    if context.answered <= 0 or not context.pools:
        return None
    return sum(part.accepted for part in context.pools) / context.answered
