from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from autotune.study.reading_records import RecordedReading
from autotune.sweep.figures import find_best_result
from autotune.sweep.plan import AxisValue, SweepAxis, SweepPlan
from autotune.sweep.results import (
    Result,
    compute_mean_seconds,
    compute_mean_with_interval,
    load_results,
)
from tests.sweep import modelled


def test_the_mean_of_three_has_students_interval() -> None:
    found = compute_mean_with_interval([10.0, 11.0, 12.0])
    assert found is not None
    assert found.value == 11.0
    # t(0.95; 2 degrees of freedom) = 2.920, sd = 1.
    assert found.high == pytest.approx(11.0 + 2.920 / sqrt(3), abs=0.001)
    assert found.low == pytest.approx(11.0 - 2.920 / sqrt(3), abs=0.001)
    assert found.count == 3


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    one = compute_mean_with_interval([4.0])
    assert one is not None
    assert (one.value, one.low, one.high) == (4.0, None, None)
    assert compute_mean_with_interval([]) is None


def test_response_time_is_that_of_right_answers() -> None:
    histogram = {"10": 3, "50": 1}
    reading = RecordedReading(0, "", "sweep", 100.0, 1.0, 104, 100, {"timeout": 100}, histogram)
    assert compute_mean_seconds(reading) == pytest.approx(0.020)
    assert compute_mean_seconds(replace(reading, histogram={})) is None


COUNTS = {"purpose": "sweep", "rate": 100.0, "seconds": 2.0, "intended": 200, "violations": 0}
SENT = {**COUNTS, "histogram": {"10": 200}}
UNSENT = {**COUNTS, "seconds": 0.0, "violations": 200, "errors": {"not sent": 200},
          "limited": "the load generator fell behind"}  # fmt: skip
SHORT = {**SENT, "histogram": {"1": 200}, "limited": "the load generator fell behind"}
PEAK = {"low": 90.0, "high": 110.0, "sd": 0.03, "verdict": "measured", "at": ""}


def swept(directory: Path, repeats: Sequence[Mapping[str, Any]], rates: Sequence[float]) -> Result:
    """The only point of a sweep, from the readings or the records of its repeats."""
    axis = SweepAxis("lb.nginx.worker_connections", (AxisValue(512, {}),))
    plan = SweepPlan("A sweep", (axis,), rates=tuple(rates), repeat=len(repeats))
    events: list[dict[str, Any]] = [
        {"event": "study", "started": "now"}, {"event": "sweep", "plan": plan.to_record()}
    ]  # fmt: skip
    readings = []
    for trial, repeat in enumerate(repeats):
        events += [
            {"event": "trial", "trial": trial, "phase": "measure", "settings": {}, "suggested": {},
             "bindings": []},
            {"event": "swept", "trial": trial, "point": 0, "turn": trial},
        ]  # fmt: skip
        if "event" in repeat:
            events.append({**repeat, "trial": trial})
        else:
            readings.append({"trial": trial, "at": "", **repeat})
    for name, records in (("events.jsonl", events), ("readings.jsonl", readings)):
        (directory / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    modelled.written(directory).rename(directory / "target.yaml")
    sweep = load_results(directory)
    (result,) = sweep.results
    assert (find_best_result(sweep) is None) is (result.failure is not None)
    return result


@pytest.mark.parametrize("unsent", [UNSENT, SHORT], ids=["nothing sent", "too little sent"])
def test_load_that_was_not_sent_is_no_result(tmp_path: Path, unsent: dict[str, Any]) -> None:
    result = swept(tmp_path, [unsent, unsent], [100.0])
    assert result.failure == "the load generator fell behind"
    assert result.response is None
    assert result.throughput is None
    mixed = swept(tmp_path, [unsent, SENT], [100.0])
    assert mixed.failure is None
    assert mixed.response is not None
    assert (mixed.response.value, mixed.response.count) == (0.01, 1)
    assert mixed.met


def test_repeats_that_failed_count_against_a_point(tmp_path: Path) -> None:
    failed = {"event": "failed", "why": "it does not start"}
    result = swept(tmp_path, [SENT, failed, failed], [100.0])
    assert result.failure == "2 of 3 repeats failed: it does not start"
    measured = {"event": "measured", "peak": 100.0, **PEAK}
    unmet = {"event": "measured", **PEAK, "peak": 0.0, "low": 0.0, "high": 0.0,
             "verdict": "unmeetable"}  # fmt: skip
    for repeats, failure in (
        ([measured, measured], None),
        ([measured, unmet], "1 of 2 repeats failed: the SLO is not met at any rate"),
        ([measured, failed], "1 of 2 repeats failed: it does not start"),
        ([unmet], "the SLO is not met at any rate"),
    ):
        result = swept(tmp_path, repeats, [])
        assert result.failure == failure
        assert (result.peak is None) is (measured not in repeats)
