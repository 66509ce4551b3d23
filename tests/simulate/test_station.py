from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.simulate.station import BURSTINESS, QueueStation, compute_served_share

shares = st.floats(0.01, 0.99)


@given(use=shares, more=shares, servers=st.integers(1, 64))
def test_more_load_never_takes_less_time(use: float, more: float, servers: int) -> None:
    station = QueueStation(
        "web", "apache", servers, max_rate=1000.0, service_seconds=servers / 1000.0
    )
    low, high = sorted((use, more))
    assert (
        station.compute_time_spent(1000.0 * low).mean
        <= station.compute_time_spent(1000.0 * high).mean
    )


def test_one_server_waits_as_the_formula_of_pollaczek_and_khinchine_says() -> None:
    # M/G/1 with (1 + cs²) / 2 = BURST: W = ρ / (1 - ρ) · s · BURST.
    station = QueueStation("store", "redis", 1, max_rate=100.0, service_seconds=0.010)
    waited = station.compute_time_spent(50.0).mean - 0.010
    assert waited == pytest.approx(0.5 / 0.5 * 0.010 * BURSTINESS)


def test_beyond_the_cap_a_reading_sees_no_more_than_at_it() -> None:
    station = QueueStation("web", "apache", 4, max_rate=1000.0, service_seconds=0.004)
    assert station.compute_time_spent(5000.0, 0.97) == station.compute_time_spent(970.0, 0.97)


@given(st.floats(0.1, 1e4), st.floats(0.1, 1e4))
def test_slots_let_through_at_most_all_and_at_most_their_ratio(
    needed: float, available: float
) -> None:
    share = compute_served_share(needed, available)
    assert 0 < share <= min(1.0, available / needed) + 1e-9
    assert compute_served_share(needed, 2 * available) >= share
