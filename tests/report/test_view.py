from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.environments.peak import Peak
from autotune.measure.objective_scale import Scale
from autotune.report.objective import Requests, Values
from autotune.report.studies import Study
from autotune.report.view import capacity, study_view

Opened = Callable[[str], Study]


def test_a_capacity_has_its_interval_the_lower_end_first() -> None:
    peak = Peak(1000.004, 900.0, 1100.0, 0.05, "measured")
    requests = Requests("p99 ≤ 50 ms")
    assert capacity(peak, requests) == {"peak": 1000.0, "low": 900.0, "high": 1100.0}
    seconds = Values("elapsed", "s", maximize=False, scale=Scale(False, 10.0))
    turned = capacity(peak, seconds)
    assert turned["low"] < turned["peak"] < turned["high"]  # type: ignore[operator]


def test_no_capacity_is_none_or_zero() -> None:
    requests = Requests("p99 ≤ 50 ms")
    assert capacity(None, requests) == {"peak": None, "low": None, "high": None}
    nothing = capacity(Peak(0.0, 0.0, 12.345, 0.0, "unmeetable"), requests)
    assert nothing == {"peak": 0.0, "low": 0.0, "high": 12.35}


def test_readings_are_of_the_side_and_its_repeats(study: Opened) -> None:
    view = study_view(study("improved"))
    readings = view.readings()
    assert set(readings) == {"baseline", "best"}
    for label, side in view.conclusion.sides.items():
        taken = {reading["trial"] for reading in readings[label]}
        assert taken == {side.trial.number, *(trial.number for trial in side.repeats)}


@pytest.mark.parametrize("name", ["aa", "improved", "infeasible", "killed", "noisy", "unmeetable"])
def test_the_parts_of_the_time_add_up(name: str, study: Opened) -> None:
    seconds = dict(study_view(study(name)).seconds)
    total = seconds.pop("total")
    assert sum(seconds.values()) == pytest.approx(total, abs=0.3)
