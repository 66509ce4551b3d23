"""The web tier (Apache with mpm_prefork and mod_php, or nginx with PHP-FPM), memcached and the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.simulate.balancer import SCAN_COSTS, SELECT_LIMIT
from autotune.simulate.station import QueueStation, compute_served_share
from autotune.simulate.topology import ChainTopology, TierHosts
from autotune.target.model import Data

PHP_CPU_SECONDS = 0.00101  # CPU seconds of one request: a multi-get of 100 keys, and the page
# One host reaches 3.5 K requests/s according to the published maxima; each additional host adds 1 K.
# Why an additional host serves less than the first host is unknown. In the model, n hosts have
# (SINGLE_HOST_ADVANTAGE + n) / (SINGLE_HOST_ADVANTAGE + 1) times the capacity of one host.
SINGLE_HOST_ADVANTAGE = 2.6

# The balancer keeps connections open, and each open connection occupies a process.
PREFORK_NEEDED_PROCESSES = 320.0
PREFORK_SHARPNESS = 6.0
FPM_SOCKET_COST = 0.055  # relative increase of the CPU time because of the hop over the unix socket
FPM_REFERENCE_SHARE = 0.83  # share of the capacity left with 75 children and 1800 connections
FPM_NEEDED_CHILDREN = 34.8
# relative increase of the CPU time per child, because of context switches
FPM_SWITCH_COST = 0.115 / 75.0
NGINX_NEEDED_CONNECTIONS = 1409.0
NGINX_SLOT_COST = 0.066 / 1800.0
# Share of the capacity left after the cost of forking, by process manager.
PROCESS_MANAGER_SHARES = {
    "static": 1.0,
    "dynamic": 0.985,
    "ondemand": 0.94,
}
REPLACEMENT_REQUESTS = 15.0  # cost of a new process, as a number of requests
CHILD_BYTES = 15 * 2**20

# Relative increase of a request's CPU time for each additional cache host over which the request's 100
# keys are spread.
FAN_OUT_COST = 0.025
# Relative increase of a request's CPU time with a thousand connections between web processes and caches.
# The increase grows with the square of the number of connections, because each wake-up searches all
# sockets of a process.
CONNECTION_COST = 0.012


@dataclass(frozen=True)
class WebModel:
    """The web tier's station, processes and memory use.

    On each host, ``process_count`` processes can hold a connection to each cache host. ``memory_bytes``
    is the worst-case memory per host in bytes. ``refusal_reason`` is the reason why the simulated
    server refuses to start, or ``None``.
    """

    station: QueueStation
    process_count: float
    memory_bytes: float
    refusal_reason: str | None = None


def uses_epoll(hosts: TierHosts, settings: Settings) -> bool:
    """True if the tier waits for events with epoll; prefork processes do not use epoll."""
    return (
        hosts.find_deployment(settings).startswith("nginx")
        and hosts.read_text(settings, "nginx.use", "epoll") == "epoll"
    )


def build_web_model(
    hosts: TierHosts,
    settings: Settings,
    *,
    cache_count: int,
    missed_keys: float,
    evenness: float,
    wait_seconds: float = 0.0,
) -> WebModel:
    """Return the model of the web tier.

    ``cache_count`` is the number of cache hosts. ``missed_keys`` is the number of a request's keys that
    come from the store. A request occupies a process while it waits ``wait_seconds`` seconds for the
    missed keys. ``evenness`` is the fraction of the capacity that remains if the balancer
    distributes requests unevenly.
    """
    is_apache = hosts.find_deployment(settings).startswith("apache")
    model_builder = _build_prefork if is_apache else _build_fpm
    web_model = model_builder(hosts, settings, cache_count, missed_keys, evenness)
    return replace(web_model, station=_limit_to_processes(hosts, web_model, wait_seconds))


def _limit_to_processes(hosts: TierHosts, web_model: WebModel, wait_seconds: float) -> QueueStation:
    """Return the station with its rate limited by processes that wait for the store (Little's law)."""
    station = web_model.station
    occupied_seconds = wait_seconds + station.service_seconds
    process_rate = web_model.process_count * hosts.count / occupied_seconds
    if wait_seconds <= 0.0 or process_rate >= station.max_rate:
        return station
    return replace(
        station,
        max_rate=process_rate,
        resource=Resource.WORKERS,
        limit_reason="processes in use, waiting for the store",
    )


def _build_station(
    hosts: TierHosts, service: str, max_rate: float, cpu_seconds: float, limit_reason: str | None
) -> QueueStation:
    """Return the station; ``limit_reason`` describes the exhausted resource, and is ``None`` for
    CPU.
    """
    limiting_resource = Resource.WORKERS if limit_reason else Resource.CPU
    return QueueStation(
        hosts.tier,
        service,
        hosts.total_cpus,
        max_rate,
        cpu_seconds,
        limiting_resource,
        limit_reason or "CPUs busy",
    )


def _compute_request_cpu_seconds(
    hosts: TierHosts, cache_count: int, process_count: float, missed_keys: float
) -> float:
    """Return the CPU seconds of one request, including the contention between hosts."""
    host_factor = (SINGLE_HOST_ADVANTAGE + hosts.count) / (SINGLE_HOST_ADVANTAGE + 1.0)
    connections_in_thousands = process_count * hosts.count * cache_count / 1000.0
    cpu_seconds = PHP_CPU_SECONDS * (
        1.0
        + FAN_OUT_COST * (cache_count - 1)
        + CONNECTION_COST * connections_in_thousands**2
        + 0.001 * missed_keys
    )
    return cpu_seconds * hosts.count / host_factor


def _build_prefork(
    hosts: TierHosts, settings: Settings, cache_count: int, missed_keys: float, load_evenness: float
) -> WebModel:
    process_count = hosts.read_number(settings, "apache.MaxRequestWorkers", 150)
    max_requests = hosts.read_number(settings, "apache.MaxConnectionsPerChild", 0)
    process_share = compute_served_share(
        PREFORK_NEEDED_PROCESSES * hosts.cpus / 4.0, process_count, PREFORK_SHARPNESS
    )
    cpu_seconds = _compute_request_cpu_seconds(
        hosts, cache_count, process_count, missed_keys
    ) * _compute_replacement_factor(max_requests)
    max_rate = hosts.total_cpus * process_share / cpu_seconds * load_evenness
    limit_reason = "prefork processes in use" if process_share < 0.9 else None
    station = _build_station(hosts, "apache", max_rate, cpu_seconds, limit_reason)
    return WebModel(station, process_count, process_count * CHILD_BYTES)


def _build_fpm(
    hosts: TierHosts, settings: Settings, cache_count: int, missed_keys: float, load_evenness: float
) -> WebModel:
    children = hosts.read_number(settings, "php_fpm.max_children", 5)
    workers = hosts.read_number(settings, "nginx.worker_processes", hosts.cpus)
    connections = hosts.read_number(settings, "nginx.worker_connections", 768)
    event_method = hosts.read_text(settings, "nginx.use", "epoll")
    host_size = hosts.cpus / 4.0
    children_share = compute_served_share(FPM_NEEDED_CHILDREN * host_size, children)
    # With more children, fewer connections wait.
    needed_connections = (
        NGINX_NEEDED_CONNECTIONS
        * host_size
        * (0.7 + 0.3 * 75.0 * host_size / max(children, 1.0)) ** 0.25
    )
    connection_share = compute_served_share(
        needed_connections, workers * min(connections, hosts.nofile) / 2.0
    )
    cost_factor = 1.0 + children / host_size * FPM_SWITCH_COST
    cost_factor += connections * NGINX_SLOT_COST + SCAN_COSTS[event_method] * connections / 1000.0
    cost_factor *= _compute_replacement_factor(
        hosts.read_number(settings, "php_fpm.max_requests", 0)
    ) * (1.0 + FPM_SOCKET_COST)
    cpu_seconds = (
        _compute_request_cpu_seconds(hosts, cache_count, children, missed_keys) * cost_factor
    )
    manager_share = PROCESS_MANAGER_SHARES[hosts.read_text(settings, "php_fpm.pm", "static")]
    share_by_limit = {"FPM children in use": children_share, "connections in use": connection_share}
    scarcest_name = min(share_by_limit, key=lambda name: share_by_limit[name])
    limit_reason = scarcest_name if share_by_limit[scarcest_name] < 0.9 else None
    served_cpus = hosts.total_cpus * children_share * connection_share * manager_share
    max_rate = served_cpus / cpu_seconds / FPM_REFERENCE_SHARE * load_evenness
    is_refused = event_method == "select" and connections > SELECT_LIMIT
    return WebModel(
        _build_station(hosts, "php_fpm", max_rate, cpu_seconds, limit_reason),
        children,
        children * CHILD_BYTES + workers * connections * 1024.0,
        f"the maximum number of files supported by select() is {SELECT_LIMIT}"
        if is_refused
        else None,
    )


def _compute_replacement_factor(max_requests: float) -> float:
    """Return the factor on CPU time that results from replacing each process after ``max_requests``
    requests (0: never).
    """
    return 1.0 + REPLACEMENT_REQUESTS / max_requests if max_requests else 1.0


def compute_memory_success_share(hosts: TierHosts, needed_bytes: float) -> float:
    """Return the share of requests that succeed if the processes need more memory than the host has.

    The kernel kills one process after another, and the current requests of killed processes are lost.
    """
    return min(1.0, exp(-4.0 * max(0.0, needed_bytes / (0.95 * hosts.memory) - 1.0)))


# On its own, memcached sustains 1.05 M ops/s on two CPUs (doi:10.1109/IGCC.2017.8323580), or 10.5 K
# multi-gets/s of 100 keys.
GET_CPU_SECONDS = 2.0 / 10_500.0
GET_FIXED_SHARE = 0.4  # share of GET_CPU_SECONDS that does not depend on the number of keys
CACHE_CONNECTION_COST = 0.02  # relative increase of the CPU time per thousand connections
# relative loss of capacity per thread beyond the number of CPUs; such a thread only waits for locks
LOCK_WAIT_COST = 0.04
ITEM_BYTES = 90  # bytes of a key, its value and memcached's header
STORE_REQUEST_SECONDS = 0.00002  # seconds of Redis' single thread per request
STORE_KEY_SECONDS = 0.000008  # seconds of Redis' single thread per key that the cache missed


@dataclass(frozen=True)
class BackingModel:
    """The cache and the store. Each request reads ``missed_keys`` keys from the store.

    ``unconnected_share`` is the share of web processes without a connection to the cache.
    """

    cache: QueueStation
    store: QueueStation
    missed_keys: float
    unconnected_share: float = 0.0


def count_missed_keys(cache_hosts: TierHosts, data_set: Data, settings: Settings) -> float:
    """Return the number of a request's keys that are not cached.

    A key's popularity is proportional to rank ** −skew. The most popular fraction f of all keys
    therefore gets f ** (1 − skew) of the requests.
    """
    megabytes = cache_hosts.read_number(settings, "memcached.memory", 64)
    cached_share = min(1.0, cache_hosts.count * megabytes * 2**20 / (ITEM_BYTES * data_set.pairs))
    return float(data_set.keys_per_request * (1.0 - cached_share ** (1.0 - data_set.skew)))


def build_cache_and_store(
    topology: ChainTopology, settings: Settings, *, process_count: float, missed_keys: float
) -> BackingModel:
    """Return the models of cache and store for ``process_count`` web processes, each with a connection to
    every cache host.
    """
    cache_hosts, store_hosts, data_set = topology.cache, topology.store, topology.data
    allowed_connections = min(
        cache_hosts.read_number(settings, "memcached.connections", 1024), cache_hosts.nofile - 100.0
    )
    cpu_per_request = GET_CPU_SECONDS * (
        GET_FIXED_SHARE + (1.0 - GET_FIXED_SHARE) / cache_hosts.count
    )
    cpu_per_request *= data_set.keys_per_request / 100.0
    threads = cache_hosts.read_number(settings, "memcached.threads", 4)
    busy_threads = min(threads, cache_hosts.cpus) / (
        1.0 + LOCK_WAIT_COST * max(0.0, threads - cache_hosts.cpus)
    )
    cpu_seconds = cpu_per_request * (
        1.0 + CACHE_CONNECTION_COST * min(process_count, allowed_connections) / 1000.0
    )
    store_speed = min(1.0, store_hosts.cpus)
    batch_seconds = (STORE_REQUEST_SECONDS + STORE_KEY_SECONDS * missed_keys) / store_speed
    return BackingModel(
        QueueStation(
            cache_hosts.tier,
            "memcached",
            busy_threads * cache_hosts.count,
            busy_threads / cpu_seconds,
            cpu_seconds,
        ),
        QueueStation(
            store_hosts.tier, "redis", 1.0, store_hosts.count / batch_seconds, batch_seconds
        ),
        missed_keys,
        max(0.0, 1.0 - allowed_connections / process_count) if process_count else 0.0,
    )
