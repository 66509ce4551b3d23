from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure.reading import Reading
from autotune.services.base import Value
from autotune.services.diagnosis import Resource
from autotune.simulate.chain import build_chain, diagnose_search
from autotune.simulate.topology import GIB, ChainTopology
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
    made = build_chain(ChainTopology(), GOOD)
    low, high = sorted((one, other))
    assert made.compute_violation_share(low, SLO) <= made.compute_violation_share(high, SLO) + 1e-12


def test_the_peak_is_where_the_objective_is_just_met() -> None:
    made = build_chain(ChainTopology(), GOOD)
    peak = made.compute_peak(SLO)
    assert (
        made.compute_violation_share(peak, SLO)
        <= SLO.allowed_violations
        < made.compute_violation_share(1.001 * peak, SLO)
    )


@pytest.mark.parametrize(
    ("stricter", "laxer"),
    [(Slo(limit=0.02), Slo(limit=0.05)), (Slo(quantile=0.999), Slo(quantile=0.9))],
)
def test_a_laxer_objective_has_a_higher_peak(stricter: Slo, laxer: Slo) -> None:
    made = build_chain(ChainTopology(), GOOD)
    assert (
        0 < made.compute_peak(stricter) < made.compute_peak(laxer) < made.slowest_station.max_rate
    )


def test_a_queue_that_never_settles_grows_with_the_length_of_a_reading() -> None:
    made, limit = build_chain(ChainTopology(), GOOD), np.array([SLO.limit])
    over = 1.05 * made.slowest_station.max_rate
    late = [float(made.compute_late_shares(over, limit, seconds)[0]) for seconds in (0.5, 1, 2, 5)]
    assert late == sorted(late)
    assert late[-1] > 0.9


@pytest.mark.parametrize(
    ("settings", "topology", "kind"),
    [
        (
            {**GOOD, "cache.memcached.connections": 400},
            ChainTopology(),
            "no connection to the cache",
        ),
        (
            {**NGINX, "cache.memcached.connections": 200},
            replace(ChainTopology(), web=replace(ChainTopology().web, count=3)),
            "no connection to the cache",
        ),
        (
            {**GOOD, "web.apache.MaxRequestWorkers": 1000},
            replace(ChainTopology(), web=replace(ChainTopology().web, memory=8 * GIB)),
            "killed",
        ),
        ({**GOOD, "lb.sysctl.net.core.somaxconn": 8}, ChainTopology(), "connection refused"),
    ],
)
def test_what_cannot_work_fails_requests_and_has_no_peak(
    settings: dict[str, Value], topology: ChainTopology, kind: str
) -> None:
    made = build_chain(topology, settings)
    assert made.compute_error_shares(3000.0)[kind] > SLO.errors
    assert made.compute_peak(SLO) < 0.7 * build_chain(ChainTopology(), GOOD).compute_peak(SLO)


@pytest.mark.parametrize("tier", ["lb", "web"])
def test_select_is_refused_with_more_connections_than_it_can_wait_for(tier: str) -> None:
    few = {**NGINX, f"{tier}.nginx.use": "select", f"{tier}.nginx.worker_connections": 1024}
    many = {**few, f"{tier}.nginx.worker_connections": 1025}
    assert build_chain(ChainTopology(), few).refusal_reason is None
    assert "select()" in (build_chain(ChainTopology(), many).refusal_reason or "")
    assert build_chain(ChainTopology(), many).compute_peak(SLO) == 0.0


def test_too_few_descriptors_are_too_few_connections() -> None:
    poor = replace(ChainTopology(), lb=replace(ChainTopology().lb, nofile=256))
    few = {**GOOD, "lb.nginx.worker_connections": 256}
    assert build_chain(poor, GOOD).compute_peak(SLO) < 0.6 * build_chain(
        ChainTopology(), GOOD
    ).compute_peak(SLO)
    assert build_chain(poor, GOOD).compute_peak(SLO) == pytest.approx(
        build_chain(ChainTopology(), few).compute_peak(SLO), rel=0.1
    )


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
    poor = ChainTopology()
    for name, fields in change.items():
        poor = replace(poor, **{name: replace(getattr(poor, name), **fields)})
    made = build_chain(poor, GOOD)
    assert made.slowest_station.tier == tier
    assert made.compute_peak(SLO) < made.slowest_station.max_rate


def test_a_data_set_that_fits_the_cache_never_asks_the_store() -> None:
    fits = replace(ChainTopology(), data=Data(pairs=100_000))
    assert build_chain(fits, GOOD).fixed_seconds < build_chain(ChainTopology(), GOOD).fixed_seconds


def test_few_prefork_processes_are_named_as_what_is_short() -> None:
    assert build_chain(
        ChainTopology(), {**GOOD, "web.apache.MaxRequestWorkers": 50}
    ).slowest_station.limit_reason == ("prefork processes in use")
    assert build_chain(
        ChainTopology(), {**NGINX, "web.php_fpm.max_children": 5}
    ).slowest_station.limit_reason == ("FPM children in use")
    assert build_chain(ChainTopology(), NGINX).slowest_station.limit_reason == "CPUs busy"


def test_workers_that_wait_for_the_store_limit_the_chain() -> None:
    slow = Data(pairs=100_000_000).model_copy(update={"store_latency": 0.12})
    few = {**NGINX, "web.php_fpm.max_children": 6, "cache.memcached.memory": 64}
    chain = build_chain(ChainTopology(data=slow), few)
    # Little's law: six workers that each wait 120 ms serve fewer than 50 requests/s.
    assert chain.slowest_station.tier == "web"
    assert chain.slowest_station.max_rate < 6 / 0.12
    more = build_chain(ChainTopology(data=slow), {**few, "web.php_fpm.max_children": 60})
    assert more.slowest_station.max_rate > 8 * chain.slowest_station.max_rate
    quick = build_chain(ChainTopology(), few)
    assert quick.slowest_station.max_rate > 4 * chain.slowest_station.max_rate


def test_the_cause_of_waiting_workers_is_a_small_cache() -> None:
    waiting = Data(pairs=200_000).model_copy(update={"store_latency": 0.12})
    small = {**NGINX, "web.php_fpm.max_children": 6, "cache.memcached.memory": 2}
    topology, failed = ChainTopology(data=waiting), Reading(100.0, 2.0, 200, 150)
    found = diagnose_search(topology, small, [failed], SLO)
    assert (found.tier, found.resource) == ("cache", Resource.CACHE)
    assert found.related == (("web", "php_fpm", "workers"),)
    grown = build_chain(topology, {**small, "cache.memcached.memory": 64})
    ratio = grown.slowest_station.max_rate / build_chain(topology, small).slowest_station.max_rate
    assert found.gain == pytest.approx(ratio, rel=0.05)
    assert found.gain > 8
    # With memory for all of the data, only more processes help.
    full = {**small, "cache.memcached.memory": 64}
    assert diagnose_search(topology, full, [failed], SLO).tier == "web"
