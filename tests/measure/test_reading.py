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


@pytest.mark.parametrize(
    "flaw", [{"truncated": True}, {"limited": "descriptors"}, {"disturbed": "stolen"}]
)
def test_what_is_wrong_with_one_reading_is_wrong_with_all(flaw: dict[str, object]) -> None:
    flawed = Reading(100.0, 2.0, 200, 0, **flaw)  # type: ignore[arg-type]
    pooled = Reading.pool([Reading(100.0, 2.0, 200, 0), flawed])
    assert {name: getattr(pooled, name) for name in flaw} == flaw
