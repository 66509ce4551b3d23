"""What the web tier asks: memcached, and the store behind it."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.services.base import Settings
from autotune.simulate.station import Station
from autotune.simulate.topology import Hosts, Topology
from autotune.target.model import Data

# memcached alone carries 1.05 M ops/s on two CPUs (doi:10.1109/IGCC.2017.8323580): 10.5 K multi-gets
# of 100 keys.
GET_WORK = 2.0 / 10_500.0
FIXED_SHARE = 0.4  # of that is spent per request, however many of its keys the host has
CONNECTED = 0.02  # cost of a thousand connections, relative to all work
LOCKED = 0.04  # cost of a thread beyond the CPUs, which only waits for the others' locks
ITEM_BYTES = 90  # key, value and memcached's own header
STORE_WORK = 0.00002  # seconds of Redis' one thread per request …
MISS_WORK = 0.000008  # … and per key that the cache had not


@dataclass(frozen=True)
class Backing:
    """Cache and store; ``misses`` keys of a request go on to the store.

    ``unconnected`` is the share of web processes that no connection is left for.
    """

    cache: Station
    store: Station
    misses: float
    unconnected: float = 0.0


def misses(cache: Hosts, data: Data, settings: Settings) -> float:
    """Keys of a request that are not cached: popularity falls as rank to the power of −skew, so
    the most popular part f of all keys draws f ** (1 − skew) of the gets."""
    megabytes = cache.number(settings, "memcached.memory", 64)
    kept = min(1.0, cache.count * megabytes * 2**20 / (ITEM_BYTES * data.pairs))
    return float(data.keys_per_request * (1.0 - kept ** (1.0 - data.skew)))


def backing(topology: Topology, settings: Settings, *, processes: float, missed: float) -> Backing:
    """``processes``: web processes on all hosts, each with a connection to each cache host."""
    cache, store, data = topology.cache, topology.store, topology.data
    allowed = min(cache.number(settings, "memcached.connections", 1024), cache.nofile - 100.0)
    per_request = GET_WORK * (FIXED_SHARE + (1.0 - FIXED_SHARE) / cache.count)
    per_request *= data.keys_per_request / 100.0
    threads = cache.number(settings, "memcached.threads", 4)
    busy = min(threads, cache.cpus) / (1.0 + LOCKED * max(0.0, threads - cache.cpus))
    work = per_request * (1.0 + CONNECTED * min(processes, allowed) / 1000.0)
    speed = min(1.0, store.cpus)
    batch = (STORE_WORK + MISS_WORK * missed) / speed
    return Backing(
        Station(cache.tier, "memcached", busy * cache.count, busy / work, work),
        Station(store.tier, "redis", 1.0, store.count / batch, batch),
        missed,
        max(0.0, 1.0 - allowed / processes) if processes else 0.0,
    )


def ceiling(topology: Topology, settings: Settings) -> float:
    """Ops/s (keys/s) of the cache tier alone, driven by clients that hold few connections."""
    station = backing(topology, settings, processes=100.0, missed=0.0).cache
    return station.rate * topology.data.keys_per_request
