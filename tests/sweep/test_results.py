from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import Phase, Trial
from autotune.sweep.figures import find_best_result
from autotune.sweep.plan import AxisValue, PointMeasurement, SweepAxis, SweepPlan, order_rates
from autotune.sweep.results import (
    Mean,
    Result,
    _list_differences,
    compute_mean_seconds,
    compute_mean_with_interval,
    find_readings_by_rate,
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


def test_throughput_includes_the_requests_that_check_responses(tmp_path: Path) -> None:
    """At low rates, up to a fifth of the requests check the content of their responses."""
    checked = {**COUNTS, "intended": 160, "histogram": {"10": 160}, "looked_at": 40, "wrong": 1}
    result = swept(tmp_path, [checked], [100.0])
    assert result.throughput == Mean(99.5)


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


def test_a_capacity_needs_a_rate_that_met_the_objective(tmp_path: Path) -> None:
    """A search without such a rate ends with an estimate."""
    measured = {"event": "measured", "peak": 100.0, **PEAK}
    unmet = {"event": "measured", **PEAK, "peak": 700.0, "high": 1600.0, "verdict": "unmet"}
    result = swept(tmp_path, [measured, unmet], [])
    assert result.failure == "1 of 2 repeats failed: no rate met the SLO in time"
    assert result.peak == Mean(100.0)
    assert swept(tmp_path, [unmet], []).peak is None


def test_a_reading_counts_at_the_rate_that_its_generator_rounded(tmp_path: Path) -> None:
    result = swept(tmp_path, [SENT, SENT], [100.4])
    assert result.failure is None
    assert result.response is not None
    assert (result.rate, result.response.count) == (100.4, 2)


def test_rates_that_their_generator_rounded_to_the_same_rate_are_apart(tmp_path: Path) -> None:
    axis = SweepAxis("lb.nginx.worker_connections", (AxisValue(512, {}),))
    plan = SweepPlan("A sweep", (axis,), rates=(10.0, 11.0, 12.0))
    measurement = PointMeasurement(0, 0)
    sent_rates = {10.0: 9.0, 11.0: 12.0, 12.0: 12.0}
    order = order_rates(plan, measurement)
    assert sorted(order) == [*plan.rates]
    readings = [
        RecordedReading(7, "", "sweep", sent_rates[rate], 1.0, int(rate), 0) for rate in order
    ]
    found = find_readings_by_rate(plan, {7: measurement}, readings)
    assert {rate: one.intended for (_, rate), (one,) in found.items()} == {10: 10, 11: 11, 12: 12}


def test_a_rate_without_a_reading_is_named(tmp_path: Path) -> None:
    result = swept(tmp_path, [{**SENT, "purpose": "warm-up"}], [100.0])
    assert result.failure == "no reading was recorded at this rate"


def test_a_value_that_was_not_in_effect_is_named(tmp_path: Path) -> None:
    name = "lb.nginx.worker_connections"
    axis = SweepAxis(name, (AxisValue(512, {name: 512}),))
    plan = SweepPlan("A sweep", (axis,), rates=(100.0,), repeat=1)
    differences = (
        f"{name}: requested 512, effective 256",
        "lb.nginx.backlog: requested 9, effective 4",
    )
    trial = Trial(0, Phase.MEASURE, {name: 512}, differences=differences)
    assert [*_list_differences(plan, {0: [trial]})] == [differences[0]]
