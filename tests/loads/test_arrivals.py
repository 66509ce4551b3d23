from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.loads.arrivals import CLIENTS, mean_gap, unit_span

# What httperf 0.9.0-9 took, in test-duration (1 ms resolution), to send 1000 requests with a mean
# gap of 1 ms to a server that answered at once.
TOOK = {0: 0.958, 1: 1.005, 777: 1.025}


@pytest.mark.parametrize(("client", "took"), TOOK.items())
def test_the_sequence_is_httperfs_own(client: int, took: float) -> None:
    assert unit_span(client, 999) / 1000 == pytest.approx(took, abs=0.002)


@given(st.integers(0, CLIENTS - 1), st.integers(2, 400), st.floats(1, 10_000))
def test_the_gaps_add_up_to_the_time_the_rate_asks_for(client, requests, rate) -> None:
    gap = mean_gap(client, requests, rate)
    assert gap * unit_span(client, requests - 1) == pytest.approx((requests - 1) / rate)


def test_clients_send_at_different_moments_and_stray_as_poisson_arrivals_do() -> None:
    n = 1000
    spans = [unit_span(client, n) / n for client in range(0, CLIENTS, CLIENTS // 200)]
    mean = sum(spans) / len(spans)
    sd = sqrt(sum((span - mean) ** 2 for span in spans) / (len(spans) - 1))
    assert len(set(spans)) == len(spans)
    assert mean == pytest.approx(1, abs=4 / sqrt(n * len(spans)))
    assert sd == pytest.approx(1 / sqrt(n), rel=0.2)


def test_a_single_request_needs_no_gap() -> None:
    assert mean_gap(3, 1, 5.0) == 0.2
