from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.measure import search_peak
from autotune.measure.reading import Reading
from autotune.services.base import Value
from autotune.simulate.chain import build_chain
from autotune.simulate.noise import NoiseModel
from autotune.simulate.stack import SimulatedStack
from autotune.simulate.topology import ChainTopology
from autotune.target.slo import Slo

SLO = Slo()
NO_NOISE = NoiseModel(reading_sd=0.0, outlier_share=0.0)
GOOD: dict[str, Value] = {
    "lb.nginx.worker_connections": 1500,
    "web.apache.MaxRequestWorkers": 500,
    "cache.memcached.memory": 4096,
    "cache.memcached.connections": 4096,
    "cache.memcached.threads": 2,
}


def stack(noise: NoiseModel = NO_NOISE, changes: dict[str, Value] | None = None) -> SimulatedStack:
    made = SimulatedStack(ChainTopology(), SLO, noise)
    assert made.deploy({**GOOD, **(changes or {})}) is None
    return made


def accounted(reading: Reading) -> int:
    return sum(reading.histogram.values()) + sum(reading.errors.values())


@settings(max_examples=40)
@given(st.floats(1.0, 20_000.0), st.floats(1.0, 10.0), st.integers(0, 1000))
def test_every_intended_request_is_counted_once(rate: float, seconds: float, seed: int) -> None:
    made = stack(NoiseModel(seed=seed))
    reading, _ = made.take_reading(rate, seconds)
    assert accounted(reading) == reading.intended
    late = sum(n for edge, n in reading.histogram.items() if edge > SLO.limit + 1e-9)
    assert reading.violations == late + reading.error_count
    assert 0 <= reading.violations <= reading.intended


def test_a_reading_shows_the_peak_from_both_sides() -> None:
    made = stack()
    peak = build_chain(made.topology, GOOD).compute_peak(SLO)
    below, _ = made.take_reading(0.9 * peak, 10.0)
    above, _ = made.take_reading(1.06 * peak, 10.0)
    assert below.violation_fraction < 0.1 * SLO.allowed_violations
    assert above.violation_fraction > 3 * SLO.allowed_violations
    median, tail = below.percentile(0.5), below.percentile(0.99)
    assert median is not None
    assert tail is not None
    assert median < tail < SLO.limit


def test_a_clear_overload_is_cut_short_and_costs_little_time() -> None:
    made = stack()
    reading, _ = made.take_reading(10_000.0, 5.0)
    assert reading.truncated
    assert made.virtual_seconds < 1.0
    assert reading.violation_fraction > 0.7


def test_virtual_time_is_that_of_the_load() -> None:
    made = stack()
    made.take_reading(100.0, 3.0)
    made.take_reading(100.0, 2.0)
    assert made.virtual_seconds == pytest.approx(6.0)
    assert made.reading_count == 2


def test_the_same_seed_gives_the_same_readings_and_a_resumed_stack_goes_on_with_them() -> None:
    one, again = stack(NoiseModel(seed=4)), stack(NoiseModel(seed=4))
    first = [one.take_reading(3000.0, 2.0)[0] for _ in range(4)]
    assert first == [again.take_reading(3000.0, 2.0)[0] for _ in range(4)]
    resumed = replace(stack(NoiseModel(seed=4)), virtual_seconds=5.0, reading_count=2)
    resumed.deploy(GOOD)
    assert [resumed.take_reading(3000.0, 2.0)[0] for _ in range(2)] == first[2:]


def test_what_fails_is_an_error_and_no_latency() -> None:
    reading, _ = stack(changes={"cache.memcached.connections": 250}).take_reading(500.0, 4.0)
    assert reading.errors["no connection to the cache"] == pytest.approx(1000, rel=0.15)
    assert reading.percentile(0.99) is None


def test_hosts_show_their_load_and_the_busiest_is_the_slowest() -> None:
    _, hosts = stack().take_reading(3400.0, 3.0)
    assert set(hosts) == {"lb1", "web1", "cache1", "store1"}
    assert max(hosts, key=lambda name: hosts[name].load) == "web1"
    assert 0.8 < hosts["web1"].cpu <= 1.0
    _, calmer = stack().take_reading(1000.0, 3.0)
    assert calmer["web1"].load < 0.3 * hosts["web1"].load


def test_the_cache_counts_every_key_of_every_request() -> None:
    made = stack()
    reading, _ = made.take_reading(1000.0, 2.0)
    assert made.cache_hits + made.cache_misses == 100 * reading.intended
    assert 0.9 < made.cache_hits / (made.cache_hits + made.cache_misses) < 0.95


def test_the_search_for_the_peak_finds_the_models_own() -> None:
    made = stack(NoiseModel(seed=2, reading_sd=0.01, outlier_share=0.0))
    found = search_peak(
        lambda rate, seconds: made.take_reading(rate, seconds)[0], SLO, target_sd=0.03
    )
    assert found.verdict == "measured"
    assert found.peak == pytest.approx(build_chain(made.topology, GOOD).compute_peak(SLO), rel=0.05)
