"""`autotune measure --closed` and `--tier cache`: ceilings, of the stack and of its caches alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.environments.base import Environment
from autotune.environments.cache_peak import CachePeak, derive_cache_slo, measure_cache_peak
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession
from autotune.errors import AutotuneError, UsageError
from autotune.loads import closed_loop, memcaslap, mutilate
from autotune.loads.answer_validation import AnswerValidator
from autotune.loads.base import LoadError
from autotune.loads.closed_load import ClosedLoopCeiling, ClosedLoopClients, ClosedLoopGenerator
from autotune.loads.load_commands import UNKNOWN_RATE, LoadCommand, find_excess, run_together
from autotune.loads.memcaslap import PROTOCOL, SHAPES, CacheCeiling, MemcaslapShape
from autotune.loads.registry import CLOSED_LOOP_GENERATORS
from autotune.services.base import Endpoint, Role, Settings
from autotune.services.registry import any_speaks_protocol
from autotune.strict_parsing import parse_uint
from autotune.study import trial as trials
from autotune.study.measure_capacity import MeasurementRequest
from autotune.study.schedule import MeasureStep
from autotune.study.study_state import CACHE_CEILING, MEASURE_PURPOSE, STACK_CEILING, Phase
from autotune.study.trial_context import ProgressReporter, TrialContext, begin_study, open_session
from autotune.target.messages import suggest_name
from autotune.target.model import Target
from autotune.target.slo import Slo
from autotune.transports.base import Transport

LOAD_SECONDS = 5.0
WARM_UP_SECONDS = 1.0
CLIENTS_PER_CACHE = 8  # of memcaslap for each cache host
TIMEOUT_MARGIN_SECONDS = (
    15.0  # seconds a transport waits beyond what a program takes by its own account
)
NOT_FOUND_STATUSES = (126, 127)
MUTILATE_PROGRAM = "mutilate"
ALLOW_UNPACED_SETTING = "`load: {unpaced: true}`"
MAX_CLIENTS = 500  # a closed loop of more has a thousand descriptors and one core to do it with


@dataclass(frozen=True)
class StackCeilings:
    """Closed loops against the entry, by number of clients."""

    generator: str
    ceilings: tuple[ClosedLoopCeiling, ...]

    def to_record(self) -> dict[str, Any]:
        """As it is kept: ``ceilings`` by number of clients, latencies in seconds."""
        ceilings = [
            {
                "concurrency": c.concurrency,
                "rate": round(c.rate, 1),
                "requests": c.requests,
                "errors": dict(c.errors),
                "percentiles": {f"p{at:g}": value for at, value in sorted(c.percentiles.items())},
                "failed": c.failure,
                "limited": c.is_rate_limited,
                "example": c.example,
            }
            for c in self.ceilings
        ]
        return {
            "of": STACK_CEILING,
            "generator": self.generator,
            "closed": True,
            "ceilings": ceilings,
        }


@dataclass(frozen=True)
class CacheCeilings:
    """The memcached hosts alone, by object size."""

    servers: tuple[str, ...]
    ceilings: tuple[CacheCeiling | CachePeak, ...]
    stack_key_rate: float
    """Keys/s that the whole stack asks of them at its peak."""

    def to_record(self) -> dict[str, Any]:
        """As it is kept: ``ceilings`` by object size, and ``how`` each was measured: ``rate`` in
        operations/s, ``gigabits`` in Gb/s, ``hits`` as a fraction of the gets, ``together`` keys
        asked for at once; ``stack_key_rate`` in keys/s."""
        ceilings = [
            {
                "objects": c.shape,
                "how": c.generator,
                "together": c.keys_per_get,
                "rate": round(c.rate, 1),
                "gigabits": round(c.gigabits, 4),
                "hits": round(c.hit_share, 4),
                "failed": c.failure,
            }
            for c in self.ceilings
        ]
        chain = round(self.stack_key_rate, 1)
        return {
            "of": CACHE_CEILING,
            "servers": list(self.servers),
            "ceilings": ceilings,
            "chain": chain,
        }


@dataclass(frozen=True)
class CeilingRequest:
    """What to measure: the caches of ``tier``, or the stack with each number of ``client_counts`` in
    turn.

    ``allow_unpaced``: programs that keep no rate may be used.
    """

    settings: Settings
    tier: str | None
    client_counts: tuple[int, ...]
    allow_unpaced: bool = False


def build_ceiling_request(
    environment: Environment, request: MeasurementRequest, cache_tier: str | None, concurrency: str
) -> CeilingRequest:
    """``concurrency`` is ``"1,5"``. Raises UsageError for what has no ceiling to measure."""
    target = environment.file.target
    if request.against is not None or request.repeat > 1:
        raise UsageError(
            "--closed and --tier exclude --against and --repeat", hint="remove the option"
        )
    if target.command is not None or target.simulated is not None:
        raise UsageError(
            "only a stack of servers has a ceiling to measure", hint="leave --closed and --tier out"
        )
    if cache_tier is None:
        return CeilingRequest(
            request.settings, None, _parse_client_counts(concurrency), target.load.unpaced
        )
    caches = [
        name for name, tier in target.tiers.items() if any_speaks_protocol(tier.service, PROTOCOL)
    ]
    if cache_tier not in caches:
        raise UsageError(
            f"tier {cache_tier!r} has no {PROTOCOL} to measure",
            hint=suggest_name(cache_tier, caches),
        )
    return CeilingRequest(request.settings, cache_tier, (), target.load.unpaced)


def _parse_client_counts(concurrency: str) -> tuple[int, ...]:
    try:
        clients = tuple(parse_uint(number.strip()) for number in concurrency.split(","))
    except ValueError:
        clients = ()
    if not clients or not all(1 <= number <= MAX_CLIENTS for number in clients):
        raise UsageError(
            f"--concurrency: {concurrency!r} is not a list of numbers from 1 to {MAX_CLIENTS}",
            hint="write --concurrency 1,5",
        )
    return clients


def measure_ceilings(
    environment: Environment, request: CeilingRequest, directory: Path, progress: ProgressReporter
) -> StackCeilings | CacheCeilings:
    """Measure the ceilings, and put them on record like any study. Raises AutotuneError."""
    with open_session(environment, directory, progress) as context:
        session = context.session
        assert isinstance(session, LoadSession), "asked for stacks of servers only"
        assert isinstance(session.meter, LoadMeter), "asked for stacks of servers only"
        begin_study(environment, context, directory, MEASURE_PURPOSE)
        measured = (
            _measure_stack(context, session.meter, request)
            if request.tier is None
            else _measure_caches(environment.file.target, context, session.meter, request)
        )
        context.store.record_ceilings(measured.to_record())
        return measured


def _measure_stack(
    context: TrialContext, meter: LoadMeter, request: CeilingRequest
) -> StackCeilings:
    """Load the target's own entry with each number of clients in turn."""
    meter.begin_measurement(is_deployed=False)
    context.session.fleet.deploy(context.space.build_candidate(request.settings).settings)
    meter.begin_measurement(is_deployed=True)
    host = meter.load_hosts[0]
    load = _find_closed_generator(host, allow_unpaced=request.allow_unpaced)
    validator = meter.answer_check.validator if meter.answer_check else AnswerValidator(())

    def run(concurrency: int, seconds: float) -> ClosedLoopCeiling:
        clients = ClosedLoopClients(concurrency, seconds, meter.timeout, meter.max_rate)
        return closed_loop.run_closed_loop(load, meter.request, clients, host, validator)

    run(request.client_counts[0], WARM_UP_SECONDS)
    ceilings = []
    for clients in request.client_counts:
        ceilings.append(run(clients, LOAD_SECONDS))
        wrong = f" ({ceilings[-1].example})" if ceilings[-1].example else ""
        context.progress.note(f"{load.name}, {clients} at a time: {ceilings[-1].rate:.0f}/s{wrong}")
    return StackCeilings(load.name, tuple(ceilings))


def _find_closed_generator(host: Transport, *, allow_unpaced: bool) -> ClosedLoopGenerator:
    """The first closed-loop generator that the host has and the target allows. Raises LoadError."""
    allowed = {
        name: load
        for name, load in CLOSED_LOOP_GENERATORS.items()
        if load.is_paced or allow_unpaced
    }
    for name, load in allowed.items():
        if _has_program(host, name):
            return load
    packages = " or ".join(package for load in allowed.values() for package in load.packages)
    others = [
        name for name in CLOSED_LOOP_GENERATORS if name not in allowed and _has_program(host, name)
    ]
    more = (
        f", or allow {' and '.join(others)}, which keeps no rate: {ALLOW_UNPACED_SETTING}"
        if others
        else ""
    )
    raise LoadError(
        f"{host.name} has no closed-loop generator: {', '.join(allowed)}",
        hint=f"install {packages} there{more}",
    )


def _has_program(host: Transport, program: str) -> bool:
    return host.run(("sh", "-c", 'command -v "$0"', program)).ok


def _measure_caches(
    target: Target, context: TrialContext, meter: LoadMeter, request: CeilingRequest
) -> CacheCeilings:
    """The peak of the whole stack, then a tier's memcached hosts by themselves."""
    # Load hosts by the address that others reach them at; without any, this machine.
    addresses = [target.hosts[name].address for name in target.load.hosts] or ["127.0.0.1"]
    hosts = dict(zip(addresses, meter.load_hosts, strict=True))
    _check_paced_generator(hosts, allow_unpaced=request.allow_unpaced)
    done = trials.run_trial(MeasureStep(Phase.MEASURE, request.settings), context, None, None)
    context.record_time_spent()
    if done.peak is None:
        raise AutotuneError(f"the configuration cannot be used: {done.failure}")
    keys = target.data.keys_per_request
    instances = meter.stack.instances_with_role(Role.CACHE)
    servers = tuple(
        part.placement.listen for part in instances if part.placement.tier == request.tier
    )
    ceilings: list[CacheCeiling | CachePeak] = []
    alone = CacheLoadTest(
        servers, hosts, meter.slo, keys, meter.max_rate * keys, request.allow_unpaced
    )
    for ceiling in alone.measure_ceilings():
        outcome = ceiling.failure or f"{ceiling.rate:.0f} ops/s"
        context.progress.note(f"{ceiling.generator}, {ceiling.shape}: {outcome}")
        ceilings.append(ceiling)
    return CacheCeilings(tuple(map(str, servers)), tuple(ceilings), done.peak.peak * keys)


def _check_paced_generator(hosts: Mapping[str, Transport], *, allow_unpaced: bool) -> None:
    """Raises LoadError if only a program that keeps no rate could load the caches."""
    if not allow_unpaced and not all(
        _has_program(host, MUTILATE_PROGRAM) for host in hosts.values()
    ):
        raise LoadError(
            f"the load hosts lack {MUTILATE_PROGRAM}, and memcaslap keeps no rate",
            hint=f"build {MUTILATE_PROGRAM} there (scripts/build-mutilate), or allow memcaslap: "
            f"{ALLOW_UNPACED_SETTING}",
        )


@dataclass(frozen=True)
class CacheLoadTest:
    """The ``servers`` of a tier, loaded from ``load_hosts`` by address, ``keys_per_request`` at once
    as in the stack.

    ``max_rate`` is the most operations/s that they are offered: what the stack asks of them at its own
    limit. ``allow_unpaced``: memcaslap, which keeps no rate, may load them all the same.
    """

    servers: tuple[Endpoint, ...]
    load_hosts: Mapping[str, Transport]
    slo: Slo
    keys_per_request: int
    max_rate: float
    allow_unpaced: bool

    def measure_ceilings(self) -> Iterator[CacheCeiling | CachePeak]:
        """The peak of each shape by mutilate, where the load hosts have it and it starts, else the
        ceilings by memcaslap. Also what only memcaslap does: small objects, as many at once as the
        application asks for."""
        master, *_ = self.load_hosts.values()
        peaks: list[CachePeak] = []
        if all(_has_program(host, MUTILATE_PROGRAM) for host in self.load_hosts.values()):
            for peak_of_shape in self._measure_with_mutilate():
                peaks.append(peak_of_shape)
                yield peak_of_shape
            if not _has_program(master, "memcaslap"):
                return
        if not any(peak_of_shape.failure is None for peak_of_shape in peaks):
            for small in SHAPES:
                yield self._measure_with_memcaslap(small, master)
        at_once = f"{SHAPES[0].name}, {self.keys_per_request} at once"
        yield self._measure_with_memcaslap(
            replace(SHAPES[0], name=at_once, keys_per_get=self.keys_per_request), master
        )

    def _measure_with_mutilate(self) -> Iterator[CachePeak]:
        """The peak of each shape. Where the caches cannot be filled, stops there and gives the reason."""
        for shape in mutilate.SHAPES:
            objective = derive_cache_slo(self.slo)
            try:
                yield measure_cache_peak(
                    self.servers, shape, self.load_hosts, objective, self.max_rate
                )
            except LoadError as error:
                yield CachePeak(shape.name, MUTILATE_PROGRAM, failure=str(error))
                return

    def _measure_with_memcaslap(self, shape: MemcaslapShape, host: Transport) -> CacheCeiling:
        """A ceiling, or why none was measured."""
        maximum = UNKNOWN_RATE if self.allow_unpaced else self.max_rate
        if reason := find_excess(UNKNOWN_RATE, maximum):
            failed = f"not measured: {reason}; {ALLOW_UNPACED_SETTING} allows it"
            return CacheCeiling(shape.name, keys_per_get=shape.keys_per_get, failure=failed)
        argv = memcaslap.build_command(self.servers, shape, CLIENTS_PER_CACHE, LOAD_SECONDS)
        bound = LOAD_SECONDS + TIMEOUT_MARGIN_SECONDS
        command = LoadCommand(
            host, argv, UNKNOWN_RATE, 0.0, LOAD_SECONDS, bound, shape.build_config()
        )
        (done,) = run_together([command], maximum)
        if done.returncode in NOT_FOUND_STATUSES:
            hint = f"sudo apt-get install {' '.join(memcaslap.PACKAGES)}"
            raise LoadError(f"{host.name} has no memcaslap", hint=hint)
        return memcaslap.parse_output(done.stdout or done.error_text, shape)
