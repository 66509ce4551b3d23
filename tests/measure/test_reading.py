from __future__ import annotations

import pytest

from autotune.measure import Reading


def test_a_percentile_beyond_the_answers_is_none() -> None:
    reading = Reading(50.0, 2.0, 100, 2, {"timeout": 2}, {0.010: 90, 0.030: 8})
    assert reading.percentile(0.50) == 0.010
    assert reading.percentile(0.98) == 0.030
    assert reading.percentile(0.99) is None


def test_readings_pool_by_their_counts() -> None:
    quick = Reading(100.0, 2.0, 200, 0, {}, {0.01: 200})
    stalled = Reading(102.0, 2.0, 200, 20, {"timeout": 5}, {0.01: 180, 0.9: 15})
    pooled = Reading.pool([quick, stalled])
    assert pooled.rate == pytest.approx(101.0, abs=0.01)
    assert (pooled.seconds, pooled.intended, pooled.violations, pooled.error_count) == (
        4.0,
        400,
        20,
        5,
    )
    assert pooled.histogram == {0.01: 380, 0.9: 15}
    assert pooled.percentile(0.95) == 0.01


@pytest.mark.parametrize("flaw", [{"truncated": True}, {"limited": "descriptors"}])
def test_what_is_wrong_with_one_reading_is_wrong_with_all(flaw: dict[str, object]) -> None:
    flawed = Reading(100.0, 2.0, 200, 0, **flaw)  # type: ignore[arg-type]
    pooled = Reading.pool([Reading(100.0, 2.0, 200, 0), flawed])
    assert {name: getattr(pooled, name) for name in flaw} == flaw


@pytest.mark.parametrize(
    ("counts", "answered_rate"),
    [
        ({}, 80.0),
        ({"errors": {"timeout": 40}, "violations": 40}, 60.0),
        ({"violations": 40}, 80.0),  # a late response is a response
        # 40 more requests check the content, and one of them got a wrong response.
        ({"looked_at": 40, "wrong": 1}, 99.5),
        ({"seconds": 0.0}, 0.0),
        # The load lasted 1.6 s at 100 requests/s.
        ({"truncated": True, "errors": {"5xx": 80}, "violations": 80}, 50.0),
    ],
)
def test_the_answered_rate_counts_all_correct_responses(
    counts: dict[str, object], answered_rate: float
) -> None:
    reading = Reading(**{"rate": 100.0, "seconds": 2.0, "intended": 160, "violations": 0, **counts})  # type: ignore[arg-type]
    assert reading.answered_rate == pytest.approx(answered_rate)
