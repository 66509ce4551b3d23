"""`autotune measure --closed` and `--tier cache`: maximum throughput of the stack, or of its caches
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.environments.base import Environment
from autotune.environments.cache_peak import CachePeak, derive_cache_slo, measure_cache_peak
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession
from autotune.errors import AutotuneError, UsageError
from autotune.loads import closed_loop, memcaslap, mutilate
from autotune.loads.answer_validation import AnswerValidator
from autotune.loads.base import LoadError
from autotune.loads.closed_load import ClosedLoopCeiling, ClosedLoopClients, ClosedLoopGenerator
from autotune.loads.load_commands import UNKNOWN_RATE, LoadCommand, find_excess_rate, run_together
from autotune.loads.memcaslap import CACHE_PROTOCOL, CACHE_SHAPES, CacheCeiling, MemcaslapShape
from autotune.loads.registry import CLOSED_LOOP_GENERATORS
from autotune.services.base import Endpoint, Role, Settings
from autotune.services.registry import catalogue_of
from autotune.strict_parsing import parse_uint
from autotune.study import trial as trials
from autotune.study.ceiling_records import (
    CacheCeilingAtSize,
    CacheCeilings,
    StackCeiling,
    StackCeilings,
)
from autotune.study.measure_capacity import (
    CHECK_HINT,
    MeasurementRequest,
    check_effective_settings,
)
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import MEASURE_PURPOSE, Phase, Trial
from autotune.study.trial_context import TrialContext, begin_study, open_session
from autotune.target.messages import suggest_name
from autotune.target.model import Load, Target
from autotune.target.slo import Slo
from autotune.transports.base import Transport

LOAD_SECONDS = 5.0
WARM_UP_SECONDS = 1.0
CLIENTS_PER_CACHE = 8  # number of memcaslap clients for each cache host
TIMEOUT_MARGIN_SECONDS = 15.0  # seconds that the transport waits after the planned end of a program
NOT_FOUND_STATUSES = (126, 127)
MUTILATE_PROGRAM = "mutilate"
ALLOW_UNPACED_SETTING = "`load: {unpaced: true}`"
# more clients would need over 1,000 descriptors, and overload the generator's only core
MAX_CLIENTS = 500


@dataclass(frozen=True)
class CeilingRequest:
    """The ceilings to measure: the caches of ``tier``, or the stack with each number of clients in
    ``client_counts``.

    ``allow_unpaced`` permits generators without rate control. ``rss`` maps each `tier.service` to its
    process size in bytes, measured in the study of the settings.
    """

    settings: Settings
    tier: str | None
    client_counts: tuple[int, ...]
    allow_unpaced: bool = False
    rss: Mapping[str, int] = field(default_factory=dict)


def build_ceiling_request(
    environment: Environment, request: MeasurementRequest, cache_tier: str | None, concurrency: str
) -> CeilingRequest:
    """Return the ceilings to measure; ``concurrency`` is text such as ``"1,5"``. Raises UsageError for
    invalid options.
    """
    target = environment.file.target
    option = "--closed" if cache_tier is None else "--tier"
    if request.against is not None or request.repeat > 1:
        other_option = "--repeat" if request.against is None else "--against"
        raise UsageError(
            f"{option} and {other_option} cannot be combined",
            hint=f"omit {other_option} to measure a ceiling once, or {option} to measure the capacity",
        )
    if target.command is not None or target.simulated is not None:
        kind = "a command" if target.command is not None else "a model"
        raise UsageError(
            f"{option} needs a stack of servers, and the target is {kind}", hint=f"omit {option}"
        )
    if cache_tier is None:
        _check_closed_load(target.load)
        client_counts, is_unpaced = _parse_client_counts(concurrency), target.load.unpaced
        return CeilingRequest(request.settings, None, client_counts, is_unpaced, request.rss)
    catalogue = catalogue_of(target)
    caches = [
        tier_name
        for tier_name, tier in target.tiers.items()
        if catalogue.any_speaks_protocol(tier.service, CACHE_PROTOCOL)
    ]
    if not caches:
        raise UsageError(
            f"--tier {cache_tier}: no tier of this target uses {CACHE_PROTOCOL}",
            hint="omit --tier to measure the whole stack",
        )
    if cache_tier not in caches:
        problem = (
            f"does not use {CACHE_PROTOCOL}" if cache_tier in target.tiers else "does not exist"
        )
        raise UsageError(
            f"--tier: tier {cache_tier!r} {problem}", hint=suggest_name(cache_tier, caches)
        )
    return CeilingRequest(request.settings, cache_tier, (), target.load.unpaced, request.rss)


def _check_closed_load(load: Load) -> None:
    """Raise UsageError if closed-loop clients cannot send the target's load.

    They would request another page instead, whose responses nothing validates.
    """
    if load.has_request_file:
        raise UsageError(
            "--closed requests only one page, and the target's load is a file of requests",
            hint="omit --closed to measure the capacity, or write `path:` in another target",
        )
    if load.method != "GET" or load.http == "2":
        raise UsageError("--closed needs GET requests over HTTP/1.1", hint="omit --closed")


def _parse_client_counts(concurrency: str) -> tuple[int, ...]:
    try:
        client_counts = tuple(
            parse_uint(client_count.strip()) for client_count in concurrency.split(",")
        )
    except ValueError:
        client_counts = ()
    if not client_counts or not all(
        1 <= client_count <= MAX_CLIENTS for client_count in client_counts
    ):
        raise UsageError(
            f"invalid --concurrency {concurrency!r}: expected numbers from 1 to {MAX_CLIENTS}",
            hint="separate numbers by commas, such as --concurrency 1,5",
        )
    return client_counts


def measure_ceilings(
    environment: Environment, request: CeilingRequest, directory: Path, progress: ProgressReporter
) -> StackCeilings | CacheCeilings:
    """Measure the ceilings, and record them in a directory like that of a study. Raises
    AutotuneError.
    """
    with open_session(environment, directory, progress) as context:
        session = context.session
        assert isinstance(session, LoadSession), "only a stack of servers has a load session"
        assert isinstance(session.meter, LoadMeter), "only a stack of servers has a load meter"
        begin_study(environment, context, directory, MEASURE_PURPOSE)
        ceilings = (
            _measure_stack(context, session.meter, request)
            if request.tier is None
            else _measure_caches(environment.file.target, context, session.meter, request)
        )
        context.store.record_ceilings(ceilings)
        return ceilings


def _measure_stack(
    context: TrialContext, meter: LoadMeter, request: CeilingRequest
) -> StackCeilings:
    """Put load on the entry tier, once with each number of clients."""
    meter.begin_measurement(is_deployed=False)
    space = context.space.with_measured_memory(request.rss)
    settings = space.build_candidate(request.settings).settings
    deployed = context.session.fleet.deploy(settings)
    differences = tuple(map(str, deployed.mismatches))
    trial = Trial(0, Phase.MEASURE, settings, effective=deployed.effective, differences=differences)
    check_effective_settings(space, trial, request.settings)
    meter.begin_measurement(is_deployed=True)
    host = meter.load_hosts[0]
    generator = _find_closed_generator(host, allow_unpaced=request.allow_unpaced)
    validator = meter.answer_check.validator if meter.answer_check else AnswerValidator(())
    if meter.request.other_endpoints:
        skipped_entries = ", ".join(map(str, meter.request.other_endpoints))
        context.progress.note(
            f"the closed loop loads only the entry {meter.request.endpoint}, not {skipped_entries}"
        )

    def run(concurrency: int, seconds: float) -> ClosedLoopCeiling:
        clients = ClosedLoopClients(concurrency, seconds, meter.timeout, meter.max_rate)
        return closed_loop.run_closed_loop(generator, meter.request, clients, host, validator)

    run(request.client_counts[0], WARM_UP_SECONDS)
    ceilings = []
    for client_count in request.client_counts:
        ceilings.append(run(client_count, LOAD_SECONDS))
        example_text = f" ({ceilings[-1].example})" if ceilings[-1].example else ""
        context.progress.note(
            f"{generator.name}, {client_count} concurrent: {ceilings[-1].rate:.0f}/s{example_text}"
        )
    return StackCeilings(generator.name, tuple(map(StackCeiling.from_result, ceilings)))


def _find_closed_generator(host: Transport, *, allow_unpaced: bool) -> ClosedLoopGenerator:
    """Return the first installed closed-loop generator that the target permits. Raises LoadError."""
    generators = {
        generator_name: generator
        for generator_name, generator in CLOSED_LOOP_GENERATORS.items()
        if generator.is_paced or allow_unpaced
    }
    for generator_name, generator in generators.items():
        if _has_program(host, generator_name):
            return generator
    packages = " or ".join(
        package for generator in generators.values() for package in generator.packages
    )
    unpaced_names = [
        generator_name
        for generator_name in CLOSED_LOOP_GENERATORS
        if generator_name not in generators and _has_program(host, generator_name)
    ]
    alternative_text = (
        f", or allow {' and '.join(unpaced_names)} without rate control: {ALLOW_UNPACED_SETTING}"
        if unpaced_names
        else ""
    )
    raise LoadError(
        f"none of these closed-loop generators is installed on {host.name}: {', '.join(generators)}",
        hint=f"install {packages} on {host.name}{alternative_text}",
    )


def _has_program(host: Transport, program_name: str) -> bool:
    return host.run(("sh", "-c", 'command -v "$0"', program_name)).ok


def _measure_caches(
    target: Target, context: TrialContext, meter: LoadMeter, request: CeilingRequest
) -> CacheCeilings:
    """Measure the peak of the whole stack, then the memcached hosts of one tier alone."""
    # Load hosts are identified by the address at which other hosts reach them; the default is this
    # machine.
    load_addresses = [
        target.hosts[load_host_name].address for load_host_name in target.load.hosts
    ] or ["127.0.0.1"]
    load_hosts = dict(zip(load_addresses, meter.load_hosts, strict=True))
    _check_paced_generator(load_hosts, allow_unpaced=request.allow_unpaced)
    context = replace(context, space=context.space.with_measured_memory(request.rss))
    trial = trials.run_trial(MeasureStep(Phase.MEASURE, request.settings), context, None, None)
    context.record_time_spent()
    if trial.peak is None:
        raise AutotuneError(f"the configuration cannot be used: {trial.failure}", hint=CHECK_HINT)
    check_effective_settings(context.space, trial, request.settings)
    keys_per_request = target.data.keys_per_request
    instances = meter.stack.instances_with_role(Role.CACHE)
    servers = tuple(
        instance.placement.listen
        for instance in instances
        if instance.placement.tier == request.tier
    )
    ceilings: list[CacheCeiling | CachePeak] = []
    load_test = CacheLoadTest(
        servers,
        load_hosts,
        meter.slo,
        keys_per_request,
        meter.max_rate * keys_per_request,
        request.allow_unpaced,
    )
    for ceiling in load_test.measure_ceilings():
        outcome = ceiling.failure or f"{ceiling.rate:.0f} ops/s"
        context.progress.note(f"{ceiling.generator}, {ceiling.shape}: {outcome}")
        ceilings.append(ceiling)
    return CacheCeilings(
        tuple(map(str, servers)),
        tuple(map(CacheCeilingAtSize.from_result, ceilings)),
        round(trial.peak.peak * keys_per_request, 1) if trial.meets_slo else 0.0,
    )


def _check_paced_generator(hosts: Mapping[str, Transport], *, allow_unpaced: bool) -> None:
    """Raise LoadError if only a generator without rate control could put load on the caches."""
    if not allow_unpaced and not all(
        _has_program(host, MUTILATE_PROGRAM) for host in hosts.values()
    ):
        raise LoadError(
            f"the load hosts lack {MUTILATE_PROGRAM}, and memcaslap has no rate control",
            hint=f"build {MUTILATE_PROGRAM} there (scripts/build-mutilate), or allow memcaslap: "
            f"{ALLOW_UNPACED_SETTING}",
        )


@dataclass(frozen=True)
class CacheLoadTest:
    """A load test of the ``servers`` of a tier from ``load_hosts`` (by address).

    Each get reads ``keys_per_request`` keys, as in the stack. ``max_rate`` is the maximum number of
    offered operations/s: the demand of the stack at its own limit. ``allow_unpaced`` permits memcaslap
    although it has no rate control.
    """

    servers: tuple[Endpoint, ...]
    load_hosts: Mapping[str, Transport]
    slo: Slo
    keys_per_request: int
    max_rate: float
    allow_unpaced: bool

    def measure_ceilings(self) -> Iterator[CacheCeiling | CachePeak]:
        """Yield the peak for each object size, measured with mutilate, or else the ceilings from
        memcaslap.

        mutilate is used only if it is installed and starts on every load host. memcaslap also measures
        small objects with as many keys per get as the application reads, which mutilate does not
        support.
        """
        master_host, *_ = self.load_hosts.values()
        peaks: list[CachePeak] = []
        if all(_has_program(host, MUTILATE_PROGRAM) for host in self.load_hosts.values()):
            for peak in self._measure_with_mutilate():
                peaks.append(peak)
                yield peak
            if not _has_program(master_host, "memcaslap"):
                return
        if not any(peak.failure is None for peak in peaks):
            for load_shape in CACHE_SHAPES:
                yield self._measure_with_memcaslap(load_shape, master_host)
        shape_name = f"{CACHE_SHAPES[0].name}, {self.keys_per_request} at once"
        yield self._measure_with_memcaslap(
            replace(CACHE_SHAPES[0], name=shape_name, keys_per_get=self.keys_per_request),
            master_host,
        )

    def _measure_with_mutilate(self) -> Iterator[CachePeak]:
        """Yield the peak for each object size; if caches cannot be filled, yield one failed result."""
        for load_shape in mutilate.CACHE_SHAPES:
            objective = derive_cache_slo(self.slo)
            try:
                yield measure_cache_peak(
                    self.servers, load_shape, self.load_hosts, objective, self.max_rate
                )
            except LoadError as error:
                yield CachePeak(load_shape.name, MUTILATE_PROGRAM, failure=str(error))
                return

    def _measure_with_memcaslap(self, load_shape: MemcaslapShape, host: Transport) -> CacheCeiling:
        """Return a measured ceiling, or a result with the reason for a missing ceiling."""
        max_rate = UNKNOWN_RATE if self.allow_unpaced else self.max_rate
        if reason := find_excess_rate(UNKNOWN_RATE, max_rate):
            failure = f"not measured: {reason} (to allow it, set {ALLOW_UNPACED_SETTING})"
            return CacheCeiling(
                load_shape.name, keys_per_get=load_shape.keys_per_get, failure=failure
            )
        argv = memcaslap.build_command(self.servers, load_shape, CLIENTS_PER_CACHE, LOAD_SECONDS)
        timeout = LOAD_SECONDS + TIMEOUT_MARGIN_SECONDS
        command = LoadCommand(
            host, argv, UNKNOWN_RATE, 0.0, LOAD_SECONDS, timeout, load_shape.build_config()
        )
        (result,) = run_together([command], max_rate)
        if result.returncode in NOT_FOUND_STATUSES:
            hint = f"sudo apt-get install {' '.join(memcaslap.MEMCASLAP_PACKAGES)}"
            raise LoadError(f"memcaslap is not installed on {host.name}", hint=hint)
        return memcaslap.parse_output(result.stdout or result.error_text, load_shape)
