"""The model against the figures of doi:10.1109/IGCC.2017.8323580: optima, ceilings, order, the flip."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from autotune.simulate.web import build_cache_and_store

_spec = importlib.util.spec_from_file_location("published", Path(__file__).parent / "published.py")
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
sys.modules["published"] = published
_spec.loader.exec_module(published)

KEYS = 100
HOSTS = (1, 2, 3)


def test_apache_balances_best_near_240_processes_of_15_threads() -> None:
    grid = {
        "lb.apache.ServerLimit": range(100, 501, 10),
        "lb.apache.ThreadsPerChild": range(5, 51),
    }
    processes, threads = published.optimum(published.DEPLOYMENTS["apache, apache"], grid)
    assert processes == pytest.approx(240, abs=20)
    assert threads == pytest.approx(15, abs=1)


def test_the_best_number_of_threads_depends_on_the_number_of_processes() -> None:
    def threads(processes: int) -> int:
        settings = {
            **published.DEPLOYMENTS["apache, apache"],
            "lb.apache.ServerLimit": processes,
        }
        (best,) = published.optimum(settings, {"lb.apache.ThreadsPerChild": range(5, 51)})
        return int(best)

    assert threads(120) >= 1.5 * threads(400)


@pytest.mark.parametrize(
    ("deployment", "also", "wanted"),
    [
        ("nginx, apache", {}, 1500),
        ("nginx, nginx", {"web.nginx.use": "poll"}, 1500),
        ("nginx, nginx", {}, 2100),
    ],
)
def test_the_balancers_connections_depend_on_epoll_in_the_web_tier(
    deployment: str, also: dict[str, str], wanted: int
) -> None:
    settings = {**published.DEPLOYMENTS[deployment], **also}
    grid = {"lb.nginx.worker_connections": range(600, 4001, 50)}
    assert published.optimum(settings, grid) == (pytest.approx(wanted, abs=75),)


def test_epoll_everywhere_beats_epoll_on_the_balancer_only() -> None:
    everywhere = published.DEPLOYMENTS["nginx, nginx"]
    only = {**everywhere, "web.nginx.use": "poll", "lb.nginx.worker_connections": 1500}
    assert published.peak(everywhere) > 1.02 * published.peak(only)


def test_nginx_serves_best_with_1800_connections_and_75_children() -> None:
    grid = {
        "web.nginx.worker_connections": range(600, 4001, 50),
        "web.php_fpm.max_children": range(25, 151, 5),
    }
    connections, children = published.optimum(published.DEPLOYMENTS["nginx, nginx"], grid)
    assert connections == pytest.approx(1800, abs=100)
    assert children == pytest.approx(75, abs=5)


def test_prefork_is_flat_from_about_500() -> None:
    def peak(workers: int) -> float:
        settings = published.DEPLOYMENTS["nginx, apache"]
        return float(published.peak({**settings, "web.apache.MaxRequestWorkers": workers}))

    flat = [peak(workers) for workers in range(500, 1001, 50)]
    assert max(flat) / min(flat) < 1.015
    assert peak(400) < 0.98 * peak(500)
    assert peak(300) < 0.88 * peak(500)
    assert peak(100) < 0.35 * peak(500)


@pytest.mark.parametrize(("web", "ops"), [(1, 350_000), (2, 450_000), (3, 550_000)])
def test_ceilings_with_one_cache(web: int, ops: float) -> None:
    peaks = {name: published.peak(s, web, 1) for name, s in published.DEPLOYMENTS.items()}
    assert max(peaks, key=peaks.get) == "nginx, apache"  # type: ignore[arg-type]
    assert peaks["nginx, apache"] * KEYS == pytest.approx(ops, rel=0.015)


def test_three_caches_cost_about_a_tenth() -> None:
    def best(web: int, cache: int) -> float:
        return max(float(published.best(name, web, cache)) for name in published.DEPLOYMENTS)

    lost = [1 - best(web, 3) / best(web, 1) for web in HOSTS]
    assert all(0.04 < part < 0.15 for part in lost)
    assert sum(lost) / len(lost) == pytest.approx(0.10, abs=0.02)


@pytest.mark.parametrize("cache", HOSTS)
@pytest.mark.parametrize("web", HOSTS)
def test_the_best_deployment_flips_at_three_by_three(web: int, cache: int) -> None:
    peaks = {name: published.best(name, web, cache) for name in published.DEPLOYMENTS}
    first, second = sorted(peaks.values(), reverse=True)[:2]
    wanted = "nginx, nginx" if (web, cache) == (3, 3) else "nginx, apache"
    assert max(peaks, key=peaks.get) == wanted  # type: ignore[arg-type]
    assert first > 1.02 * second


def test_the_cache_alone_carries_more_than_a_million_ops() -> None:
    topology = published.topology()
    alone = build_cache_and_store(
        topology, published.CACHE, process_count=100.0, missed_keys=0.0
    ).cache
    assert 1.0e6 < alone.max_rate * topology.data.keys_per_request < 1.1e6
