"""One reading with the activity of hosts and services: the input of the bottleneck rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.deploy.stack import Stack
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostActivity, compute_host_activity, compute_instance_activity
from autotune.monitor.host_watch import Observations, WatchedHost
from autotune.parameter_name import select_service_settings
from autotune.services.base import Role, Settings
from autotune.services.diagnosis import Diagnosis, InstanceActivity, InstanceReading
from autotune.services.registry import SHIPPED, Catalogue
from autotune.target.slo import Slo


@dataclass(frozen=True)
class ReadingContext:
    """All data about one reading that the rules need.

    ``fastest_latency`` is the shortest latency floor (``compute_latency_floor``) of all readings with
    the same settings. ``catalogue`` contains the services of the instances. ``forwards_to`` maps each
    tier that forwards requests to the tier that receives them.
    """

    reading: Reading
    slo: Slo
    settings: Settings
    hosts: Mapping[str, HostActivity]
    instances: tuple[InstanceActivity, ...]
    fastest_latency: float | None = None
    catalogue: Catalogue = SHIPPED
    forwards_to: Mapping[str, str] = field(default_factory=dict)

    def instances_with_role(self, *roles: Role) -> tuple[InstanceActivity, ...]:
        return tuple(instance for instance in self.instances if instance.role in roles)

    @property
    def application_pools(self) -> tuple[InstanceActivity, ...]:
        """Return the instances whose workers run the application."""
        return tuple(
            instance
            for instance in self.instances
            if instance.runs_application and instance.workers
        )

    def instances_on(self, host: str) -> tuple[InstanceActivity, ...]:
        return tuple(instance for instance in self.instances if instance.host == host)

    def find_setting(self, instance: InstanceActivity, parameter_name: str) -> int | None:
        """Return a service's setting as an integer; ``None`` if it is not a number."""
        setting = self.settings.get(f"{instance.label}.{parameter_name}")
        return int(setting) if isinstance(setting, int | float) else None

    def find_diagnosis(self, instance: InstanceActivity) -> Diagnosis:
        """Return the description of how bottlenecks of an instance are recognized."""
        return self.catalogue.find_diagnosis(instance.service)

    def count_threads(self, instance: InstanceActivity) -> int | None:
        """Return the configured number of threads that do a service's work, at least 1; ``None`` if
        unknown.
        """
        parameter_name = self.find_diagnosis(instance).threads_parameter
        threads = self.find_setting(instance, parameter_name) if parameter_name else None
        return None if threads is None else max(threads, 1)

    def estimate_idle_connections(self, pool: InstanceActivity) -> float:
        """Return the maximum mean number of idle connections that servers keep open to ``pool``.

        While connections wait at the pool's socket, hardly any other connection is idle.
        """
        idle_count = 0
        for server in self.instances_on(pool.host):
            switch, size = self.find_diagnosis(server).kept_connections
            is_kept = bool(switch) and self.settings.get(f"{server.label}.{switch}") is True
            if is_kept and server.tier == pool.tier:
                idle_count += max(1, server.workers) * (self.find_setting(server, size) or 0)
        return idle_count * (1.0 - pool.queued_fraction)

    def compute_threads_cpu(self, instance: InstanceActivity) -> float:
        """Return the number of CPUs that the threads that do a service's work used."""
        has_helpers = self.find_diagnosis(instance).forks_helpers
        return instance.main_cpu if has_helpers and instance.main_cpu is not None else instance.cpu

    def build_instance_reading(self, instance: InstanceActivity) -> InstanceReading:
        """Return the data of one instance, as input for the rules of its service."""
        own_settings = select_service_settings(self.settings, instance.label)
        idle_share = (
            1.0 - self.hosts[instance.host].busy_share if instance.host in self.hosts else None
        )
        return InstanceReading(
            instance,
            own_settings,
            self.reading.error_count,
            self.is_mostly_errors,
            idle_share,
            self.reading.intended - self.reading.error_count,
        )

    @property
    def is_mostly_errors(self) -> bool:
        """True if more requests failed than were late, which indicates refusals rather than slowness."""
        return self.reading.error_count > (self.reading.violations - self.reading.error_count)

    @property
    def answered_rate(self) -> float:
        """Return the correct responses per second, including late responses, during the load.

        If a reading was truncated, its load was shorter than its ``seconds``.
        """
        reading = self.reading
        seconds = min(reading.seconds, reading.intended / reading.rate) if reading.rate > 0 else 0
        return (reading.intended - reading.error_count) / seconds if seconds > 0 else 0.0

    @property
    def met_slo(self) -> bool:
        """True if the reading met the SLO."""
        return self.slo.is_met(self.reading)


def build_context(
    reading: Reading,
    observations: Observations,
    *,
    stack: Stack,
    hosts: tuple[WatchedHost, ...],
    settings: Settings,
    slo: Slo,
) -> ReadingContext:
    """Return the context of one watched reading."""
    activities = {
        host.name: compute_host_activity(host, observations, reading.seconds) for host in hosts
    }
    return ReadingContext(
        reading,
        slo,
        settings,
        {name: activity for name, activity in activities.items() if activity is not None},
        tuple(
            compute_instance_activity(instance, observations, reading.seconds)
            for instance in stack.instances
        ),
        catalogue=stack.catalogue,
        forwards_to=stack.forwards_to,
    )


def compute_latency_floor(context: ReadingContext) -> float | None:
    """Return the 10th percentile of the latency in seconds; ``None`` if unknown.

    Queues delay only some requests, but a wait that affects every request raises even the 10th
    percentile. Without latencies, the result is the time that a request spends in PHP, by Little's law.
    """
    return (
        context.reading.percentile(0.1)
        if context.reading.histogram
        else compute_php_seconds(context)
    )


def compute_php_seconds(context: ReadingContext) -> float | None:
    """Return the seconds that a request spends in a PHP process, by Little's law.

    If web servers keep idle connections to the pool open, the result is a lower limit. It is ``None``
    if all connections may be idle.
    """
    pools = context.application_pools
    if context.answered_rate <= 0 or not pools:
        return None
    idle_counts = [context.estimate_idle_connections(pool) for pool in pools]
    request_count = sum(
        max(0.0, pool.accepted_connections - idle_count)
        for pool, idle_count in zip(pools, idle_counts, strict=True)
    )
    return None if any(idle_counts) and not request_count else request_count / context.answered_rate
