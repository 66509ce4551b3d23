"""`autotune measure --closed` and `--tier cache`: ceilings, of the stack and of its caches alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.environments.base import Bed
from autotune.environments.cache_peak import CachePeak, own_objective, peak
from autotune.environments.load_meter import Gauge
from autotune.errors import AutotuneError
from autotune.loads import memcaslap, mutilate
from autotune.loads.closed import Ceiling, Clients, ClosedLoad
from autotune.loads.errors import LoadError
from autotune.loads.memcaslap import SHAPES, CacheCeiling, Shape
from autotune.loads.registry import CLOSED
from autotune.services.base import Endpoint, Role, Settings
from autotune.study import session
from autotune.study import trial as trials
from autotune.study.progress import Narrator
from autotune.study.records import CACHES, STACK, Phase
from autotune.study.schedule import Measure
from autotune.study.start import open_study
from autotune.study.trial import Bench
from autotune.target.slo import Slo
from autotune.transports.base import Transport

SECONDS = 5.0
WARM_UP_SECONDS = 1.0
CLIENTS = 8  # of memcaslap for each cache host
MARGIN = 15.0  # seconds a transport waits beyond what a program takes by its own account
MISSING = (126, 127)


@dataclass(frozen=True)
class OfStack:
    """Closed loops against the entry, by number of clients."""

    generator: str
    ceilings: tuple[Ceiling, ...]

    def record(self) -> dict[str, Any]:
        """As it is kept: ``ceilings`` by number of clients, latencies in seconds."""
        found = [
            {
                "concurrency": one.concurrency,
                "rate": round(one.rate, 1),
                "requests": one.requests,
                "errors": dict(one.errors),
                "percentiles": {f"p{at:g}": value for at, value in sorted(one.percentiles.items())},
                "failed": one.failed,
            }
            for one in self.ceilings
        ]
        return {"of": STACK, "generator": self.generator, "closed": True, "ceilings": found}


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
        found = [
            {
                "objects": one.shape,
                "how": one.how,
                "together": one.together,
                "rate": round(one.rate, 1),
                "gigabits": round(one.gigabits, 4),
                "hits": round(one.hits, 4),
                "failed": one.failed,
            }
            for one in self.ceilings
        ]
        return {
            "of": CACHES,
            "servers": list(self.servers),
            "ceilings": found,
            "chain": round(self.chain, 1),
        }


def of_stack(
    bed: Bed, settings: Settings, concurrency: Sequence[int], directory: Path, narrator: Narrator
) -> OfStack:
    """Load the target's own entry with so many clients in turn. Raises AutotuneError."""
    with session.opened(bed, directory, narrator) as bench:
        gauge = _gauge(bed, bench, directory)
        bench.equipment.fleet.deploy(bench.space.candidate(settings).settings)
        host = gauge.load_hosts[0]
        load = _available(host)
        found = []
        for index, clients in enumerate(concurrency):
            if index == 0:
                _clients(load, gauge, Clients(clients, WARM_UP_SECONDS, gauge.timeout))
            ceiling = _clients(load, gauge, Clients(clients, SECONDS, gauge.timeout))
            narrator.note(f"{load.name}, {clients} at a time: {ceiling.rate:.0f}/s")
            found.append(ceiling)
        measured = OfStack(load.name, tuple(found))
        bench.store.ceilings(measured.record())
        return measured


def of_caches(
    bed: Bed, tier: str, settings: Settings, directory: Path, narrator: Narrator
) -> OfCaches:
    """The peak of the whole stack, then a tier's memcached hosts by themselves.

    Raises AutotuneError.
    """
    with session.opened(bed, directory, narrator) as bench:
        gauge = _gauge(bed, bench, directory)
        caches = [part for part in gauge.stack.of_role(Role.CACHE) if part.site.tier == tier]
        chain = _chain(bed, bench, settings)
        servers = tuple(part.site.listen for part in caches)
        keys = bed.file.target.data.keys_per_request
        found: list[CacheCeiling | CachePeak] = []
        for ceiling in _alone(servers, _by_address(bed, gauge), gauge.slo, keys):
            narrator.note(f"{ceiling.how}, {ceiling.shape}: {ceiling.rate:.0f} ops/s")
            found.append(ceiling)
        measured = OfCaches(tuple(map(str, servers)), tuple(found), chain)
        bench.store.ceilings(measured.record())
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


def _by_address(bed: Bed, gauge: Gauge) -> dict[str, Transport]:
    """The load hosts by the address that others reach them at; without any, this machine."""
    named = [bed.file.target.hosts[name].address for name in bed.file.target.load.hosts]
    return dict(zip(named or ["127.0.0.1"], gauge.load_hosts, strict=True))


def as_the_chain_asks(keys: int) -> Shape:
    """Small objects, as many of them at once as a request of the application asks for."""
    return replace(SHAPES[0], name=f"{SHAPES[0].name}, {keys} at once", together=keys)


def _chain(bed: Bed, bench: Bench, settings: Settings) -> float:
    done = trials.run(Measure(Phase.MEASURE, settings), bench, None, None)
    bench.store.spent(bench.clock.collect())
    if done.peak is None:
        raise AutotuneError(f"the configuration cannot be used: {done.failure}")
    return done.peak.peak * bed.file.target.data.keys_per_request


def _gauge(bed: Bed, bench: Bench, directory: Path) -> Gauge:
    """The way to the stack; what is done with it is on record like any study."""
    gauge = bench.equipment.gauge
    assert gauge is not None, "asked for stacks of servers only: they have one"
    open_study(bed, bench, directory)
    return gauge


def _available(host: Transport) -> ClosedLoad:
    for name, load in CLOSED.items():
        if host.run(("sh", "-c", 'command -v "$0"', name)).ok:
            return load
    packages = " or ".join(package for load in CLOSED.values() for package in load.packages)
    raise LoadError(
        f"{host.name} has no closed-loop generator: {', '.join(CLOSED)}",
        hint=f"install {packages} there",
    )


def _clients(load: ClosedLoad, gauge: Gauge, clients: Clients) -> Ceiling:
    bound = clients.seconds + 2 * clients.timeout + MARGIN
    done = gauge.load_hosts[0].run(load.argv(gauge.request, clients), timeout=bound)
    return load.parse(done.stdout or done.said, clients)


def _cache(servers: tuple[Endpoint, ...], shape: Shape, host: Transport) -> CacheCeiling:
    made = host.run(("mktemp", "--tmpdir", "autotune-memcaslap.XXXXXXXX"))
    if not made.ok:
        raise LoadError(f"no temporary file on {host.name}: {made.said}")
    config = made.stdout.strip()
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
