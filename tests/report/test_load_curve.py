from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.report.load_curve import build_load_curve
from autotune.study.reading_records import RecordedReading
from autotune.target.slo import Slo


def taken(rate: float, histogram: Mapping[str, int], **more: Any) -> RecordedReading:
    answered = sum(histogram.values())
    errors = sum(more.get("errors", {}).values())
    late = sum(n for edge, n in histogram.items() if float(edge) > 50)
    counts = {"intended": answered + errors, "violations": late + errors, "histogram": histogram}
    origin = {"trial": 0, "at": "", "purpose": "peak", "rate": rate, "seconds": 2.0}
    return RecordedReading(**{**origin, **counts, **more})


def test_a_stall_in_one_of_two_readings_is_not_averaged_away() -> None:
    quick, stalled = taken(100.0, {"10": 200}), taken(101.0, {"10": 180, "900": 20})
    (rung,) = build_load_curve([quick, stalled])
    assert rung.reading_count == 2
    assert rung.pooled_reading.rate == pytest.approx(100.5, abs=0.01)
    # 20 of 400: the mean of the two p99 would have been 455 ms.
    assert rung.percentile_milliseconds(95.0) == 10.0
    assert rung.percentile_milliseconds(99.0) == 900.0
    assert rung.goodput == pytest.approx(380 / 4)


def test_percentiles_are_of_intended_requests() -> None:
    (rung,) = build_load_curve([taken(100.0, {"10": 196}, errors={"timeout": 4})])
    assert rung.percentile_milliseconds(90.0) == 10.0
    assert rung.percentile_milliseconds(99.0) is None
    assert rung.pooled_reading.errors == {"timeout": 4}


def test_what_was_cut_short_or_limited_shares_no_rung() -> None:
    whole = taken(100.0, {"10": 200})
    cut = taken(100.0, {"10": 50}, truncated=True, errors={"refused": 20})
    limited = taken(100.0, {"10": 100}, limited="the load generator fell behind")
    warm = taken(100.0, {"10": 100}, purpose="warm-up")
    rungs = build_load_curve([whole, cut, limited, warm])
    assert sorted(
        (r.reading_count, r.pooled_reading.truncated, bool(r.invalid_reason)) for r in rungs
    ) == [
        (1, False, False),
        (1, False, True),
        (1, True, False),
    ]
    for rung in rungs:
        doubtful = rung.pooled_reading.truncated or rung.invalid_reason is not None
        assert (rung.percentile_milliseconds(50.0) is None) == doubtful
        assert (rung.goodput is None) == doubtful
        assert Slo().is_met(rung.pooled_reading) != doubtful


def test_errors_beyond_the_objective_are_not_kept_within_it() -> None:
    (rung,) = build_load_curve([taken(100.0, {"10": 995}, errors={"5xx": 5})])
    assert not Slo(errors=0.001).is_met(rung.pooled_reading)
    assert Slo(errors=0.01).is_met(rung.pooled_reading)


@given(st.lists(st.tuples(st.floats(1, 1e5), st.integers(1, 500), st.integers(0, 50)), max_size=20))
def test_nothing_is_lost_between_readings_and_rungs(made: list[tuple[float, int, int]]) -> None:
    readings = [taken(rate, {"10": right, "80": late}) for rate, right, late in made]
    rungs = build_load_curve(readings)
    for count in ("intended", "violations", "seconds"):
        assert sum(getattr(rung.pooled_reading, count) for rung in rungs) == sum(
            getattr(r, count) for r in readings
        )
    assert [rung.pooled_reading.rate for rung in rungs] == sorted(
        rung.pooled_reading.rate for rung in rungs
    )
