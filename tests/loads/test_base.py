from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.loads.base import (
    LoadResult,
    WrongAnswers,
    build_histogram,
    drop_fastest,
    sum_results,
)

KINDS = ("5xx", "timeout", "refused", "not sent")
EDGES = tuple(ms / 1000 for ms in (1, 2, 5, 51, 400))
counts = st.integers(0, 10_000)


@st.composite
def results(draw: st.DrawFn) -> LoadResult:
    errors = draw(st.dictionaries(st.sampled_from(KINDS), st.integers(1, 999)))
    histogram = draw(st.dictionaries(st.sampled_from(EDGES), st.integers(1, 999)))
    return LoadResult(
        intended=sum(errors.values()) + sum(histogram.values()),
        sent=draw(counts),
        errors=errors,
        histogram=histogram,
        duration=draw(st.floats(0, 100)),
        truncated=draw(st.booleans()),
        limited=draw(st.sampled_from([None, "ports", "behind"])),
    )


@settings(max_examples=40)
@given(st.lists(results(), max_size=5), st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_the_order_or_the_grouping(parts, rng) -> None:
    shuffled = list(parts)
    rng.shuffle(shuffled)
    cut = rng.randint(0, len(parts))
    assert sum_results(shuffled) == sum_results(parts)
    assert sum_results([sum_results(parts[:cut]), sum_results(parts[cut:])]) == sum_results(parts)


@settings(max_examples=40)
@given(st.lists(results(), max_size=5))
def test_every_intended_request_is_counted_once_in_a_sum(parts) -> None:
    whole = sum_results(parts)
    assert whole.right_answers + whole.error_count == whole.intended
    assert whole.truncated == any(part.truncated for part in parts)
    assert (whole.limited is None) == all(part.limited is None for part in parts)


@given(results(), st.integers(0, 5000))
def test_reclassifying_moves_right_answers_to_errors_and_never_hides_a_late_one(
    result, wrong
) -> None:
    reclassified = result.reclassify(WrongAnswers("wrong body", wrong))
    moved = min(wrong, result.right_answers)
    assert (
        reclassified.right_answers + reclassified.error_count
        == result.right_answers + result.error_count
    )
    assert reclassified.error_count == result.error_count + moved
    for limit in EDGES:
        late = result.count_later_than(limit)
        assert reclassified.count_later_than(limit) == min(late, result.right_answers - moved)


def test_later_than_counts_bins_that_end_after_the_limit() -> None:
    result = LoadResult(10, histogram={0.049: 1, 0.050: 2, 0.051: 3, 0.4: 4})
    assert result.count_later_than(0.050) == 7


def test_the_fastest_go_first() -> None:
    assert drop_fastest({0.4: 2, 0.001: 3, 0.002: 5}, 4) == {0.002: 4, 0.4: 2}


SECONDS = st.floats(0, 20, allow_nan=False)


@given(st.lists(SECONDS, max_size=200), st.sampled_from([0.0005, 0.0023, 0.005, 0.05, 0.2]))
def test_late_answers_are_counted_exactly(latencies: list[float], limit: float) -> None:
    found = build_histogram(latencies, limit)
    assert sum(found.values()) == len(latencies)
    assert sum(n for edge, n in found.items() if edge > limit) == sum(x > limit for x in latencies)


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_a_bin_ends_no_earlier_than_what_is_in_it_and_little_later(latencies: list[float]) -> None:
    edges = sorted(edge for edge, n in build_histogram(latencies, 0.05).items() for _ in range(n))
    for edge, latency in zip(edges, sorted(latencies), strict=True):
        assert latency - 1e-9 <= edge <= latency + 0.001 + 1e-9
