"""`autotune measure --closed` and `--tier cache`: ceilings, of the stack and of its caches alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.environments.base import Environment
from autotune.environments.cache_peak import CachePeak, own_objective, peak
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession
from autotune.errors import AutotuneError
from autotune.loads import closed_loop, memcaslap, mutilate
from autotune.loads.answers import Validator
from autotune.loads.base import LoadError
from autotune.loads.closed import Ceiling, Clients, ClosedLoad
from autotune.loads.memcaslap import PROTOCOL, SHAPES, CacheCeiling, Shape
from autotune.loads.offer import UNKNOWN, LoadCommand, excess, run_together
from autotune.loads.registry import CLOSED
from autotune.services.base import Endpoint, Role, Settings
from autotune.services.registry import speaks
from autotune.strict import whole
from autotune.study import trial as trials
from autotune.study.context import ProgressReporter, TrialContext, open_study, opened
from autotune.study.measuring import Request
from autotune.study.records import CACHES, MEASURED, STACK, Phase
from autotune.study.schedule import Measure
from autotune.target.messages import instead
from autotune.target.model import Target
from autotune.target.slo import Slo
from autotune.transports.base import Transport

SECONDS = 5.0
WARM_UP_SECONDS = 1.0
CLIENTS = 8  # of memcaslap for each cache host
MARGIN = 15.0  # seconds a transport waits beyond what a program takes by its own account
MISSING = (126, 127)
MUTILATE = "mutilate"
ALLOWED = "`load: {unpaced: true}`"
MOST_CLIENTS = 500  # a closed loop of more has a thousand descriptors and one core to do it with


@dataclass(frozen=True)
class OfStack:
    """Closed loops against the entry, by number of clients."""

    generator: str
    ceilings: tuple[Ceiling, ...]

    def record(self) -> dict[str, Any]:
        """As it is kept: ``ceilings`` by number of clients, latencies in seconds."""
        ceilings = [
            {
                "concurrency": c.concurrency,
                "rate": round(c.rate, 1),
                "requests": c.requests,
                "errors": dict(c.errors),
                "percentiles": {f"p{at:g}": value for at, value in sorted(c.percentiles.items())},
                "failed": c.failed,
                "limited": c.limited,
                "example": c.example,
            }
            for c in self.ceilings
        ]
        return {"of": STACK, "generator": self.generator, "closed": True, "ceilings": ceilings}


@dataclass(frozen=True)
class OfCaches:
    """The memcached hosts alone, by object size."""

    servers: tuple[str, ...]
    ceilings: tuple[CacheCeiling | CachePeak, ...]
    chain: float
    """Keys/s that the whole stack asks of them at its peak."""

    def record(self) -> dict[str, Any]:
        """As it is kept: ``ceilings`` by object size, and ``how`` each was measured: ``rate`` in
        operations/s, ``gigabits`` in Gb/s, ``hits`` as a fraction of the gets, ``together`` keys
        asked for at once; ``chain`` in keys/s."""
        ceilings = [
            {
                "objects": c.shape,
                "how": c.how,
                "together": c.together,
                "rate": round(c.rate, 1),
                "gigabits": round(c.gigabits, 4),
                "hits": round(c.hits, 4),
                "failed": c.failed,
            }
            for c in self.ceilings
        ]
        chain = round(self.chain, 1)
        return {"of": CACHES, "servers": list(self.servers), "ceilings": ceilings, "chain": chain}


@dataclass(frozen=True)
class CeilingRequest:
    """What to measure: the caches of ``tier``, or the stack with each number of ``clients`` in turn.

    ``unpaced``: programs that keep no rate may be used.
    """

    settings: Settings
    tier: str | None
    clients: tuple[int, ...]
    unpaced: bool = False


def requested(
    environment: Environment, request: Request, cache_tier: str | None, concurrency: str
) -> CeilingRequest:
    """``concurrency`` is ``"1,5"``. Raises AutotuneError for what has no ceiling to measure."""
    target = environment.file.target
    if request.against is not None or request.repeat > 1:
        raise AutotuneError("a ceiling is measured once: no --against, no --repeat")
    if target.command is not None or target.simulated is not None:
        raise AutotuneError(
            "only a stack of servers has a ceiling to measure", hint="leave --closed and --tier out"
        )
    if cache_tier is None:
        return CeilingRequest(request.settings, None, _clients(concurrency), target.load.unpaced)
    caches = [name for name, tier in target.tiers.items() if speaks(tier.service, PROTOCOL)]
    if cache_tier not in caches:
        raise AutotuneError(
            f"tier {cache_tier!r} has no {PROTOCOL} to measure", hint=instead(cache_tier, caches)
        )
    return CeilingRequest(request.settings, cache_tier, (), target.load.unpaced)


def _clients(concurrency: str) -> tuple[int, ...]:
    try:
        clients = tuple(whole(number.strip()) for number in concurrency.split(","))
    except ValueError:
        clients = ()
    if not clients or not all(1 <= number <= MOST_CLIENTS for number in clients):
        raise AutotuneError(
            f"--concurrency {concurrency!r} is no list of numbers from 1 to {MOST_CLIENTS}",
            hint="such as --concurrency 1,5",
        )
    return clients


def measure(
    environment: Environment, request: CeilingRequest, directory: Path, progress: ProgressReporter
) -> OfStack | OfCaches:
    """Measure the ceilings, and put them on record like any study. Raises AutotuneError."""
    with opened(environment, directory, progress) as context:
        session = context.session
        assert isinstance(session, LoadSession), "asked for stacks of servers only"
        assert isinstance(session.meter, LoadMeter), "asked for stacks of servers only"
        open_study(environment, context, directory, MEASURED)
        measured = (
            _of_stack(context, session.meter, request)
            if request.tier is None
            else _of_caches(environment.file.target, context, session.meter, request)
        )
        context.store.ceilings(measured.record())
        return measured


def _of_stack(context: TrialContext, meter: LoadMeter, request: CeilingRequest) -> OfStack:
    """Load the target's own entry with each number of clients in turn."""
    meter.begin_trial(deployed=False)
    context.session.fleet.deploy(context.space.candidate(request.settings).settings)
    meter.begin_trial(deployed=True)
    host = meter.load_hosts[0]
    load = _closed_load(host, unpaced=request.unpaced)
    validator = meter.answers.validator if meter.answers else Validator(())

    def run(concurrency: int, seconds: float) -> Ceiling:
        clients = Clients(concurrency, seconds, meter.timeout, meter.max_rate)
        return closed_loop.run(load, meter.request, clients, host, validator)

    run(request.clients[0], WARM_UP_SECONDS)
    ceilings = []
    for clients in request.clients:
        ceilings.append(run(clients, SECONDS))
        wrong = f" ({ceilings[-1].example})" if ceilings[-1].example else ""
        context.progress.note(f"{load.name}, {clients} at a time: {ceilings[-1].rate:.0f}/s{wrong}")
    return OfStack(load.name, tuple(ceilings))


def _closed_load(host: Transport, *, unpaced: bool) -> ClosedLoad:
    """The first closed-loop generator that the host has and the target allows. Raises LoadError."""
    allowed = {name: load for name, load in CLOSED.items() if load.paced or unpaced}
    for name, load in allowed.items():
        if _has(host, name):
            return load
    packages = " or ".join(package for load in allowed.values() for package in load.packages)
    others = [name for name in CLOSED if name not in allowed and _has(host, name)]
    more = f", or allow {' and '.join(others)}, which keeps no rate: {ALLOWED}" if others else ""
    raise LoadError(
        f"{host.name} has no closed-loop generator: {', '.join(allowed)}",
        hint=f"install {packages} there{more}",
    )


def _has(host: Transport, program: str) -> bool:
    return host.run(("sh", "-c", 'command -v "$0"', program)).ok


def _of_caches(
    target: Target, context: TrialContext, meter: LoadMeter, request: CeilingRequest
) -> OfCaches:
    """The peak of the whole stack, then a tier's memcached hosts by themselves."""
    # Load hosts by the address that others reach them at; without any, this machine.
    addresses = [target.hosts[name].address for name in target.load.hosts] or ["127.0.0.1"]
    hosts = dict(zip(addresses, meter.load_hosts, strict=True))
    _require_pace(hosts, unpaced=request.unpaced)
    done = trials.run(Measure(Phase.MEASURE, request.settings), context, None, None)
    context.spent()
    if done.peak is None:
        raise AutotuneError(f"the configuration cannot be used: {done.failure}")
    keys = target.data.keys_per_request
    parts = meter.stack.of_role(Role.CACHE)
    servers = tuple(part.site.listen for part in parts if part.site.tier == request.tier)
    ceilings: list[CacheCeiling | CachePeak] = []
    alone = CachesAlone(servers, hosts, meter.slo, keys, meter.max_rate * keys, request.unpaced)
    for ceiling in alone.ceilings():
        outcome = ceiling.failed or f"{ceiling.rate:.0f} ops/s"
        context.progress.note(f"{ceiling.how}, {ceiling.shape}: {outcome}")
        ceilings.append(ceiling)
    return OfCaches(tuple(map(str, servers)), tuple(ceilings), done.peak.peak * keys)


def _require_pace(hosts: Mapping[str, Transport], *, unpaced: bool) -> None:
    """Raises LoadError if only a program that keeps no rate could load the caches."""
    if not unpaced and not all(_has(host, MUTILATE) for host in hosts.values()):
        raise LoadError(
            f"the load hosts lack {MUTILATE}, and memcaslap keeps no rate",
            hint=f"build {MUTILATE} there (scripts/build-mutilate), or allow memcaslap: {ALLOWED}",
        )


@dataclass(frozen=True)
class CachesAlone:
    """The ``servers`` of a tier, loaded from ``hosts`` by address, ``keys`` at once as in the stack.

    ``max_rate`` is the most operations/s that they are offered: what the stack asks of them at its own
    limit. ``unpaced``: memcaslap, which keeps no rate, may load them all the same.
    """

    servers: tuple[Endpoint, ...]
    hosts: Mapping[str, Transport]
    slo: Slo
    keys: int
    max_rate: float
    unpaced: bool

    def ceilings(self) -> Iterator[CacheCeiling | CachePeak]:
        """The peak of each shape by mutilate, where the load hosts have it and it starts, else the
        ceilings by memcaslap. Also what only memcaslap does: small objects, as many at once as the
        application asks for."""
        master, *_ = self.hosts.values()
        peaks: list[CachePeak] = []
        if all(_has(host, MUTILATE) for host in self.hosts.values()):
            for peak_of_shape in self._by_mutilate():
                peaks.append(peak_of_shape)
                yield peak_of_shape
            if not _has(master, "memcaslap"):
                return
        if not any(peak_of_shape.failed is None for peak_of_shape in peaks):
            for small in SHAPES:
                yield self._by_memcaslap(small, master)
        at_once = f"{SHAPES[0].name}, {self.keys} at once"
        yield self._by_memcaslap(replace(SHAPES[0], name=at_once, together=self.keys), master)

    def _by_mutilate(self) -> Iterator[CachePeak]:
        """The peak of each shape. Where the caches cannot be filled, stops there and gives the reason."""
        for shape in mutilate.SHAPES:
            objective = own_objective(self.slo)
            try:
                yield peak(self.servers, shape, self.hosts, objective, self.max_rate)
            except LoadError as error:
                yield CachePeak(shape.name, MUTILATE, failed=str(error))
                return

    def _by_memcaslap(self, shape: Shape, host: Transport) -> CacheCeiling:
        """A ceiling, or why none was measured."""
        most = UNKNOWN if self.unpaced else self.max_rate
        if why := excess(UNKNOWN, most):
            failed = f"not measured: {why}; {ALLOWED} allows it"
            return CacheCeiling(shape.name, together=shape.together, failed=failed)
        argv = memcaslap.argv(self.servers, shape, CLIENTS, SECONDS)
        bound = SECONDS + MARGIN
        command = LoadCommand(host, argv, UNKNOWN, 0.0, SECONDS, bound, shape.config())
        (done,) = run_together([command], most)
        if done.returncode in MISSING:
            hint = f"sudo apt-get install {' '.join(memcaslap.PACKAGES)}"
            raise LoadError(f"{host.name} has no memcaslap", hint=hint)
        return memcaslap.parse(done.stdout or done.error_text, shape)
