"""Bottlenecks provoked for real: the stack started, loaded past its peak, and the limit named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotune.deploy.deployment import Deployment
from autotune.deploy.readiness import RightAnswer
from autotune.deploy.stack_readiness import EntryProbe
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.load_meter import LoadMeter
from autotune.environments.stack import prepare
from autotune.loads.base import Request
from autotune.loads.registry import LOAD_GENERATORS
from autotune.measure.steal import HIGH_STEAL_SHARE, CpuSteal
from autotune.monitor.host_watch import build_watched_hosts
from autotune.services.base import Value
from autotune.services.diagnosis import Resource
from autotune.services.registry import expected_body
from autotune.space.space import SearchSpace
from autotune.target.read_target import read_target
from tests.answers import fetched

pytestmark = [pytest.mark.stack, pytest.mark.quiet]

SECONDS = 2.0
STEP = 1.7
HIGHEST = 12_000.0
TARGET = """\
name: provoked
slo: {{p99: {limit}, errors: 0.1%}}
hosts:
  here: {{address: 127.0.0.1, transport: local}}
tiers:
  lb:    {{hosts: here, runtime: embedded, service: nginx, forwards_to: web}}
  web:   {{hosts: here, runtime: embedded, service: nginx+php-fpm, app: reference, uses: [cache, store]}}
  cache: {{hosts: here, runtime: embedded, service: memcached}}
  store: {{hosts: here, runtime: embedded, service: redis}}
load: {{generator: httperf, path: /kv.php}}
data: {{pairs: 30000, keys_per_request: 100, store_latency: {latency}}}
parameters:
  cache.memcached.memory: {{range: [4MB, 8MB], default: 4MB}}
"""


@dataclass(frozen=True)
class Shortage:
    """A stack made to run out of one thing, and what should be said of it."""

    name: str
    settings: Mapping[str, Value]
    verdict: tuple[str, str, Resource]
    limit: str = "50ms"
    latency: str = "3ms"
    first: float = 300.0
    overrides: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)


PLENTY: Mapping[str, Value] = {
    "web.php_fpm.pm": "static",
    "web.php_fpm.max_children": 64,
    "web.php_fpm.listen_backlog": 4096,
    "web.nginx.worker_connections": 4096,
    "lb.nginx.worker_connections": 4096,
}
APACHES = {"nginx,": "apache,", "nginx+php-fpm,": "apache+mod_php,"}
SHORTAGES = (
    Shortage(
        "children",
        {**PLENTY, "web.php_fpm.max_children": 2},
        ("web", "php_fpm", Resource.WORKERS),
    ),
    Shortage(
        "processes of Apache",
        {"web.apache.MaxRequestWorkers": 2, "lb.apache.ServerLimit": 16},
        ("web", "apache", Resource.WORKERS),
        services=APACHES,
    ),
    Shortage(
        "threads of Apache",
        {
            "web.apache.MaxRequestWorkers": 64,
            "web.apache.StartServers": 64,
            "web.apache.KeepAlive": False,
            "lb.apache.ServerLimit": 1,
            "lb.apache.ThreadsPerChild": 5,
            "lb.apache.StartServers": 1,
        },
        ("lb", "apache", Resource.WORKERS),
        latency="20ms",
        services=APACHES,
    ),
    Shortage(
        "requests HAProxy gives a web host",
        {"web.php_fpm.max_children": 64, "lb.haproxy.server_maxconn": 2},
        ("lb", "haproxy", Resource.CONNECTIONS),
        limit="200ms",
        latency="20ms",
        first=60.0,
        services={"nginx,": "haproxy,"},
    ),
    Shortage("cpu", PLENTY, ("web", "php_fpm", Resource.CPU)),
    Shortage(
        "slow store",
        PLENTY,
        ("store", "redis", Resource.STORE),
        latency="50ms",
        first=60.0,
    ),
    Shortage(
        "cache connections",
        {**PLENTY, "web.php_fpm.max_children": 128, "cache.memcached.connections": 64},
        ("cache", "memcached", Resource.CONNECTIONS),
    ),
    Shortage(
        "worker_connections",
        {**PLENTY, "lb.nginx.worker_connections": 64, "lb.nginx.worker_processes": 1},
        ("lb", "nginx", Resource.CONNECTIONS),
        limit="1s",
        latency="100ms",
        first=100.0,
    ),
    Shortage(
        "descriptors",
        {**PLENTY, "lb.nginx.worker_processes": 1},
        ("lb", "nginx", Resource.DESCRIPTORS),
        limit="1s",
        latency="100ms",
        first=100.0,
        overrides={
            "nginx/core.conf.j2": lambda text: text.replace(
                "worker_rlimit_nofile {{",
                'worker_rlimit_nofile {{ 64 if site.tier == "lb" else',
            )
        },
    ),
)


@dataclass(frozen=True)
class Started:
    space: SearchSpace
    meter: LoadMeter


@contextmanager
def started(shortage: Shortage, directory: Path) -> Iterator[Started]:
    target = directory / "target.yaml"
    text = TARGET.format(limit=shortage.limit, latency=shortage.latency)
    for old, new in shortage.services.items():
        text = text.replace(f"service: {old}", f"service: {new}")
    target.write_text(text)
    for name, change in shortage.overrides.items():
        override = directory / "templates" / name
        override.parent.mkdir(parents=True)
        shipped = Path("templates", name).read_text()
        assert change(shipped) != shipped
        override.write_text(change(shipped))
    file = read_target(target)
    prepared = prepare(file)
    runtime = prepared.runtime
    laid = prepared.build_stack(runtime.make_run_directory(directory))
    body = expected_body(file.target)
    fleet = Deployment(
        file.target, prepared.space, laid, runtime,
        runtime.create_hosts(laid, prepared.transports, directory, lambda _: None), "study",
        probe=EntryProbe(lambda: fetched(laid.entry, "/kv.php"), RightAnswer(body)), loads_data=True,
        overrides=directory / "templates" if shortage.overrides else None,
    )  # fmt: skip
    slo = file.target.slo.objective
    hosts = build_watched_hosts(laid, {"here": prepared.facts["here"].cpus}, {})
    request = Request(laid.entry, "/kv.php", body)
    meter = LoadMeter(
        LOAD_GENERATORS["httperf"],
        request,
        slo,
        prepared.load_hosts,
        laid,
        hosts,
        timeout=2.0,
        max_rate=20_000.0,
    )
    try:
        fleet.deploy(prepared.space.build_candidate(shortage.settings).settings)
        yield Started(prepared.space, meter)
    finally:
        fleet.restore()


def climb(stack: Started, first: float) -> list[WatchedReading]:
    """Readings at rising rates until two have failed, whatever this machine can carry; those that
    failed because others took its CPUs do not count, for a while."""
    stack.meter.take_reading(first / 2, SECONDS)  # caches filled, children past their start
    readings: list[WatchedReading] = []
    allowed = stack.meter.slo.allowed_violations
    rate, steal, patience = first, CpuSteal(), 20
    while sum(w.reading.violation_fraction > allowed for w in readings) < 2 and rate < HIGHEST:
        watched = stack.meter.take_reading(rate, SECONDS)
        stormy = (
            watched.reading.violation_fraction > allowed
            and steal.excess_steal(watched.hosts) > HIGH_STEAL_SHARE
        )
        steal = steal.with_reading(watched.hosts)
        if stormy and patience:
            patience -= 1
            time.sleep(2.0)
            continue
        readings.append(watched)
        rate *= STEP
    return readings


@pytest.mark.parametrize("shortage", SHORTAGES, ids=lambda s: s.name)
def test_the_shortage_is_named(shortage: Shortage, tmp_path: Path) -> None:
    with started(shortage, tmp_path) as stack:
        readings = climb(stack, shortage.first)
        found = stack.meter.find_bottleneck(
            stack.space.build_candidate(shortage.settings).settings, readings
        )
    assert found is not None, [w.reading for w in readings]
    print(f"\n{found} (confidence {found.confidence:.2f})")
    assert (found.tier, found.service, found.resource) == shortage.verdict, found
    assert found.host == "here"
    assert all(not w.observations.failures for w in readings)
