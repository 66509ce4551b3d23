"""Load meter of a real stack: runs the generator at a rate, watches all hosts, makes one reading."""

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

# Seconds a second: a quota that is reached only now and then does not explain a missed SLO.
THROTTLED = 0.1
TRUSTED = 0.5  # of the rate that a process makes on a whole CPU, for each CPU of a quota


@dataclass(frozen=True)
class LoadMeter:
    """Everything a reading needs but its rate and length.

    ``load_hosts`` are where the load is made; ``hosts`` those of the stack, each with its transport,
    and ``generators`` the load hosts that are watched too: those that do nothing else.
    ``max_rate`` (requests/s) is the most that is ever offered.
    ``answers`` tell right answers from wrong ones.
    ``in_place()`` gives the settings that run, which decide which parts of the stack are watched.
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
        """Offer ``rate`` requests/s for ``seconds`` to the stack's entry, and to nothing else, after
        ``ramp`` seconds of it that do not count.

        All hosts are watched meanwhile. Where client ports ran out, the reading is taken again once
        some are free.
        """
        spec = LoadSpec(rate, seconds, self.timeout, self.slo.limit, ramp)
        watched = self._watched(spec)
        if NO_PORT not in watched.reading.errors:
            return watched
        new = self.load.limits.open_connections  # they stay open, so no more are needed
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
        """See `AnswerCheck.begin`."""
        return self.answers.begin(deployed=deployed) if self.answers else ()

    def end_warm_up(self, windows: int) -> None:
        """What answers were like before the last ``windows`` of a warm-up no longer counts."""
        if self.answers is not None:
            self.answers.looks.keep_last(windows)

    def diagnose(self, settings: Settings, watched: Sequence[WatchedReading]) -> Bottleneck | None:
        """What holds the peak down, by the readings around it."""
        stack = replace(self.stack, parts=self.stack.active(settings))
        return diagnose(stack, settings, watched, hosts=self._hosts(settings), slo=self.slo)

    def capacities(
        self, settings: Settings, watched: Sequence[WatchedReading]
    ) -> dict[str, PartCapacity]:
        """What each part of the stack carries, by the readings that met the SLO."""
        stack = replace(self.stack, parts=self.stack.active(settings))
        contexts = contexts_of(stack, settings, watched, hosts=self._hosts(settings), slo=self.slo)
        return capacities(uses(contexts, stack.calls))

    def _starved(self, observations: Observations, spec: LoadSpec) -> str | None:
        """Why a load host could not be trusted with this load: its own quota kept it waiting."""
        rate = spec.rate / len(self.load_hosts)
        for host in self.generators:
            able = TRUSTED * host.cpus * self.load.limits.rate
            activity = host_activity(host, observations, spec.seconds + spec.ramp)
            if rate <= able or (activity and activity.throttled <= THROTTLED):
                continue
            why = (
                f"was held back by its quota of {host.cpus:g} CPUs for "
                f"{activity.throttled:.1f} s a second"
                if activity
                else f"had {host.cpus:g} CPUs and none left to say how it was"
            )
            return (
                f"the load host {host.name} {why}, and can be trusted with {able:.0f}/s: give it"
                " more CPU, or add load hosts"
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
        """Hits and misses of all caches since they started; ``None`` without a cache."""
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
        """Wait until what an overload left behind is gone; a load host sends the requests."""
        pause = len(self.request.each()) / self.max_rate
        return drain(self._latency, self.slo.limit, pause=pause)

    def _latency(self) -> float | None:
        """The longest latency of all entries; ``None`` where one gave no right answer."""
        slowest = 0.0
        for entry in self.request.each():
            got = curl.answer(self.load_hosts[0], entry)
            if isinstance(got, str) or got.status not in self.request.statuses:
                return None
            slowest = max(slowest, got.seconds)
        return slowest


def reading(result: LoadResult, spec: LoadSpec) -> Reading:
    """A result compared with the objective: what failed and what came late are violations.

    A reading lasted 0 seconds if the generator fell short and sent nothing.
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
