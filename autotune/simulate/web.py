"""The web tier (Apache with mpm_prefork and mod_php, or nginx with PHP-FPM), memcached and the store."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.simulate.balancer import SCANNING, SELECT_LIMIT
from autotune.simulate.station import Station, held
from autotune.simulate.topology import Hosts, Topology
from autotune.target.model import Data

PHP_WORK = 0.00101  # CPU seconds of one request: a multi-get of 100 keys, and the page
# One host reaches 3.5 K requests/s in the published ceilings; each further host adds 1 K.
# The cause is unknown. In the model, n hosts have (ALONE + n) / (ALONE + 1) times the capacity of one.
ALONE = 2.6

PREFORK_NEEDS = 320.0  # the balancer keeps connections open, and each occupies a process
PREFORK_SHARPNESS = 6.0
FPM_HOP = 0.055  # the extra hop over the unix socket, relative to all work
FPM_BEST = 0.83  # share left at 75 children and 1800 connections
FPM_NEEDS = 34.8
FPM_SWITCH = 0.115 / 75.0  # cost of a child's context switches
NGINX_NEEDS = 1409.0
NGINX_SLOT = 0.066 / 1800.0
MANAGERS = {"static": 1.0, "dynamic": 0.985, "ondemand": 0.94}  # share left after forking
REPLACING = 15.0  # cost of a new process, in requests
CHILD_BYTES = 15 * 2**20

FAN_OUT = 0.025  # cost of each further cache host for the same 100 keys, relative to all work
# Cost of the square of a thousand connections between web processes and caches, relative to all work.
# Each wake-up searches all of a process' sockets, so the cost grows faster than their number.
CONNECTIONS = 0.012


@dataclass(frozen=True)
class Web:
    """The tier's station, and its use of other tiers and of memory.

    On each host, ``processes`` can hold a connection to each cache host. ``memory`` is the worst case
    per host in bytes. ``refused`` is the reason why the software would not start.
    """

    station: Station
    processes: float
    memory: float
    refused: str | None = None


def takes_epoll(hosts: Hosts, settings: Settings) -> bool:
    """True if the tier waits for events with epoll; prefork processes do not."""
    return (
        hosts.deployment(settings).startswith("nginx")
        and hosts.word(settings, "nginx.use", "epoll") == "epoll"
    )


def web(hosts: Hosts, settings: Settings, *, caches: int, misses: float, evenness: float) -> Web:
    """Return the web tier.

    ``caches`` is the number of cache hosts. ``misses`` is the number of a request's keys that the store
    answers. ``evenness`` is the share of the capacity that the balancer leaves.
    """
    if hosts.deployment(settings).startswith("apache"):
        return _prefork(hosts, settings, caches, misses, evenness)
    return _fpm(hosts, settings, caches, misses, evenness)


def _station(hosts: Hosts, service: str, rate: float, work: float, limit: str | None) -> Station:
    """Return the station; ``limit`` is the exhausted resource as text, ``None`` for CPU."""
    resource = Resource.WORKERS if limit else Resource.CPU
    return Station(hosts.tier, service, hosts.all_cpus, rate, work, resource, limit or "CPUs busy")


def _work(hosts: Hosts, caches: int, processes: float, misses: float) -> float:
    """Return the CPU seconds of one request, with the contention between hosts."""
    together = (ALONE + hosts.count) / (ALONE + 1.0)
    connections = processes * hosts.count * caches / 1000.0
    work = PHP_WORK * (1.0 + FAN_OUT * (caches - 1) + CONNECTIONS * connections**2 + 0.001 * misses)
    return work * hosts.count / together


def _prefork(hosts: Hosts, settings: Settings, caches: int, misses: float, evenness: float) -> Web:
    processes = hosts.number(settings, "apache.MaxRequestWorkers", 150)
    replaced = hosts.number(settings, "apache.MaxConnectionsPerChild", 0)
    enough = held(PREFORK_NEEDS * hosts.cpus / 4.0, processes, PREFORK_SHARPNESS)
    work = _work(hosts, caches, processes, misses) * _replacement(replaced)
    rate = hosts.all_cpus * enough / work * evenness
    limit = "prefork processes in use" if enough < 0.9 else None
    station = _station(hosts, "apache", rate, work, limit)
    return Web(station, processes, processes * CHILD_BYTES)


def _fpm(hosts: Hosts, settings: Settings, caches: int, misses: float, evenness: float) -> Web:
    children = hosts.number(settings, "php_fpm.max_children", 5)
    workers = hosts.number(settings, "nginx.worker_processes", hosts.cpus)
    connections = hosts.number(settings, "nginx.worker_connections", 768)
    use = hosts.word(settings, "nginx.use", "epoll")
    size = hosts.cpus / 4.0
    fed = held(FPM_NEEDS * size, children)
    # More children leave fewer connections waiting.
    needs = NGINX_NEEDS * size * (0.7 + 0.3 * 75.0 * size / max(children, 1.0)) ** 0.25
    accepted = held(needs, workers * min(connections, hosts.nofile) / 2.0)
    weight = 1.0 + children / size * FPM_SWITCH
    weight += connections * NGINX_SLOT + SCANNING[use] * connections / 1000.0
    weight *= _replacement(hosts.number(settings, "php_fpm.max_requests", 0)) * (1.0 + FPM_HOP)
    work = _work(hosts, caches, children, misses) * weight
    manager = MANAGERS[hosts.word(settings, "php_fpm.pm", "static")]
    refused = use == "select" and connections > SELECT_LIMIT
    limits = {"FPM children in use": fed, "connections in use": accepted}
    shortest = min(limits, key=lambda name: limits[name])
    rate = hosts.all_cpus * fed * accepted * manager / work / FPM_BEST * evenness
    return Web(
        _station(hosts, "php_fpm", rate, work, shortest if limits[shortest] < 0.9 else None),
        children,
        children * CHILD_BYTES + workers * connections * 1024.0,
        f"the maximum number of files supported by select() is {SELECT_LIMIT}" if refused else None,
    )


def _replacement(after: float) -> float:
    """Return the factor on the work of processes replaced ``after`` that many requests (0: never)."""
    return 1.0 + REPLACING / after if after else 1.0


def spare(hosts: Hosts, needed: float) -> float:
    """Return the share of requests that succeed if processes need more memory than a host has.

    The kernel kills one process after the other, and their current requests are lost.
    """
    return min(1.0, exp(-4.0 * max(0.0, needed / (0.95 * hosts.memory) - 1.0)))


# memcached alone sustains 1.05 M ops/s on two CPUs (doi:10.1109/IGCC.2017.8323580). That is 10.5 K
# multi-gets of 100 keys.
GET_WORK = 2.0 / 10_500.0
FIXED_SHARE = 0.4  # share of this work per request, for any number of its keys on the host
CACHE_CONNECTIONS = 0.02  # cost of a thousand connections, relative to all work
LOCKED = 0.04  # cost of a thread beyond the CPUs, which only waits for locks
ITEM_BYTES = 90  # key, value and memcached's header
STORE_WORK = 0.00002  # seconds of Redis' single thread per request …
MISS_WORK = 0.000008  # … and per key that the cache missed


@dataclass(frozen=True)
class Backing:
    """The cache and the store, which gets ``misses`` keys of a request.

    ``unconnected`` is the share of web processes without a connection.
    """

    cache: Station
    store: Station
    misses: float
    unconnected: float = 0.0


def misses(cache: Hosts, data: Data, settings: Settings) -> float:
    """Return the keys of a request that are not cached.

    Popularity falls as rank to the power of −skew. The most popular part f of all keys therefore gets
    f ** (1 − skew) of the requests.
    """
    megabytes = cache.number(settings, "memcached.memory", 64)
    cached = min(1.0, cache.count * megabytes * 2**20 / (ITEM_BYTES * data.pairs))
    return float(data.keys_per_request * (1.0 - cached ** (1.0 - data.skew)))


def backing(topology: Topology, settings: Settings, *, processes: float, missed: float) -> Backing:
    """Return cache and store for ``processes`` web processes, each connected to every cache host."""
    cache, store, data = topology.cache, topology.store, topology.data
    allowed = min(cache.number(settings, "memcached.connections", 1024), cache.nofile - 100.0)
    per_request = GET_WORK * (FIXED_SHARE + (1.0 - FIXED_SHARE) / cache.count)
    per_request *= data.keys_per_request / 100.0
    threads = cache.number(settings, "memcached.threads", 4)
    busy = min(threads, cache.cpus) / (1.0 + LOCKED * max(0.0, threads - cache.cpus))
    work = per_request * (1.0 + CACHE_CONNECTIONS * min(processes, allowed) / 1000.0)
    speed = min(1.0, store.cpus)
    batch = (STORE_WORK + MISS_WORK * missed) / speed
    return Backing(
        Station(cache.tier, "memcached", busy * cache.count, busy / work, work),
        Station(store.tier, "redis", 1.0, store.count / batch, batch),
        missed,
        max(0.0, 1.0 - allowed / processes) if processes else 0.0,
    )
