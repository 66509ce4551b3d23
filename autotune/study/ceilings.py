"""`autotune measure --closed` and `--tier cache`: ceilings, of the stack and of its caches alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.environments.base import Environment
from autotune.environments.cache_peak import CachePeak, own_objective, peak
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession
from autotune.errors import AutotuneError
from autotune.loads import memcaslap, mutilate
from autotune.loads.base import LoadError
from autotune.loads.closed import Ceiling, Clients, ClosedLoad
from autotune.loads.memcaslap import PROTOCOL, SHAPES, CacheCeiling, Shape
from autotune.loads.registry import CLOSED
from autotune.services.base import Endpoint, Role, Settings
from autotune.services.registry import speaks
from autotune.study import trial as trials
from autotune.study.context import ProgressReporter, TrialContext, open_study, opened
from autotune.study.measuring import Request
from autotune.study.records import CACHES, STACK, Phase
from autotune.study.schedule import Measure
from autotune.target.messages import instead
from autotune.target.slo import Slo
from autotune.transports.base import Transport

SECONDS = 5.0
WARM_UP_SECONDS = 1.0
CLIENTS = 8  # of memcaslap for each cache host
MARGIN = 15.0  # seconds a transport waits beyond what a program takes by its own account
MISSING = (126, 127)
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
                "concurrency": ceiling.concurrency,
                "rate": round(ceiling.rate, 1),
                "requests": ceiling.requests,
                "errors": dict(ceiling.errors),
                "percentiles": {
                    f"p{at:g}": value for at, value in sorted(ceiling.percentiles.items())
                },
                "failed": ceiling.failed,
            }
            for ceiling in self.ceilings
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
                "objects": ceiling.shape,
                "how": ceiling.how,
                "together": ceiling.together,
                "rate": round(ceiling.rate, 1),
                "gigabits": round(ceiling.gigabits, 4),
                "hits": round(ceiling.hits, 4),
                "failed": ceiling.failed,
            }
            for ceiling in self.ceilings
        ]
        return {
            "of": CACHES,
            "servers": list(self.servers),
            "ceilings": ceilings,
            "chain": round(self.chain, 1),
        }


@dataclass(frozen=True)
class CeilingRequest:
    """Which ones: of the caches of ``tier``, or of the stack with so many ``clients`` in turn."""

    settings: Settings
    tier: str | None
    clients: tuple[int, ...]


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
    if cache_tier is not None:
        caches = [name for name, tier in target.tiers.items() if speaks(tier.service, PROTOCOL)]
        if cache_tier not in caches:
            raise AutotuneError(
                f"tier {cache_tier!r} has no {PROTOCOL} to measure",
                hint=instead(cache_tier, caches),
            )
        return CeilingRequest(request.settings, cache_tier, ())
    return CeilingRequest(request.settings, None, _numbers(concurrency))


def measure(
    environment: Environment, request: CeilingRequest, directory: Path, progress: ProgressReporter
) -> OfStack | OfCaches:
    """Measure them. Raises AutotuneError."""
    if request.tier is not None:
        return of_caches(environment, request.tier, request.settings, directory, progress)
    return of_stack(environment, request.settings, request.clients, directory, progress)


def _numbers(concurrency: str) -> tuple[int, ...]:
    try:
        clients = [int(number) for number in concurrency.split(",")]
    except ValueError:
        clients = []
    if not clients or not all(1 <= number <= MOST_CLIENTS for number in clients):
        raise AutotuneError(
            f"--concurrency {concurrency!r} is no list of numbers from 1 to {MOST_CLIENTS}",
            hint="such as --concurrency 1,5",
        )
    return tuple(clients)


def of_stack(
    environment: Environment,
    settings: Settings,
    concurrency: Sequence[int],
    directory: Path,
    progress: ProgressReporter,
) -> OfStack:
    """Load the target's own entry with so many clients in turn. Raises AutotuneError."""
    with opened(environment, directory, progress) as context:
        meter = _meter(environment, context, directory)
        context.session.fleet.deploy(context.space.candidate(settings).settings)
        host = meter.load_hosts[0]
        load = _available(host)
        ceilings = []
        for index, clients in enumerate(concurrency):
            if index == 0:
                _clients(load, meter, Clients(clients, WARM_UP_SECONDS, meter.timeout))
            ceiling = _clients(load, meter, Clients(clients, SECONDS, meter.timeout))
            progress.note(f"{load.name}, {clients} at a time: {ceiling.rate:.0f}/s")
            ceilings.append(ceiling)
        measured = OfStack(load.name, tuple(ceilings))
        context.store.ceilings(measured.record())
        return measured


def of_caches(
    environment: Environment,
    tier: str,
    settings: Settings,
    directory: Path,
    progress: ProgressReporter,
) -> OfCaches:
    """The peak of the whole stack, then a tier's memcached hosts by themselves.

    Raises AutotuneError.
    """
    with opened(environment, directory, progress) as context:
        meter = _meter(environment, context, directory)
        caches = [part for part in meter.stack.of_role(Role.CACHE) if part.site.tier == tier]
        chain = _chain(environment, context, settings)
        servers = tuple(part.site.listen for part in caches)
        keys = environment.file.target.data.keys_per_request
        ceilings: list[CacheCeiling | CachePeak] = []
        for ceiling in _alone(servers, _by_address(environment, meter), meter.slo, keys):
            progress.note(f"{ceiling.how}, {ceiling.shape}: {ceiling.rate:.0f} ops/s")
            ceilings.append(ceiling)
        measured = OfCaches(tuple(map(str, servers)), tuple(ceilings), chain)
        context.store.ceilings(measured.record())
        return measured


def _alone(
    servers: tuple[Endpoint, ...], hosts: Mapping[str, Transport], slo: Slo, keys: int
) -> Iterator[CacheCeiling | CachePeak]:
    """The peak of each shape by mutilate where the load hosts have it, else memcaslap's ceiling; and
    what only memcaslap does: many keys at once, as the application asks."""
    master, *_ = hosts.values()
    if all(map(_has_mutilate, hosts.values())):
        for shape in mutilate.SHAPES:
            yield peak(servers, shape, hosts, own_objective(slo))
        if not master.run(("sh", "-c", "command -v memcaslap")).ok:
            return
    else:
        for small in SHAPES:
            yield _cache(servers, small, master)
    yield _cache(servers, as_the_chain_asks(keys), master)


def _has_mutilate(host: Transport) -> bool:
    return host.run(("sh", "-c", "command -v mutilate")).ok


def _by_address(environment: Environment, meter: LoadMeter) -> dict[str, Transport]:
    """The load hosts by the address that others reach them at; without any, this machine."""
    named = [
        environment.file.target.hosts[name].address for name in environment.file.target.load.hosts
    ]
    return dict(zip(named or ["127.0.0.1"], meter.load_hosts, strict=True))


def as_the_chain_asks(keys: int) -> Shape:
    """Small objects, as many of them at once as a request of the application asks for."""
    return replace(SHAPES[0], name=f"{SHAPES[0].name}, {keys} at once", together=keys)


def _chain(environment: Environment, context: TrialContext, settings: Settings) -> float:
    done = trials.run(Measure(Phase.MEASURE, settings), context, None, None)
    context.store.spent(context.clock.collect())
    if done.peak is None:
        raise AutotuneError(f"the configuration cannot be used: {done.failure}")
    return done.peak.peak * environment.file.target.data.keys_per_request


def _meter(environment: Environment, context: TrialContext, directory: Path) -> LoadMeter:
    """The way to the stack; what is done with it is on record like any study."""
    session = context.session
    assert isinstance(session, LoadSession), "asked for stacks of servers only"
    assert isinstance(session.meter, LoadMeter), "asked for stacks of servers only"
    open_study(environment, context, directory)
    return session.meter


def _available(host: Transport) -> ClosedLoad:
    for name, load in CLOSED.items():
        if host.run(("sh", "-c", 'command -v "$0"', name)).ok:
            return load
    packages = " or ".join(package for load in CLOSED.values() for package in load.packages)
    raise LoadError(
        f"{host.name} has no closed-loop generator: {', '.join(CLOSED)}",
        hint=f"install {packages} there",
    )


def _clients(load: ClosedLoad, meter: LoadMeter, clients: Clients) -> Ceiling:
    bound = clients.seconds + 2 * clients.timeout + MARGIN
    done = meter.load_hosts[0].run(load.argv(meter.request, clients), timeout=bound)
    return load.parse(done.stdout or done.said, clients)


def _cache(servers: tuple[Endpoint, ...], shape: Shape, host: Transport) -> CacheCeiling:
    temporary = host.run(("mktemp", "--tmpdir", "autotune-memcaslap.XXXXXXXX"))
    if not temporary.ok:
        raise LoadError(f"no temporary file on {host.name}: {temporary.said}")
    config = temporary.stdout.strip()
    try:
        host.put(shape.config(), config)
        argv = memcaslap.argv(servers, shape, config, CLIENTS, SECONDS)
        done = host.run(argv, timeout=SECONDS + MARGIN)
        if done.returncode in MISSING:
            hint = f"sudo apt-get install {' '.join(memcaslap.PACKAGES)}"
            raise LoadError(f"{host.name} has no memcaslap", hint=hint)
        return memcaslap.parse(done.stdout or done.said, shape)
    finally:
        host.run(("rm", "--force", config))
