from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.services.base import Value
from autotune.simulate.chain import chain
from autotune.simulate.topology import GIB, Topology
from autotune.target.model import Data
from autotune.target.slo import Slo

SLO = Slo()
GOOD: dict[str, Value] = {
    "lb.nginx.worker_connections": 1500,
    "web.apache.MaxRequestWorkers": 500,
    "cache.memcached.memory": 4096,
    "cache.memcached.connections": 4096,
    "cache.memcached.threads": 2,
}
NGINX: dict[str, Value] = {
    **GOOD,
    "web.service": "nginx+php-fpm",
    "web.php_fpm.max_children": 75,
    "web.nginx.worker_connections": 1800,
}


@given(st.floats(1.0, 6000.0), st.floats(1.0, 6000.0))
def test_violations_grow_with_the_rate(one: float, other: float) -> None:
    made = chain(Topology(), GOOD)
    low, high = sorted((one, other))
    assert made.violated(low, SLO) <= made.violated(high, SLO) + 1e-12


def test_the_peak_is_where_the_objective_is_just_met() -> None:
    made = chain(Topology(), GOOD)
    peak = made.peak(SLO)
    assert made.violated(peak, SLO) <= SLO.allowed < made.violated(1.001 * peak, SLO)


@pytest.mark.parametrize(
    ("stricter", "laxer"),
    [(Slo(limit=0.02), Slo(limit=0.05)), (Slo(quantile=0.999), Slo(quantile=0.9))],
)
def test_a_laxer_objective_has_a_higher_peak(stricter: Slo, laxer: Slo) -> None:
    made = chain(Topology(), GOOD)
    assert 0 < made.peak(stricter) < made.peak(laxer) < made.slowest.rate


def test_a_queue_that_never_settles_grows_with_the_length_of_a_reading() -> None:
    made, limit = chain(Topology(), GOOD), np.array([SLO.limit])
    over = 1.05 * made.slowest.rate
    late = [float(made.slower_than(over, limit, seconds)[0]) for seconds in (0.5, 1, 2, 5)]
    assert late == sorted(late)
    assert late[-1] > 0.9


@pytest.mark.parametrize(
    ("settings", "topology", "kind"),
    [
        ({**GOOD, "cache.memcached.connections": 400}, Topology(), "no connection to the cache"),
        (
            {**NGINX, "cache.memcached.connections": 200},
            replace(Topology(), web=replace(Topology().web, count=3)),
            "no connection to the cache",
        ),
        (
            {**GOOD, "web.apache.MaxRequestWorkers": 1000},
            replace(Topology(), web=replace(Topology().web, memory=8 * GIB)),
            "killed",
        ),
        ({**GOOD, "lb.sysctl.net.core.somaxconn": 8}, Topology(), "connection refused"),
    ],
)
def test_what_cannot_work_fails_requests_and_has_no_peak(
    settings: dict[str, Value], topology: Topology, kind: str
) -> None:
    made = chain(topology, settings)
    assert made.errors(3000.0)[kind] > SLO.errors
    assert made.peak(SLO) < 0.7 * chain(Topology(), GOOD).peak(SLO)


@pytest.mark.parametrize("tier", ["lb", "web"])
def test_select_is_refused_with_more_connections_than_it_can_wait_for(tier: str) -> None:
    few = {**NGINX, f"{tier}.nginx.use": "select", f"{tier}.nginx.worker_connections": 1024}
    many = {**few, f"{tier}.nginx.worker_connections": 1025}
    assert chain(Topology(), few).refused is None
    assert "select()" in (chain(Topology(), many).refused or "")
    assert chain(Topology(), many).peak(SLO) == 0.0


def test_too_few_descriptors_are_too_few_connections() -> None:
    poor = replace(Topology(), lb=replace(Topology().lb, nofile=256))
    few = {**GOOD, "lb.nginx.worker_connections": 256}
    assert chain(poor, GOOD).peak(SLO) < 0.6 * chain(Topology(), GOOD).peak(SLO)
    assert chain(poor, GOOD).peak(SLO) == pytest.approx(chain(Topology(), few).peak(SLO), rel=0.1)


@pytest.mark.parametrize(
    ("change", "tier"),
    [
        ({"lb": {"cpus": 1.0}}, "lb"),
        ({"cache": {"cpus": 0.4}}, "cache"),
        ({"store": {"cpus": 0.1}}, "store"),
        ({}, "web"),
    ],
)
def test_the_poorest_tier_is_the_slowest(change: dict[str, dict[str, float]], tier: str) -> None:
    poor = Topology()
    for name, fields in change.items():
        poor = replace(poor, **{name: replace(getattr(poor, name), **fields)})
    made = chain(poor, GOOD)
    assert made.slowest.tier == tier
    assert made.peak(SLO) < made.slowest.rate


def test_a_data_set_that_fits_the_cache_never_asks_the_store() -> None:
    fits = replace(Topology(), data=Data(pairs=100_000))
    assert chain(fits, GOOD).fixed < chain(Topology(), GOOD).fixed


def test_few_prefork_processes_are_named_as_what_is_short() -> None:
    assert chain(Topology(), {**GOOD, "web.apache.MaxRequestWorkers": 50}).slowest.why == (
        "prefork processes in use"
    )
    assert chain(Topology(), {**NGINX, "web.php_fpm.max_children": 5}).slowest.why == (
        "FPM children in use"
    )
    assert chain(Topology(), NGINX).slowest.why == "CPUs busy"
