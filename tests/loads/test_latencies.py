from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autotune.loads.latencies import binned

SECONDS = st.floats(0, 20, allow_nan=False)


@given(st.lists(SECONDS, max_size=200), st.sampled_from([0.0005, 0.0023, 0.005, 0.05, 0.2]))
def test_late_answers_are_counted_exactly(latencies: list[float], limit: float) -> None:
    found = binned(latencies, limit)
    assert sum(found.values()) == len(latencies)
    assert sum(n for edge, n in found.items() if edge > limit) == sum(x > limit for x in latencies)


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_a_bin_ends_no_earlier_than_what_is_in_it_and_little_later(latencies: list[float]) -> None:
    edges = sorted(edge for edge, n in binned(latencies, 0.05).items() for _ in range(n))
    for edge, latency in zip(edges, sorted(latencies), strict=True):
        assert latency - 1e-9 <= edge <= latency + 0.001 + 1e-9
