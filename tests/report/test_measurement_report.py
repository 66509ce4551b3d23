"""What `autotune measure` says, of the recorded baseline and best of a study."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.environments.peak import Peak
from autotune.report import measurement_report
from autotune.report.conclusion import find_conclusion
from autotune.report.load_curve import build_load_curve
from autotune.report.studies import Study, open_study
from autotune.report.trial_outcomes import UNMET_TEXT
from autotune.study.measure_capacity import Measurement
from autotune.study.study_state import Trial

Opened = Callable[[str], Study]


def repeats(study: Study) -> tuple[Trial, ...]:
    found = find_conclusion(study.state).best
    assert found is not None
    return tuple(trial for trial in found.repeats if trial.peak)


def test_each_measurement_has_its_ladder_hosts_and_bottleneck(study: Opened) -> None:
    opened = study("improved")
    found = Measurement(opened.name, repeats(opened))
    said = json.loads(json.dumps(measurement_report.build_measurement_json(found, opened)))
    assert len(said["peaks"]) == len(found.trials) > 1
    for one in said["peaks"]:
        mine = [r for r in opened.readings if r.trial == one["trial"] and r.purpose != "warm-up"]
        assert sum(step["intended"] for step in one["ladder"]) == sum(r.intended for r in mine)
        assert {"hosts", "bottleneck"} <= one.keys()
    assert sum(step["readings"] for step in said["ladder"]) == sum(
        step["readings"] for one in said["peaks"] for step in one["ladder"]
    )
    for step in said["ladder"]:
        known = [step[p] for p in ("p50", "p90", "p95", "p99", "p99.9") if step[p] is not None]
        assert known == sorted(known)
        assert all(0 < seconds < 10 for seconds in known)


def test_the_text_has_a_line_for_each_load_step(study: Opened) -> None:
    opened = study("improved")
    trials = repeats(opened)
    said = measurement_report.format_measurement(Measurement(opened.name, trials), opened)
    numbers = {trial.number for trial in trials}
    steps = build_load_curve(r for r in opened.readings if r.trial in numbers)
    lines = said.splitlines()
    head = next(i for i, line in enumerate(lines) if "offered" in line)
    assert all("/s" in line for line in lines[head + 1 : head + 1 + len(steps)])
    assert "p99.9" in lines[head]
    assert "spread between repeats" in said


def test_the_text_has_the_percentile_of_the_slo(copied: Callable[[str], Path]) -> None:
    target = copied("improved") / "target.yaml"
    target.write_text(target.read_text().replace("p99: 50ms", "p98: 50ms"))
    opened = open_study(target.parent)
    said = measurement_report.format_measurement(Measurement(opened.name, repeats(opened)), opened)
    (head,) = [line for line in said.splitlines() if "offered" in line]
    assert head.split()[2:8] == ["p50", "p90", "p95", "p98", "p99", "p99.9"]


def test_the_mean_of_repeats_has_an_interval(study: Opened) -> None:
    opened = study("improved")
    trials = repeats(opened)
    measurement = Measurement(opened.name, trials)
    assert measurement.interval is not None
    low, high = measurement.interval
    assert low < measurement.peak < high
    document = measurement_report.build_measurement_json(measurement, opened)
    assert (document["low"], document["high"]) == (round(low, 2), round(high, 2))
    said = measurement_report.format_measurement(measurement, opened)
    assert f"mean of {len(trials)} measurements: {measurement.peak:,.0f} requests/s [" in said
    single = Measurement(opened.name, trials[:1])
    assert single.interval is None
    assert measurement_report.build_measurement_json(single, opened)["low"] is None


@pytest.mark.parametrize("name", ["unmeetable"])
def test_where_nothing_is_carried_the_ladder_says_why(name: str, study: Opened) -> None:
    opened = study(name)
    trial = next(
        t for t in opened.state.list_finished_trials() if t.peak and not t.peak.is_feasible
    )
    said = measurement_report.format_measurement(Measurement(opened.name, (trial,)), opened)
    assert said.startswith("SLO not attainable at any rate")
    assert "✗" in said
    assert (
        measurement_report.build_measurement_json(Measurement(opened.name, (trial,)), opened)[
            "peak"
        ]
        == 0.0
    )


def test_an_estimate_is_no_capacity_if_no_rate_met_the_objective(study: Opened) -> None:
    opened = study("unmeetable")
    trial = next(t for t in opened.state.list_finished_trials() if t.peak)
    unmet = replace(trial, peak=Peak(700.0, 300.0, 1600.0, 0.5, "unmet"))
    measurement = Measurement(opened.name, (unmet,))
    said = measurement_report.format_measurement(measurement, opened)
    assert said.startswith(f"{UNMET_TEXT} (p99 ≤ 50 ms)")
    (side,) = measurement_report.build_measurement_json(measurement, opened)["peaks"]
    assert (side["peak"], side["low"], side["high"], side["verdict"]) == (None, None, None, "unmet")


@pytest.mark.parametrize(
    ("rate", "outcome"),
    [(80.0, "reached"), (1200.0, "unknown, because the load was limited")],
)
def test_a_lower_bound_does_not_show_that_a_rate_is_not_reached(
    study: Opened, rate: float, outcome: str
) -> None:
    opened = study("improved")
    limited = Peak(80.0, 80.0, 90.0, 0.03, "limited", limit="the load generator fell behind")
    measurement = Measurement(opened.name, (replace(repeats(opened)[0], peak=limited),))
    said = measurement_report.format_measurement(measurement, opened, rate)
    assert f"/s: {outcome}\n" in said
