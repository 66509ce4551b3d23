"""Load meter of a real stack: runs the generator at a rate, observes all hosts, returns a reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from autotune.deploy.stack import Stack
from autotune.diagnose.capacities import capacities, uses
from autotune.diagnose.context import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading, contexts_of, diagnose
from autotune.diagnose.faults import faults, suspected
from autotune.environments.answers import AnswerCheck
from autotune.estimate import PartCapacity
from autotune.loads.answers import Look
from autotune.loads.base import NO_PORT, Load, LoadResult, LoadSpec
from autotune.loads.load_host import PortWait
from autotune.loads.take import count_requests, take
from autotune.measure.reading import Reading
from autotune.measure.warmup import drain
from autotune.monitor.activity import host_activity, host_usages
from autotune.monitor.counters import CounterReader
from autotune.monitor.watch import Observations, Watch, WatchedHost
from autotune.services.base import Settings
from autotune.services.registry import diagnosis
from autotune.target.slo import Slo
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request

# Seconds per second. Rare throttling does not explain a missed SLO.
THROTTLED = 0.1
TRUSTED = 0.5  # share of a process's rate on a whole CPU, per CPU of a quota


@dataclass(frozen=True)
class LoadMeter:
    """Everything that a reading needs except rate and length.

    ``load_hosts`` generate the load. ``hosts`` are the stack's hosts with their transports.
    ``generators`` are the dedicated load hosts, which are also observed. ``max_rate`` limits the
    load in requests/s. ``answers`` checks responses. ``in_place()`` returns the deployed settings,
    which determine the observed parts of the stack.
    """

    load: Load
    request: Request
    slo: Slo
    load_hosts: tuple[Transport, ...]
    stack: Stack
    hosts: tuple[WatchedHost, ...]
    timeout: float
    max_rate: float
    in_place: Callable[[], Settings] = dict
    generators: tuple[WatchedHost, ...] = ()
    ports: PortWait = field(default_factory=PortWait)
    answers: AnswerCheck | None = None

    @cached_property
    def counted(self) -> Load:
        """The load, once it is known how many requests a unit of its rate makes."""
        return count_requests(self.load, self.request, self.load_hosts[0], self.max_rate)

    def highest_rate(self) -> float:
        """The highest rate that may be ordered, in units of the load. The stack has to be deployed."""
        return self.max_rate / self.counted.requests_each

    def take(self, rate: float, seconds: float, *, ramp: float = 1.0) -> WatchedReading:
        """Send ``rate`` requests/s for ``seconds`` to the stack's entry, after ``ramp`` unmeasured
        seconds.

        All hosts are observed. If client ports run out, the reading is repeated when some are free.
        """
        spec = LoadSpec(rate, seconds, self.timeout, self.slo.limit, ramp)
        watched = self._watched(spec)
        if NO_PORT not in watched.reading.errors:
            return watched
        new = self.load.limits.open_connections  # open connections are reused
        needs = replace(spec, rate=new, seconds=1.0, ramp=0.0) if self.load.limits.kept else spec
        again = self.ports.over(self.load_hosts, self.request, needs)
        return self._watched(spec) if again else watched

    def _watched(self, spec: LoadSpec) -> WatchedReading:
        hosts = self._hosts(self.in_place())
        with Watch((*hosts, *self.generators), spec.ramp + spec.seconds) as watch:
            result = take(
                self.counted,
                self.request,
                spec,
                *self.load_hosts,
                max_rate=self.max_rate,
                validator=self.answers.validator if self.answers else None,
                earlier=self.answers.earlier(spec.rate) if self.answers else Look(),
            )
        if self.answers:
            self.answers.looked(spec.rate, result)
        measured, observations = reading(result, spec), watch.observations
        if not self.slo.met(measured) and (why := self._starved(observations, spec)):
            measured = replace(measured, limited=why)
        if suspected(measured):
            observations = replace(observations, faults=self._faults())
        return WatchedReading(
            measured,
            observations,
            host_usages((*hosts, *self.generators), observations, spec.ramp + spec.seconds),
        )

    def begin_trial(self, *, deployed: bool) -> Sequence[Mapping[str, Any]]:
        """Start the response checks of a trial: see `AnswerCheck.begin`."""
        return self.answers.begin(deployed=deployed) if self.answers else ()

    def end_warm_up(self, windows: int) -> None:
        """Discard response checks before the last ``windows`` of the warm-up."""
        if self.answers is not None:
            self.answers.looks.keep_last(windows)

    def diagnose(self, settings: Settings, watched: Sequence[WatchedReading]) -> Bottleneck | None:
        """Return the bottleneck that limits the peak, from the readings around it."""
        stack = replace(self.stack, parts=self.stack.active(settings))
        return diagnose(stack, settings, watched, hosts=self._hosts(settings), slo=self.slo)

    def capacities(
        self, settings: Settings, watched: Sequence[WatchedReading]
    ) -> dict[str, PartCapacity]:
        """Return the capacity of each part of the stack, from readings that met the SLO."""
        stack = replace(self.stack, parts=self.stack.active(settings))
        contexts = contexts_of(stack, settings, watched, hosts=self._hosts(settings), slo=self.slo)
        return capacities(uses(contexts, stack.calls))

    def _starved(self, observations: Observations, spec: LoadSpec) -> str | None:
        """Return the reason why a load host's CPU quota makes this load unreliable, or ``None``."""
        rate = spec.rate / len(self.load_hosts)
        for host in self.generators:
            able = TRUSTED * host.cpus * self.load.limits.rate
            activity = host_activity(host, observations, spec.seconds + spec.ramp)
            if rate <= able or (activity and activity.throttled <= THROTTLED):
                continue
            why = (
                f"was throttled at its quota of {host.cpus:g} CPUs for "
                f"{activity.throttled:.1f} s per second"
                if activity
                else f"was too busy with its {host.cpus:g} CPUs to report its CPU use"
            )
            return (
                f"load host {host.name} {why}. It can reliably generate {able:.0f} requests/s: give"
                " it more CPU, or add load hosts"
            )
        return None

    def _faults(self) -> dict[str, str]:
        active = self.stack.active(self.in_place())
        transports = {h.name: h.transport or LocalTransport(h.name) for h in self.hosts}
        return faults(active, transports, self.request)

    def _hosts(self, settings: Settings) -> tuple[WatchedHost, ...]:
        active = self.stack.active(settings)
        return tuple(
            replace(host, parts=tuple(part for part in host.parts if part in active))
            for host in self.hosts
        )

    def lookups(self) -> tuple[int, int] | None:
        """Return hits and misses of all caches since their start, or ``None`` without a cache."""
        active = self.stack.active(self.in_place())
        caches = [
            (part, names) for part in active if (names := diagnosis(part.service.name).lookups)
        ]
        if not caches:
            return None
        transports = {host.name: host.transport for host in self.hosts}
        hits = misses = 0.0
        for part, names in caches:
            reader = CounterReader(part, transports.get(part.site.host))
            counters = reader.read(by_command=True)
            reader.close()
            hits += counters.values.get(names.hits, 0.0) if counters else 0.0
            misses += counters.values.get(names.misses, 0.0) if counters else 0.0
        return int(hits), int(misses)

    def drain(self) -> bool:
        """Wait until the effects of an overload are gone. A load host sends the probes."""
        pause = len(self.request.each()) / self.max_rate
        return drain(self._latency, self.slo.limit, pause=pause)

    def _latency(self) -> float | None:
        """Return the longest latency of all entries, or ``None`` if one returned a wrong response."""
        slowest = 0.0
        for entry in self.request.each():
            got = curl.answer(self.load_hosts[0], entry)
            if isinstance(got, str) or got.status not in self.request.statuses:
                return None
            slowest = max(slowest, got.seconds)
        return slowest


def reading(result: LoadResult, spec: LoadSpec) -> Reading:
    """Convert a result to a reading. Failed and late requests are violations.

    The reading lasts 0 seconds if the generator fell short and sent nothing.
    """
    return Reading(
        rate=spec.rate,
        seconds=0.0 if result.limited and not result.sent else spec.seconds,
        intended=result.intended,
        violations=result.later_than(spec.limit) + result.failed,
        errors=result.errors,
        histogram=result.histogram,
        truncated=result.truncated,
        limited=result.limited,
        looked_at=result.looked_at,
        wrong=result.wrong,
        example=result.example,
    )
