"""The load balancer: nginx, or Apache with mpm_event and mod_proxy.

The balancer's configuration has two effects. The configuration determines the CPU time on the
balancer's own hosts, and how evenly the web tier gets requests. Too few connections leave web workers
idle between two requests, and too many connections make the workers contend.
``BalancerModel.evenness_share`` is the share of the web tier's capacity that can be used.

The model follows the measured curves in Wajahat, Masood, Sau, Gandhi (IGSC 2017,
doi:10.1109/IGCC.2017.8323580), which fall on both sides of an optimum. The optimum results from the
number of slots that bursts need and the cost of each slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from autotune.services.base import Settings
from autotune.simulate.station import QueueStation, compute_served_share
from autotune.simulate.topology import TierHosts

NGINX_CPU_SECONDS = 0.00088  # CPU seconds per proxied request
APACHE_CPU_SECONDS = 0.00115

# Number of connections that bursts need, multiplied by EPOLL_CONNECTION_FACTOR if the web tier uses
# epoll. With epoll, the web tier accepts all waiting connections at once, so the balancer keeps more
# connections open.
NGINX_NEEDED_CONNECTIONS = 2690.0
EPOLL_CONNECTION_FACTOR = 1.566
# relative increase of the CPU time per entry in a worker's table of connections
NGINX_SLOT_COST = 6e-5
# Share of the web tier's capacity that is left at 1500 connections. All shares are divided by this
# share, so ``evenness_share`` is 1 at 1500 connections.
NGINX_REFERENCE_SHARE = 0.8915
# Relative increase of the CPU time per thousand idle connections, by event method.
SCAN_COSTS = {"epoll": 0.0, "poll": 0.055, "select": 0.07}
SELECT_LIMIT = 1024  # FD_SETSIZE: nginx does not start with more connections

APACHE_NEEDED_WORKERS = 1512.0
APACHE_PROCESS_COST = 0.08 / 240.0  # relative increase of the CPU time per process
APACHE_THREAD_COST = 0.08 / 15.0  # relative increase of the CPU time per thread
APACHE_REFERENCE_SHARE = 0.842  # share of the capacity left with 240 processes of 15 threads
APACHE_EVENNESS = 0.91  # share of the web tier's capacity left by mod_proxy's scheduling
PROCESS_BYTES = 4 * 2**20
THREAD_BYTES = 2**18


@dataclass(frozen=True)
class BalancerModel:
    """The balancer's station, and the share of the web tier's capacity that the balancer can use.

    ``backlog_size`` connections can wait to be accepted. ``memory_bytes`` is the balancer's worst-case
    memory in bytes. ``refusal_reason`` is the reason why the software would not start.
    """

    station: QueueStation
    evenness_share: float
    backlog_size: float
    memory_bytes: float
    refusal_reason: str | None = None


def build_balancer(hosts: TierHosts, settings: Settings, *, web_epoll: bool) -> BalancerModel:
    """Return the balancer; ``web_epoll`` is true if the web tier waits for events with epoll."""
    if hosts.find_deployment(settings).startswith("apache"):
        return _build_apache(hosts, settings)
    return _build_nginx(hosts, settings, web_epoll=web_epoll)


def _build_nginx(hosts: TierHosts, settings: Settings, *, web_epoll: bool) -> BalancerModel:
    workers = hosts.read_number(settings, "nginx.worker_processes", hosts.cpus)
    connections = hosts.read_number(settings, "nginx.worker_connections", 768)
    event_method = hosts.read_text(settings, "nginx.use", "epoll")
    # A request needs two connections: one to the client and one to the web tier.
    available_slots = workers * min(connections, hosts.nofile) / 2.0
    needed_connections = (
        NGINX_NEEDED_CONNECTIONS
        * (EPOLL_CONNECTION_FACTOR if web_epoll else 1.0)
        * hosts.cpus
        / 8.0
    )
    table_cost = (
        1.0 + connections * NGINX_SLOT_COST + SCAN_COSTS[event_method] * connections / 1000.0
    )
    evenness_share = (
        compute_served_share(needed_connections, available_slots)
        / table_cost
        / NGINX_REFERENCE_SHARE
        * _compute_minor_effects(hosts, settings)
    )
    cpu_seconds = NGINX_CPU_SECONDS * table_cost / 1.09
    active_cpus = min(workers, hosts.cpus) / (1.0 + 0.02 * max(0.0, workers / hosts.cpus - 1.0))
    is_refused = event_method == "select" and connections > SELECT_LIMIT
    return BalancerModel(
        QueueStation(
            hosts.tier,
            "nginx",
            hosts.total_cpus,
            hosts.count * active_cpus / cpu_seconds,
            cpu_seconds,
        ),
        evenness_share,
        _compute_backlog_size(hosts, settings, "nginx.backlog"),
        workers * connections * 1024.0,
        f"the maximum number of files supported by select() is {SELECT_LIMIT}"
        if is_refused
        else None,
    )


def _compute_minor_effects(hosts: TierHosts, settings: Settings) -> float:
    """Return the combined factor of parameters that each change the capacity by about 1 %."""

    def read_switch(switch_name: str, *, stock_value: bool = False) -> bool:
        return bool(settings.get(f"{hosts.tier}.nginx.{switch_name}", stock_value))

    idle_connections = hosts.read_number(settings, "nginx.upstream_keepalive", 0)
    reuse_effect = 0.03 * (1.0 - exp(-idle_connections / 16.0)) - 0.02 * (idle_connections / 512.0)
    effect_factor = (
        1.0
        + reuse_effect
        + 0.006 * read_switch("multi_accept")
        - 0.012 * read_switch("accept_mutex")
    )
    effect_factor += 0.01 * read_switch("reuseport")
    effect_factor += 0.008 * (hosts.read_number(settings, "nginx.access_log_buffer", 0) > 0)
    return effect_factor


def _build_apache(hosts: TierHosts, settings: Settings) -> BalancerModel:
    processes = hosts.read_number(settings, "apache.ServerLimit", 6)
    threads = hosts.read_number(settings, "apache.ThreadsPerChild", 25)
    available_slots = min(
        processes * threads,
        hosts.read_number(settings, "apache.MaxRequestWorkers", processes * threads),
        hosts.nofile * processes / 2.0,
    )
    needed_workers = APACHE_NEEDED_WORKERS * hosts.cpus / 8.0
    cost_factor = (
        1.0 + 8.0 / hosts.cpus * processes * APACHE_PROCESS_COST + threads * APACHE_THREAD_COST
    )
    cpu_seconds = APACHE_CPU_SECONDS * cost_factor / 1.16
    return BalancerModel(
        QueueStation(
            hosts.tier, "apache", hosts.total_cpus, hosts.total_cpus / cpu_seconds, cpu_seconds
        ),
        APACHE_EVENNESS
        * compute_served_share(needed_workers, available_slots)
        / cost_factor
        / APACHE_REFERENCE_SHARE,
        _compute_backlog_size(hosts, settings, "apache.ListenBacklog"),
        processes * (PROCESS_BYTES + threads * THREAD_BYTES),
    )


def _compute_backlog_size(hosts: TierHosts, settings: Settings, backlog_parameter: str) -> float:
    somaxconn = hosts.read_number(settings, "sysctl.net.core.somaxconn", 4096)
    return min(somaxconn, hosts.read_number(settings, backlog_parameter, 511))
