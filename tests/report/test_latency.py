from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil, log
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.measure.reading import TODAY_PURPOSE
from autotune.report.latency import (
    AT_MOST_BOUND,
    MORE_THAN_BOUND,
    LatencyCurve,
    find_today_rate,
    fit_curve,
    fit_latency_curves,
    measure_latency,
)
from autotune.report.studies import open_study
from autotune.report.view import build_study_view
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import Phase
from autotune.target.slo import Slo
from tests.printed import printed
from tests.report.recorded_lab import lab_study, shop_study

STUDIES = Path(__file__).with_name("studies")
SLO = Slo()


def p99(rate: float) -> float:
    """Of an M/M/1 queue that serves 1,092 requests/s: 50 ms at 1,000/s."""
    return log(100) / (1092.1 - rate)


def readings(rates: list[float], seed: int = 1) -> list[RecordedReading]:
    """Readings whose percentile scatters by 10 % around the true one."""
    draws, records = Random(seed), []
    for rate in rates:
        late = 1000 * p99(rate) * draws.lognormvariate(0, 0.1)
        histogram = {f"{late / 5:g}": 900, f"{late:g}": 100}
        violations = 10 if late <= 50 else 20
        records.append(
            RecordedReading(0, "", "peak", rate, 2.0, 1000, violations, histogram=histogram)
        )
    return records


def curve(rates: list[float], capacity: Peak | None, seed: int = 1) -> LatencyCurve:
    found = fit_curve(readings(rates, seed), SLO, 2.0, capacity)
    assert found is not None
    return found


RATES = [500 + 10 * step for step in range(57)]
CAPACITY = Peak.from_estimate(Estimate.from_value(1000, 0.02))


def test_a_known_curve_is_within_its_band() -> None:
    asked = (550.0, 700.0, 800.0, 900.0, 960.0)
    answers = [
        (curve(RATES, CAPACITY, seed).estimate_at(rate), p99(rate))
        for seed in range(10)
        for rate in asked
    ]
    assert sum(answer.low <= true <= answer.high for answer, true in answers) >= 0.85 * len(answers)
    assert all(answer.seconds == pytest.approx(true, rel=0.25) for answer, true in answers)


def test_it_passes_through_the_capacity() -> None:
    answer = curve(RATES, CAPACITY).estimate_at(1000)
    assert answer.seconds == pytest.approx(SLO.limit, rel=0.05)
    assert answer.low <= SLO.limit <= answer.high


def test_what_was_not_measured_is_a_bound() -> None:
    known = curve(RATES, CAPACITY)
    below, beyond = known.estimate_at(100), known.estimate_at(1500)
    assert (below.bound, beyond.bound) == (AT_MOST_BOUND, MORE_THAN_BOUND)
    assert p99(100) <= below.seconds
    assert beyond.seconds == SLO.limit
    assert "the lowest measured rate is 500/s" in below.why
    assert beyond.why == "above the capacity of 1,000/s"
    assert known.estimate_at(700).why == ""
    assert curve(RATES, None).estimate_at(1500).bound == MORE_THAN_BOUND


def test_a_disturbed_reading_does_not_make_latency_fall() -> None:
    disturbed = [
        replace(record, histogram={"900": 1000}) if record.rate == 600 else record
        for record in readings(RATES)
    ]
    known = fit_curve(disturbed, SLO, 2.0, CAPACITY)
    assert known is not None
    assert list(known.median) == sorted(known.median)
    assert known.estimate_at(900).seconds == pytest.approx(p99(900), rel=0.25)


def test_too_few_readings_make_no_curve() -> None:
    assert fit_curve(readings([500, 600]), SLO, 2.0, CAPACITY) is None


@pytest.mark.parametrize("name", [*sorted(path.name for path in STUDIES.iterdir()), "lab", "shop"])
def test_every_recorded_study_answers_for_both_sides(name: str, tmp_path: Path) -> None:
    unpacked = {"lab": lab_study, "shop": shop_study}.get(name, lambda _: STUDIES / name)
    view = build_study_view(open_study(unpacked(tmp_path)))
    curves = fit_latency_curves(view)
    assert curves.keys() == view.conclusion.sides.keys()
    for known in curves.values():
        for rate in (1, 250, 800, 2000, 10_000):
            answer = known.estimate_at(rate)
            assert 0 < answer.low <= answer.seconds <= answer.high


def test_the_terminal_answers_for_a_rate() -> None:
    def asked(*options: str) -> str:
        result = CliRunner().invoke(app, ["report", str(STUDIES / "improved"), *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    text = asked("--at", "1200/s", "--at", "60000/min")
    assert "p99 at 1,200/s\n" in text
    assert "p99 at 1,000/s\n" in text
    assert "extrapolated: the lowest measured rate is 1,240/s" in text
    (first, second) = printed("study", asked("--json", "--at", "1200/s", "--at", "9000/s"))["at"]
    assert first["rate"] == 1200
    assert first["baseline"]["low"] <= first["baseline"]["latency"] <= first["baseline"]["high"]
    assert first["baseline"]["bound"] is None
    assert second["best"]["bound"] == MORE_THAN_BOUND


def at_rate(rate: float, late: float, **changes: Any) -> RecordedReading:
    """A reading of latency whose 99th percentile is ``late`` milliseconds."""
    histogram = {f"{late / 5:g}": 1900, f"{late:g}": 100}
    record = RecordedReading(0, "", TODAY_PURPOSE, rate, 5.0, 2000, 0, histogram=histogram)
    return replace(record, **changes)


@pytest.mark.parametrize(
    ("records", "seconds"),
    [
        ([at_rate(400, 40)] * 3, 0.040),
        ([at_rate(400, 20), at_rate(400, 80)], 0.040),  # the mean of the logarithms
        ([at_rate(400, 40), at_rate(400, 900, limited="no free port")], 0.040),
        ([at_rate(400, 40), at_rate(400, 900, purpose="peak"), at_rate(300, 900)], 0.040),
        ([at_rate(400, 40, histogram={"40": 100})], 2.0),  # no response within the time limit
        ([at_rate(400, 40, truncated=True)], 2.0),
        ([at_rate(300, 40)], None),
        ([], None),
    ],
)
def test_latency_at_a_rate_is_measured(
    records: list[RecordedReading], seconds: float | None
) -> None:
    latency = measure_latency(records, 400.0, SLO, timeout_seconds=2.0)
    if seconds is None or latency is None:
        assert latency is seconds
        return
    assert latency.is_measured
    assert latency.seconds == pytest.approx(seconds)
    assert latency.low < latency.seconds < latency.high


@pytest.mark.parametrize(("scatter", "share"), [(0.05, 0.9), (0.15, 0.85), (0.3, 0.75)])
def test_its_interval_holds_the_truth_if_readings_scatter_as_usual(
    scatter: float, share: float
) -> None:
    draws, held, studies = Random(2), 0, 300
    for _ in range(studies):
        histograms = [draw_histogram(draws, scatter) for _ in range(3)]
        records = [at_rate(400, 40, histogram=histogram) for histogram in histograms]
        latency = measure_latency(records, 400.0, SLO, timeout_seconds=2.0)
        assert latency is not None
        held += latency.low <= 0.040 <= latency.high
    assert held / studies >= share


def draw_histogram(draws: Random, scatter: float) -> dict[str, int]:
    """Exponential response times with a p99 of 40 ms, which varies between readings."""
    scale = 40 / log(100) * draws.lognormvariate(0, scatter)
    counts = Counter(f"{max(1, ceil(draws.expovariate(1 / scale)))}" for _ in range(500))
    return {edge: 4 * count for edge, count in counts.items()}


@pytest.mark.parametrize(
    ("declared_rate", "rates", "expected_rate"),
    [
        (400.0, [400.0], 400.0),
        (100.0, [102.0, 102.0], 102.0),  # oha with three entries sends whole rates to each of them
        (50.5, [50.0], 50.0),
        (400.0, [300.0], 400.0),
        (400.0, [], 400.0),
        (None, [350.0], 350.0),
        (None, [], None),
    ],
)
def test_todays_rate_is_the_one_that_was_sent(
    declared_rate: float | None, rates: list[float], expected_rate: float | None
) -> None:
    records = [at_rate(900.0, 40, purpose="peak"), *(at_rate(rate, 40) for rate in rates)]
    assert find_today_rate(records, declared_rate) == expected_rate


@pytest.mark.parametrize(
    ("declared", "rate", "shown"),
    [
        (True, 400.0, "p99 40 ms [34.9 ms, 45.8 ms] → 20 ms [17.5 ms, 22.9 ms] at today's 400/s"),
        (False, 400.0, "→ 20 ms [17.5 ms, 22.9 ms] at 400/s (40 % of the baseline's capacity)"),
        (True, 1500.0, "p99 more than 50 ms → not measured at today's 1,500/s; baseline above the"),
        (True, 9000.0, "p99 more than 50 ms → more than 50 ms at today's 9,000/s; baseline above"),
        (True, 9000.0, "; baseline above the capacity of 1,215/s; best above the capacity of 2,174/s"),
    ],
)  # fmt: skip
def test_latency_is_shown_before_and_after(declared: bool, rate: float, shown: str) -> None:
    study = open_study(STUDIES / "improved")
    load = study.target.load.model_copy(update={"today": rate if declared else None})
    changed = replace(study, target=study.target.model_copy(update={"load": load}))
    late = {0: 40.0, 1: 20.0}
    vars(changed)["_all_readings"] = (
        *study.readings,
        *(
            at_rate(400.0, late[trial.source_trial or 0], trial=trial.number)
            for trial in study.state.list_finished_trials(Phase.CONFIRM)
        ),
    )
    latency = build_study_view(changed).latency
    assert latency is not None
    assert shown in latency.text
