from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from autotune.study.reading_records import RecordedReading
from autotune.sweep.results import compute_mean, mean_response_seconds


def test_the_mean_of_three_has_students_interval() -> None:
    found = compute_mean([10.0, 11.0, 12.0])
    assert found is not None
    assert found.value == 11.0
    # t(0.95; 2 degrees of freedom) = 2.920, sd = 1.
    assert found.high == pytest.approx(11.0 + 2.920 / sqrt(3), abs=0.001)
    assert found.low == pytest.approx(11.0 - 2.920 / sqrt(3), abs=0.001)
    assert found.count == 3


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    one = compute_mean([4.0])
    assert one is not None
    assert (one.value, one.low, one.high) == (4.0, None, None)
    assert compute_mean([]) is None


def test_response_time_is_that_of_right_answers() -> None:
    histogram = {"10": 3, "50": 1}
    reading = RecordedReading(0, "", "sweep", 100.0, 1.0, 104, 100, {"timeout": 100}, histogram)
    assert mean_response_seconds(reading) == pytest.approx(0.020)
    assert mean_response_seconds(replace(reading, histogram={})) is None
