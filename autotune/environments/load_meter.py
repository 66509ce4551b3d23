"""Measure a real stack: run the generator at a rate, observe all hosts, and return a reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from autotune.deploy.stack import Stack
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.capacities import list_resource_usages, pool_capacities
from autotune.diagnose.diagnosis import WatchedReading, build_contexts, find_bottleneck
from autotune.diagnose.faulty_hosts import find_faulty_instances, is_host_suspected
from autotune.environments.answer_check import AnswerCheck
from autotune.estimate import InstanceCapacity
from autotune.loads.answer_validation import MAX_PROBE_SHARE, MIN_PROBES, AnswerInspection
from autotune.loads.base import NO_PORT_ERROR, LoadGenerator, LoadResult, LoadSpec
from autotune.loads.load_host import PortWait
from autotune.loads.reading_run import count_requests, take_reading
from autotune.measure.reading import Reading
from autotune.measure.warm_up import DRAIN_SECONDS, wait_until_drained
from autotune.monitor.activity import compute_host_activity, compute_host_usages
from autotune.monitor.counters import CounterReader
from autotune.monitor.host_watch import HostWatch, Observations, WatchedHost
from autotune.services.base import Settings
from autotune.services.registry import find_own_diagnosis
from autotune.target.slo import Slo
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request

# Seconds of CPU throttling per second. Less throttling does not explain a missed SLO.
MAX_THROTTLED_SHARE = 0.1
# Maximum wait for a backlog to drain, as a multiple of the latency limit. A backlog of slow pages
# drains slowly.
DRAIN_LIMITS = 30.0
# Rate that a load host reliably generates per CPU of its quota, as a share of the maximum rate of one
# generator process.
TRUSTED_RATE_SHARE = 0.5


@dataclass(frozen=True)
class LoadMeter:
    """Takes readings from a real stack under load.

    ``load_hosts`` generate the load. ``hosts`` are the stack's hosts with their transports.
    ``generator_hosts`` are the dedicated load hosts, which are also observed. ``max_rate`` limits
    the load in requests/s. ``answer_check`` checks responses. ``read_deployed_settings()`` returns
    the deployed settings, which determine which service instances are observed. ``slow_caches`` are
    caches whose hits and misses are no longer counted, because a query took too long.
    """

    load: LoadGenerator
    request: Request
    slo: Slo
    load_hosts: tuple[Transport, ...]
    stack: Stack
    hosts: tuple[WatchedHost, ...]
    timeout: float
    max_rate: float
    read_deployed_settings: Callable[[], Settings] = dict
    generator_hosts: tuple[WatchedHost, ...] = ()
    port_wait: PortWait = field(default_factory=PortWait)
    answer_check: AnswerCheck | None = None
    slow_caches: set[str] = field(default_factory=set)

    @cached_property
    def with_counted_requests(self) -> LoadGenerator:
        """Return the load generator with its number of requests per iteration. If the number is
        unknown, a separate run counts the requests.
        """
        return count_requests(self.load, self.request, self.load_hosts[0], self.max_rate)

    def compute_highest_rate(self) -> float:
        """Return the highest allowed rate, in iterations of the load per second.

        The stack must be deployed, because requests may have to be counted.
        """
        return self.max_rate / self.with_counted_requests.requests_per_iteration

    def take_reading(
        self, rate: float, seconds: float, *, ramp_seconds: float = 1.0
    ) -> WatchedReading:
        """Send ``rate`` requests/s to the stack's entry for ``seconds``, after ``ramp_seconds``
        that are not measured.

        All hosts are observed. The reading contains the rate that the generator can send: a whole number
        for some generators. If client ports run out, the reading is repeated once some ports are free.
        If sessions contain pauses, the reading is longer by the longest pause. During this additional
        time, sessions send only their first requests, so the rate is lower. At low rates, the reading is
        long enough for one complete visit to each entry.
        """
        rate = self._round_rate(rate)
        seconds = self._fit_visit(rate, seconds + self.load.longest_pause)
        spec = LoadSpec(rate, seconds, self.timeout, self.slo.limit, ramp_seconds)
        check, total_seconds = self.answer_check, ramp_seconds + seconds
        stack_hosts = self._select_active_hosts(self.read_deployed_settings())
        hosts = (*stack_hosts, *self.generator_hosts)
        for may_repeat in (True, False):
            with HostWatch(hosts, total_seconds) as host_watch:
                load_result = take_reading(
                    self.with_counted_requests,
                    self.request,
                    spec,
                    *self.load_hosts,
                    max_rate=self.max_rate,
                    validator=check.validator if check else None,
                    earlier_inspection=check.find_inspection(rate) if check else AnswerInspection(),
                    on_start=host_watch.mark_load,
                )
            lacks_ports = NO_PORT_ERROR in load_result.errors
            if not (may_repeat and lacks_ports and self._wait_for_ports(spec)):
                break
        if check:
            check.record_inspection(rate, load_result)
        reading, observations = build_reading(load_result, spec), host_watch.observations
        if not self.slo.is_met(reading) and (
            throttle_reason := self._find_throttled_host(observations, spec)
        ):
            reading = replace(reading, limited=throttle_reason)
        if is_host_suspected(reading):
            observations = replace(observations, faults=self._find_faults())
        host_usages = compute_host_usages(hosts, observations, total_seconds)
        return WatchedReading(reading, observations, host_usages)

    def _round_rate(self, rate: float) -> float:
        """Return the rate that the generator sends to all entries together, for a requested rate."""
        entry_count = len(self.request.per_endpoint())
        max_rate = self.compute_highest_rate() / entry_count
        return entry_count * self.load.round_rate(rate / entry_count, max_rate)

    def _fit_visit(self, rate: float, seconds: float) -> float:
        """Return ``seconds``, or more if no complete visit to each entry would fit at ``rate``."""
        if self.load.min_requests <= 1:
            return seconds
        visit_requests = self.load.min_requests * len(self.request.per_endpoint())
        # The requests that check responses are taken from the load.
        return max(seconds, (visit_requests / (1 - MAX_PROBE_SHARE) + MIN_PROBES) / rate)

    def _wait_for_ports(self, spec: LoadSpec) -> bool:
        """Wait until client ports for ``spec`` are free, and return true if they are."""
        # With persistent connections, only the first requests need a free client port.
        if self.load.limits.keeps_connections:
            connection_count = self.load.limits.open_connections
            spec = replace(spec, rate=connection_count, seconds=1.0, ramp_seconds=0.0)
        return self.port_wait.wait_for_ports(self.load_hosts, self.request, spec)

    def begin_measurement(self, *, is_deployed: bool) -> Sequence[Mapping[str, Any]]:
        """Start a trial's response checks: see `AnswerCheck.begin_measurement`."""
        return (
            self.answer_check.begin_measurement(is_deployed=is_deployed)
            if self.answer_check
            else ()
        )

    def end_warm_up(self, windows: int) -> None:
        """Discard the response checks before the last ``windows`` windows of the warm-up."""
        if self.answer_check is not None:
            self.answer_check.inspections.keep_last_inspections(windows)

    def find_bottleneck(
        self, settings: Settings, watched_readings: Sequence[WatchedReading]
    ) -> Bottleneck | None:
        """Return the bottleneck that limits the peak, from readings at rates around the peak."""
        stack = replace(self.stack, instances=self.stack.active_instances(settings))
        return find_bottleneck(
            stack,
            settings,
            watched_readings,
            hosts=self._select_active_hosts(settings),
            slo=self.slo,
        )

    def estimate_capacities(
        self, settings: Settings, watched_readings: Sequence[WatchedReading]
    ) -> dict[str, InstanceCapacity]:
        """Return the capacity of each service instance, estimated from readings that met the
        SLO.
        """
        stack = replace(self.stack, instances=self.stack.active_instances(settings))
        contexts = build_contexts(
            stack,
            settings,
            watched_readings,
            hosts=self._select_active_hosts(settings),
            slo=self.slo,
        )
        return pool_capacities(list_resource_usages(contexts, stack.called_tiers))

    def _find_throttled_host(self, observations: Observations, spec: LoadSpec) -> str | None:
        """Return the reason why a load host's CPU quota makes this load unreliable, or ``None``."""
        rate = spec.rate / len(self.load_hosts)
        for host in self.generator_hosts:
            rate_ceiling = TRUSTED_RATE_SHARE * host.cpus * self.load.limits.max_rate
            activity = compute_host_activity(host, observations, spec.seconds + spec.ramp_seconds)
            if rate <= rate_ceiling or (activity and activity.throttled <= MAX_THROTTLED_SHARE):
                continue
            throttle_reason = (
                f"was throttled at its quota of {host.cpus:g} CPUs for "
                f"{activity.throttled:.1f} s per second"
                if activity
                else f"was too busy to report its CPU use ({host.cpus:g} CPUs)"
            )
            return (
                f"load host {host.name} {throttle_reason}. The host can reliably generate only "
                f"{rate_ceiling:.0f} requests/s: give the host more CPU, or add load hosts"
            )
        return None

    def _find_faults(self) -> dict[str, str]:
        active_instances = self.stack.active_instances(self.read_deployed_settings())
        transports = {h.name: h.transport or LocalTransport(h.name) for h in self.hosts}
        return find_faulty_instances(active_instances, transports, self.request, self.load_hosts[0])

    def _select_active_hosts(self, settings: Settings) -> tuple[WatchedHost, ...]:
        active_instances = self.stack.active_instances(settings)
        return tuple(
            replace(
                host,
                instances=tuple(
                    instance for instance in host.instances if instance in active_instances
                ),
            )
            for host in self.hosts
        )

    def count_cache_lookups(self) -> tuple[int, int] | None:
        """Return the hits and misses of all caches since their start.

        The result is ``None`` without a cache whose counters can be read in time. It is also ``None`` if
        a cache did not respond, because the sum would be incomplete.
        """
        active_instances = self.stack.active_instances(self.read_deployed_settings())
        caches = [
            (instance, counter_names)
            for instance in active_instances
            if (counter_names := find_own_diagnosis(instance.service).lookup_counters)
            and instance.name not in self.slow_caches
        ]
        if not caches:
            return None
        # The counters of some services can be read only by a command on their host.
        transports = {h.name: h.transport or LocalTransport(h.name) for h in self.hosts}
        service_managers = {h.name: h.service_manager for h in self.hosts}
        hit_count = miss_count = 0.0
        for instance, counter_names in caches:
            host_name = instance.placement.host
            reader = CounterReader(
                instance,
                transports.get(host_name),
                service_manager=service_managers.get(host_name),
            )
            counters = reader.read(by_command=True)
            reader.close()
            if reader.is_too_slow:
                self.slow_caches.add(instance.name)
            if counters is None or reader.is_too_slow:
                return None
            hit_count += counters.values.get(counter_names.hits, 0.0)
            miss_count += counters.values.get(counter_names.misses, 0.0)
        return int(hit_count), int(miss_count)

    def wait_until_drained(self) -> float | None:
        """Wait until the effects of an overload have passed. Return the lowest latency of the last probe
        requests, or ``None`` if the effects did not pass. A load host sends the requests.
        """
        pause_seconds = len(self.request.per_endpoint()) / self.max_rate
        longest_seconds = max(DRAIN_SECONDS, DRAIN_LIMITS * self.slo.limit)
        return wait_until_drained(
            self.probe_latency, self.slo.limit, longest_seconds, pause=pause_seconds
        )

    def probe_latency(self) -> float | None:
        """Return the latency of the slowest entry, in seconds, or ``None`` after a wrong response."""
        slowest_seconds = 0.0
        for entry_request in self.request.per_endpoint():
            answer = curl.send_request(self.load_hosts[0], entry_request)
            if isinstance(answer, str) or answer.status not in self.request.statuses:
                return None
            slowest_seconds = max(slowest_seconds, answer.seconds)
        return slowest_seconds


def build_reading(load_result: LoadResult, spec: LoadSpec) -> Reading:
    """Return a load result as a reading. Failed and late requests count as violations.

    The reading's duration is 0 seconds if the generator sent no requests.
    """
    return Reading(
        rate=spec.rate,
        seconds=0.0 if load_result.limited and not load_result.sent else spec.seconds,
        intended=load_result.intended,
        violations=load_result.count_later_than(spec.latency_limit) + load_result.error_count,
        errors=load_result.errors,
        histogram=load_result.histogram,
        truncated=load_result.truncated,
        limited=load_result.limited,
        looked_at=load_result.looked_at,
        wrong=load_result.wrong,
        example=load_result.example,
    )
