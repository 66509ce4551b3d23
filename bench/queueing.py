"""Stacks whose presets are far from the optimum, built from queueing formulas and the catalogue.

Each workload has a property that authors of guides do not expect. Requests wait for I/O, memory is
short, the database is the bottleneck, TLS handshakes are expensive, each request opens a connection, or
the cache is small. Workloads are random, and the best preset is 35 to 70 % below the optimum. Every
component is a station with a capacity in requests/s. The stack sustains a soft minimum of these
capacities. Parameters that are not in the formulas have random effects, as in `bench.catalogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from pathlib import Path

import numpy as np

from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import list_recommended_changes
from autotune.environments.simulated import DEFAULT_FACTS
from autotune.services.base import Effect, LoadTrait, Settings
from autotune.services.diagnosis import Resource
from autotune.space.dimension import PRESET_NAMES, AdoptedValues
from autotune.space.repair import InfeasibleRule
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from bench.catalogue import _effect
from bench.stacks import Parts, Stack, _climb, _drawn, _unit

TARGET = Path(__file__).parent / "queueing.yaml"
KINDS = ("io-wait", "memory", "database", "tls", "churn", "small-cache", "mixed")
LACKING = (
    35.0,
    70.0,
)  # minimum and maximum distance of the best preset from the optimum, in percent
SHARPNESS = 4.0
UNKNOWN = 0.3  # factor by which the effects of `bench.catalogue` are multiplied
GIB, MIB = 2**30, 2**20
CLASSES = ("right", "wrong")
CHURNING = 4  # a load with fewer requests per session has the trait CHURN
DECISIVE = 3  # number of parameters that are wrongly classed if the classes are "wrong"
KERNEL = ("net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_tw_reuse",
          "net.ipv4.ip_local_port_range", "net.ipv4.tcp_fin_timeout")  # fmt: skip
# Last parts of the names of parameters in the formulas. All other parameters get random effects.
KNOWN = frozenset((
    "worker_processes", "worker_connections", "backlog", "somaxconn", "keepalive_timeout",
    "ssl_session_cache", "ssl_session_timeout", "upstream_keepalive", "access_log_buffer",
    "tcp_tw_reuse", "ip_local_port_range", "max_children", "pm", "start_servers", "min_spare_servers",
    "max_spare_servers", "listen_backlog", "fastcgi_keep_conn", "fastcgi_keepalive", "opcache_enable",
    "opcache_memory_consumption", "opcache_max_accelerated_files", "threads", "connections", "memory",
    "growth_factor", "innodb_buffer_pool_size", "innodb_log_file_size", "innodb_flush_method",
    "max_connections", "thread_handling", "thread_pool_size", "table_open_cache", "tmp_table_size",
    "max_heap_table_size", "nofile",
))  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """The hardware and the needs of a workload.

    Times are in seconds, and sizes in MB. Times, counts and sizes without a comment are per request.
    """

    lb: float = (
        2  # CPUs of the load balancer; the next three fields are the CPUs of the other tiers
    )
    web: float = 4
    cache: float = 2
    db: float = 4
    web_memory: float = 8192
    db_memory: float = 8192
    cache_memory: float = 8192
    php: float = 0.004
    waits: float = 0.005  # seconds per request of waiting for systems outside of the stack
    rss: float = 30  # MB of a child process of PHP-FPM
    code: float = 60  # MB of compiled scripts; ``scripts`` is the number of scripts
    scripts: float = 3000
    gets: float = 10
    dataset: float = 60  # MB of data that the cache should contain
    always: float = 1  # queries per request that do not depend on the cache
    on_miss: float = 4  # additional queries per request if every get misses
    query: float = 0.0004
    pages: float = 1500  # MB of data that the buffer pool should contain
    reads: float = 2  # pages per query
    disk: float = 8000  # pages that the disk can read per second
    writes: float = 0.2
    log: float = 200
    temporary: float = 2
    tables: float = 500
    handshake: float = 0.0
    requests: float = 20  # requests per session
    gap: float = 2  # seconds between requests of a client
    away: float = 100  # seconds between sessions of a client
    connect: float = 0.00005
    upstream: float = 0.00005
    burst: float = 300  # connections that arrive at the same time


def drawn(kind: str, rng: np.random.Generator) -> Workload:
    """Return a random workload of a kind. ``mixed`` combines weaker properties of three other kinds."""
    if kind == "mixed":
        chosen = rng.choice([k for k in KINDS if k != "mixed"], 3, replace=False)
        load = _hardware(rng)
        for each in chosen:
            load = replace(load, **_traits(str(each), rng, milder=0.6))
        return load
    return replace(_hardware(rng), **_traits(kind, rng))


def _hardware(rng: np.random.Generator) -> Workload:
    return Workload(
        lb=float(rng.choice([1, 2, 4])), web=float(rng.choice([4, 8])),
        db=float(rng.choice([2, 4, 8])), cache=float(rng.choice([1, 2, 4])),
        php=rng.uniform(0.002, 0.008), waits=rng.uniform(0, 0.01), gets=rng.uniform(3, 20),
        query=rng.uniform(0.0002, 0.0008), burst=rng.uniform(100, 1500),
    )  # fmt: skip


def _traits(kind: str, rng: np.random.Generator, milder: float = 1.0) -> dict[str, float]:
    def some(low: float, high: float) -> float:
        return float(low + (high - low) * rng.random() * milder)

    if kind == "io-wait":
        return {"waits": some(0.2, 1.2), "php": some(0.001, 0.004), "web_memory": 32_768.0}
    if kind == "memory":
        return {"rss": some(80, 200), "web_memory": 4096.0, "waits": some(0.01, 0.08)}
    if kind == "database":
        return {"always": some(6, 20), "temporary": some(25, 120), "tables": some(1500, 7000),
                "pages": some(3000, 7000), "writes": some(0.3, 2), "log": some(500, 2500)}  # fmt: skip
    if kind == "tls":
        return {"handshake": some(0.001, 0.004), "gap": some(3, 30), "requests": some(10, 40),
                "away": some(300, 3000), "php": some(0.0005, 0.002)}  # fmt: skip
    if kind == "churn":
        return {"requests": some(1, 3), "connect": some(0.0003, 0.001), "upstream": some(0.0005, 0.002),
                "burst": some(1000, 8000), "php": some(0.0005, 0.002)}  # fmt: skip
    return {"dataset": some(600, 4000), "on_miss": some(15, 50), "pages": some(2000, 8000)}


@dataclass(frozen=True)
class Problem:
    """A search space and a workload. ``effects`` are those of parameters that are not in the formulas."""

    space: SearchSpace
    load: Workload
    effects: Mapping[str, Callable[[float], float]]

    def stations(self, settings: Settings) -> dict[str, float]:
        """Return the requests/s that each station sustains, or no stations if the settings fail."""
        try:
            kept = self.space.build_candidate(settings).settings
        except InfeasibleRule:
            return {}
        rates = _stations(self.load, kept)
        active, losses = (
            self.space.active_parameters(kept),
            dict.fromkeys(("lb", "web", "cache", "db"), 0.0),
        )
        for dimension in self.space.tunable_dimensions:
            if dimension.name in self.effects and dimension.name in active:
                at = _unit(dimension, kept[dimension.name])
                losses[dimension.name.partition(".")[0]] += UNKNOWN * self.effects[dimension.name](
                    at
                )
        return {part: rate * exp(-losses[part.partition(".")[0]]) for part, rate in rates.items()}

    def peak(self, settings: Settings) -> float | None:
        rates = self.stations(settings)
        if not rates:
            return None
        return total(rates)

    def advise(self, settings: Settings, _: float) -> tuple[str, ...]:
        """Return the changes that the catalogue recommends for the true bottleneck."""
        rates = self.stations(settings)
        if not rates:
            return ()
        kept = self.space.build_candidate(settings).settings
        tier, service, resource = _cause(self.load, kept, min(rates, key=lambda part: rates[part]))
        return list_recommended_changes(Bottleneck(tier, service, "", Resource(resource), "", 1.0))

    def parts(self, settings: Settings) -> Parts:
        """Return the log capacities that probes can observe: those of CPUs and of PHP's workers."""
        rates = self.stations(settings)
        return {part: (log(rates[part]), tiers) for part, tiers in SEEN.items() if rates}


SEEN: Mapping[str, tuple[str, ...]] = {
    "lb.cpu": ("lb",), "web.cpu": ("web",), "web.workers": ("web", "cache", "db"),
    "cache.cpu": ("cache",), "db.cpu": ("db",),
}  # fmt: skip


def total(rates: Mapping[str, float]) -> float:
    """Return the requests/s that the stack sustains, the soft minimum of the stations' ``rates``."""
    return float((np.array([*rates.values()]) ** -SHARPNESS).sum() ** (-1 / SHARPNESS))


def _sat(value: float, half: float) -> float:
    return value / (value + half)


def _crowded(workers: float, cpus: float, cost: float) -> float:
    return 1.0 / (1.0 + cost * max(0.0, log(workers / cpus)) ** 2)


def _missing(load: Workload, s: Settings) -> float:
    """Return the share of gets that miss the cache."""
    held = float(s["cache.memcached.memory"]) * (
        1 - 0.2 * (float(s["cache.memcached.growth_factor"]) - 1.05)
    )
    return 1 - 0.98 * min(1.0, held / load.dataset) ** 0.4


def _swapped(load: Workload, s: Settings) -> float:
    used = float(s["web.php_fpm.max_children"]) * load.rss + 400
    return max(
        0.0, (used + float(s["web.php_ini.opcache_memory_consumption"])) / load.web_memory - 0.9
    )


def _spilt(load: Workload, s: Settings) -> float:
    """Return the share of temporary tables that are written to disk."""
    room = min(float(s["db.mariadb.tmp_table_size"]), float(s["db.mariadb.max_heap_table_size"]))
    return 1 / (1 + (room / load.temporary) ** 3)


def _database(load: Workload, s: Settings, queries: float) -> tuple[dict[str, float], float]:
    """Return the capacities of the database's stations, and the seconds per query."""
    pooled = s["db.mariadb.thread_handling"] == "pool-of-threads"
    threads = (
        float(s["db.mariadb.thread_pool_size"]) if pooled else float(s["web.php_fpm.max_children"])
    )
    missed = 1.01 - min(1.0, float(s["db.mariadb.innodb_buffer_pool_size"]) / load.pages) ** 0.5
    spilt, reopened = (
        _spilt(load, s),
        max(0.0, 1 - float(s["db.mariadb.table_open_cache"]) / load.tables),
    )
    work = load.query * (1 + 2.5 * spilt + 1.5 * reopened)
    logged = 1 + 4 * max(0.0, 1 - float(s["db.mariadb.innodb_log_file_size"]) / load.log)
    flush = {"O_DIRECT": 1.0, "fsync": 1.15, "O_DSYNC": 1.4}[
        str(s["db.mariadb.innodb_flush_method"])
    ]
    transfers = queries * (load.reads * missed + 1.5 * spilt) + load.writes * logged * flush
    cpu = load.db / (queries * work) * _crowded(max(threads, load.db), 4 * load.db, 0.35)
    if pooled:
        cpu *= min(1.0, threads / load.db) ** 0.8 * _crowded(
            max(threads, load.db), 2 * load.db, 0.3
        )
    stations = {"db.cpu": cpu, "db.disk": load.disk / transfers}
    return stations, work + (load.reads * missed + 1.5 * spilt) * 0.0004


def _web(load: Workload, s: Settings, inside: float) -> dict[str, float]:
    children, spare = (
        float(s["web.php_fpm.max_children"]),
        float(s["web.php_fpm.min_spare_servers"]),
    )
    forked = {"static": 1.0, "dynamic": 0.75 + 0.2 * _sat(spare, 4), "ondemand": 0.7}
    kept = bool(s["web.nginx.fastcgi_keep_conn"])
    idle = float(s["web.nginx.fastcgi_keepalive"]) * float(s["web.nginx.worker_processes"])
    cached = min(1.0, float(s["web.php_ini.opcache_memory_consumption"]) / load.code,
                 float(s["web.php_ini.opcache_max_accelerated_files"]) / load.scripts)  # fmt: skip
    cached *= bool(s["web.php_ini.opcache_enable"])
    connecting = load.upstream * (0.15 + 0.85 / (1 + idle / 16) if kept else 1.0)
    work = load.php * (1 + 3 * (1 - cached)) + connecting
    slow = exp(-5 * _swapped(load, s))
    usable = max(1.0, children - (0.5 * min(idle, children) if kept else 0.0))
    backlog = min(float(s["web.php_fpm.listen_backlog"]), float(s["web.sysctl.net.core.somaxconn"]))
    return {
        "web.cpu": load.web / work * _crowded(max(children, load.web), 16 * load.web, 0.08) * slow
        * forked[str(s["web.php_fpm.pm"])],
        "web.workers": usable / inside * slow * (0.7 + 0.3 * _sat(backlog, load.burst / 4)),
    }  # fmt: skip


def _balancer(load: Workload, s: Settings, inside: float) -> dict[str, float]:
    workers, timeout = float(s["lb.nginx.worker_processes"]), float(s["lb.nginx.keepalive_timeout"])
    again = 1 - exp(-timeout / load.gap)
    fresh = max(1 / load.requests, 1 - again)
    sessions = 4000 * float(s["lb.nginx.ssl_session_cache"])
    lasts = 1 - exp(-float(s["lb.nginx.ssl_session_timeout"]) / load.away)
    resumed = 0.9 * _sat(sessions, 8000) * lasts
    kept = float(s["lb.nginx.upstream_keepalive"]) * workers
    open_ = 1 - _sat(kept, 30 + 200 * inside)
    logged = 0.00004 if s["lb.nginx.access_log_buffer"] == 0 else 0.00001
    work = (0.00008 + logged + fresh * (load.connect + load.handshake * (1 - resumed))
            + open_ * load.upstream)  # fmt: skip
    cpu = (
        load.lb
        / work
        * min(1.0, workers / load.lb)
        * _crowded(max(workers, load.lb), load.lb, 0.05)
    )
    held = inside + load.gap * again
    ports = {"32768 60999": 28_000, "16384 65535": 49_000}
    reused = 12 if s["lb.sysctl.net.ipv4.tcp_tw_reuse"] == 1 else 1
    leaving = ports[str(s["lb.sysctl.net.ipv4.ip_local_port_range"])] * reused / 60
    backlog = min(float(s["lb.nginx.backlog"]), float(s["lb.sysctl.net.core.somaxconn"]))
    return {
        "lb.cpu": cpu * (0.6 + 0.4 * _sat(backlog, load.burst / 4)),
        "lb.connections": workers * float(s["lb.nginx.worker_connections"]) / 2 / held,
        "lb.ports": leaving / max(open_, 0.01),
    }


def _stations(load: Workload, s: Settings) -> dict[str, float]:
    missing = _missing(load, s)
    if _swapped(load, s) > 1.0:
        return {}
    queries = load.always + load.on_miss * missing
    database, query = _database(load, s, queries)
    inside = load.php + load.waits + load.gets * 0.0002 + queries * query
    threads = float(s["cache.memcached.threads"])
    cache = load.cache / (load.gets * 0.00002) * min(1.0, threads / load.cache)
    return {
        **_balancer(load, s, inside), **_web(load, s, inside), **database,
        "cache.cpu": cache * _crowded(max(threads, load.cache), 2 * load.cache, 0.2),
    }  # fmt: skip


def _cause(load: Workload, s: Settings, narrowest: str) -> tuple[str, str, str]:
    """Return the tier, the service and the resource that limit the narrowest station."""
    tier, _, part = narrowest.partition(".")
    if tier == "web":
        starved = _swapped(load, s) > 0
        return "web", "php_fpm", "memory" if starved else "workers" if part == "workers" else "cpu"
    if tier == "lb":
        return "lb", "nginx", "cpu" if part == "cpu" else "connections"
    if tier == "cache":
        short = float(s["cache.memcached.threads"]) < load.cache
        return "cache", "memcached", "workers" if short else "cpu"
    if load.on_miss * _missing(load, s) > load.always:
        return "cache", "memcached", "cache"
    if part == "disk" or _spilt(load, s) > 0.3:
        return "db", "mariadb", "disk"
    reopened = float(s["db.mariadb.table_open_cache"]) < 0.7 * load.tables
    return "db", "mariadb", "cache" if reopened else "locks"


@cache
def problem(kind: str, seed: int) -> Problem:
    """Return a random problem whose best preset is below the optimum by a distance within ``LACKING``."""
    for attempt in range(500):
        rng = np.random.default_rng((seed, KINDS.index(kind), attempt))
        load = drawn(kind, rng)
        at = made(load, rng)
        if LACKING[0] <= _lacking(at) <= LACKING[1]:
            return at
    raise ValueError(f"no workload of the kind {kind} has presets that are wrong enough")


def _lacking(at: Problem) -> float:
    """Return a quick estimate of the distance between the best preset and the optimum, in percent.

    The estimate ignores random effects and rules. If the baseline fails, 100 is returned.
    """

    def rough(settings: Settings) -> float:
        rates = _stations(at.load, settings)
        return total(rates) if rates else 0.0

    known = presets(at.space)
    if not at.peak(known[0]):
        return 100.0
    plain = Stack("", at.space, rough, frozenset())
    return 100 * (1 - max(map(rough, known)) / _highest(plain, draws=100, climbs=1, least=0.1)[0])


def made(load: Workload, rng: np.random.Generator, *, effects: bool = True) -> Problem:
    """Return the problem for a workload's hosts. If ``effects`` is true, parameters that are not in the
    formulas have random effects.
    """
    file = read_target(TARGET)
    kernel = {key: value for key, value in DEFAULT_FACTS.kernel_values.items() if key in KERNEL}
    sizes = {"lb1": (load.lb, 4096), "web1": (load.web, load.web_memory),
             "cache1": (load.cache, load.cache_memory), "db1": (load.db, load.db_memory)}  # fmt: skip
    facts = {
        host: replace(DEFAULT_FACTS, cpus=cpus, memory=int(memory * MIB),
                      kernel_values=kernel if host in ("lb1", "web1") else {})
        for host, (cpus, memory) in sizes.items()
    }  # fmt: skip
    space = build_space(
        file, facts, AdoptedValues({"lb.nginx.ssl_session_cache": 0})
    ).with_load_traits(_traits_of(load))
    unknown = [
        d for d in space.tunable_dimensions if effects and d.name.rpartition(".")[2] not in KNOWN
    ]
    own = {d.name: effect for d in unknown if (effect := _effect(rng, d))}
    return Problem(space, load, own)


def _traits_of(load: Workload) -> frozenset[LoadTrait]:
    """Return the load traits that a target of this workload would declare."""
    of_load = {
        LoadTrait.TLS: load.handshake > 0,
        LoadTrait.TLS_REUSE: load.handshake > 0 and load.requests > 1,
        LoadTrait.CHURN: load.requests < CHURNING,
    }
    return frozenset(trait for trait, present in of_load.items() if present)


def presets(space: SearchSpace) -> list[Settings]:
    """Return the baseline and all presets."""
    return [space.baseline, *(space.preset_settings(kind) for kind in PRESET_NAMES)]


def misled(at: Problem, seed: int) -> SearchSpace:
    """Return the search space, in which the most important parameters are classed as unimportant."""
    stack = Stack("", at.space, at.peak, frozenset())
    top, optimum = _climb(stack, max(presets(at.space), key=lambda p: at.peak(p) or 0.0))
    losses = {
        d.name: top - (at.peak({**optimum, d.name: d.baseline}) or 0.0)
        for d in at.space.tunable_dimensions
    }
    decisive = sorted(losses, key=lambda name: -losses[name])[:DECISIVE]
    rng = np.random.default_rng((seed, 17))
    classes = {name: (Effect.SMALL, Effect.COSMETIC)[int(rng.integers(2))] for name in decisive}
    dimensions = tuple(
        replace(d, parameter=replace(d.parameter, effect=classes[d.name]))
        if d.name in classes
        else d
        for d in at.space.dimensions
    )
    return replace(at.space, dimensions=dimensions)


@cache
def stack(name: str, seed: int) -> Stack:
    """Return the stack ``name``, such as `tls` or, with wrongly classed parameters, `tls/wrong`."""
    kind, _, classes = name.partition("/")
    at = problem(kind, seed)
    space = misled(at, seed) if classes == "wrong" else at.space
    decided = {d.name for d in space.tunable_dimensions if d.name.rpartition(".")[2] in KNOWN}
    return Stack(
        f"{name}-{seed}", space, at.peak, frozenset(decided | set(at.effects)), at.advise, at.parts
    )


@cache
def best(at: Stack) -> float:
    """Return the highest peak, found by hill climbing.

    Parameters in the formulas are changed first, and then all parameters.
    """
    return _climb(at, _highest(at, draws=300, climbs=3)[1])[0]


def _highest(at: Stack, draws: int, climbs: int, least: float = 0.05) -> tuple[float, Settings]:
    """Return the highest peak and its settings if only parameters in the formulas are changed.

    Hill climbing starts from the best preset, and from the ``climbs`` best of ``draws`` random points.
    """
    rng, space = np.random.default_rng(1), at.space
    deciding = tuple(d for d in space.tunable_dimensions if d.name.rpartition(".")[2] in KNOWN)
    narrow = replace(at, space=replace(space, dimensions=deciding))
    known = max(presets(space), key=lambda settings: at.peak(settings) or 0.0)
    starts = [{**known, **_drawn(narrow.space, rng)} for _ in range(draws)]
    starts.sort(key=lambda settings: -(at.peak(settings) or 0.0))
    climbed = [_climb(narrow, start, least=least) for start in (known, *starts[:climbs])]
    return max(climbed, key=lambda each: each[0])
