from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.environments.peak import Peak
from autotune.measure.objective_scale import ObjectiveScale
from autotune.report.capacity import CapacityFigures, build_capacity
from autotune.report.conclusion import MeasuredConfiguration, list_repeats, pool_peaks
from autotune.report.page_summary import build_cards
from autotune.report.status import build_status
from autotune.report.studies import Study
from autotune.report.text_report import build_sections
from autotune.report.trial_outcomes import UNMET_TEXT
from autotune.report.units import RequestUnits, ValueUnits
from autotune.report.view import build_study_view
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import Verdict

Opened = Callable[[str], Study]


def test_a_capacity_has_its_interval_the_lower_end_first() -> None:
    peak = Peak(1000.004, 900.0, 1100.0, 0.05, "measured")
    requests = RequestUnits("p99 ≤ 50 ms")
    assert build_capacity(peak, requests) == CapacityFigures(1000.0, 900.0, 1100.0)
    seconds = ValueUnits("elapsed", "s", maximize=False, scale=ObjectiveScale(False, 10.0))
    turned = build_capacity(peak, seconds)
    assert turned.low < turned.peak < turned.high  # type: ignore[operator]


def test_no_capacity_is_none_or_zero() -> None:
    requests = RequestUnits("p99 ≤ 50 ms")
    assert build_capacity(None, requests) == CapacityFigures()
    nothing = build_capacity(Peak(0.0, 0.0, 12.345, 0.0, "unmeetable"), requests)
    assert nothing == CapacityFigures(0.0, 0.0, 12.35)


def test_an_estimate_is_no_capacity_if_no_rate_met_the_objective(study: Opened) -> None:
    """The baseline's search ran out of time; nothing is compared with its estimate."""
    opened = study("killed")
    baseline, *others = opened.state.trials
    unmet = replace(baseline, peak=Peak(700.0, 300.0, 1600.0, 0.5, "unmet"))
    assert baseline.phase is Phase.BASELINE
    view = build_study_view(replace(opened, state=replace(opened.state, trials=(unmet, *others))))
    status, text = build_status(view), build_sections(view)["Capacity"][0]
    assert view.conclusion.baseline is not None
    assert view.conclusion.baseline.best_estimate is None
    assert view.capacities["baseline"] == CapacityFigures()
    assert (status["baseline"] or {}).get("peak", 0) is None
    assert (status["ratio"], status["change"]) == (None, None)
    assert text.startswith(f"baseline {UNMET_TEXT}")
    assert build_cards(view)[0].note == UNMET_TEXT
    assert view.trial_counts["failed"] > build_study_view(opened).trial_counts["failed"]


def test_an_estimate_is_not_pooled_with_capacities() -> None:
    repeats = tuple(
        Trial(number, Phase.CONFIRM, {}, source_trial=1, peak=peak(value, verdict=said))
        for number, value, said in ((2, 1000.0, "measured"), (3, 4000.0, "unmet"))
    )
    side = MeasuredConfiguration(Trial(1, Phase.SEARCH, {}, peak=peak(1100.0)), repeats)
    assert side.best_estimate == repeats[0].peak
    assert (side.repeat_count, side.deciding_trials) == (1, (2,))


def test_readings_are_of_the_side_and_its_repeats(study: Opened) -> None:
    view = build_study_view(study("improved"))
    readings = view.readings_by_side()
    assert set(readings) == {"baseline", "best"}
    for label, side in view.conclusion.sides.items():
        taken = {reading.trial for reading in readings[label]}
        assert taken == {side.trial.number, *(trial.number for trial in side.repeats)}


@pytest.mark.parametrize("name", ["aa", "improved", "infeasible", "killed", "noisy", "unmeetable"])
def test_the_parts_of_the_time_add_up(name: str, study: Opened) -> None:
    seconds = dict(build_study_view(study(name)).seconds_by_activity)
    total = seconds.pop("total")
    assert sum(seconds.values()) == pytest.approx(total, abs=0.3)


def peak(value: float, sd: float = 0.02, verdict: str = "measured") -> Peak:
    half = 1.645 * sd
    return Peak(value, value * exp(-half), value * exp(half), sd, verdict)


def test_nothing_measured_is_no_estimate() -> None:
    assert pool_peaks([]) is None


def test_a_single_measurement_keeps_its_own_interval() -> None:
    found = pool_peaks([Peak(100.0, 80.0, 130.0, 0.1, "measured")])
    assert found is not None
    assert (found.peak, found.low, found.high) == (100.0, 80.0, 130.0)


def test_measurements_that_agree_narrow_the_interval() -> None:
    found = pool_peaks([peak(1000)] * 4)
    assert found is not None
    assert found.peak == pytest.approx(1000)
    assert log(found.high / found.low) / 2 == pytest.approx(1.645 * 0.02 / 2)


def test_measurements_that_scatter_widen_it() -> None:
    apart = pool_peaks([peak(900), peak(1000), peak(1111)])
    assert apart is not None
    # 10 % apart with an sd of 2 % each: the scale factor is (0.105 / 0.02) √(2 / 2).
    assert log(apart.high / apart.low) / 2 == pytest.approx(
        1.645 * 0.02 / 3**0.5 * (log(1000 / 900) / 0.02), rel=0.01
    )


@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 0.3)), min_size=1, max_size=12))
def test_the_pooled_peak_lies_among_the_measured(measured: list[tuple[float, float]]) -> None:
    found = pool_peaks([peak(value, sd) for value, sd in measured])
    assert found is not None
    values = [value for value, _ in measured]
    assert min(values) * 0.999999 <= found.peak <= max(values) * 1.000001
    assert found.low <= found.peak <= found.high


def test_a_disturbed_repeat_does_not_lower_the_peak_that_is_shown() -> None:
    found = pool_peaks([peak(1000), peak(700), peak(1010)])
    assert found == pool_peaks([peak(1000), peak(1010)])


def test_the_interval_holds_the_truth_nine_times_in_ten() -> None:
    rng = random.Random(5)
    trials, held = 2000, 0
    for _ in range(trials):
        found = pool_peaks([peak(1000 * exp(rng.gauss(0, 0.02))) for _ in range(4)])
        assert found is not None
        held += found.low <= 1000 <= found.high
    # The scale factor only ever widens, so a little more than 90 % are expected.
    assert 0.88 <= held / trials <= 0.97


def test_only_what_was_measured_after_selection_is_fresh() -> None:
    state = State(
        trials=(
            Trial(0, Phase.BASELINE, {}, peak=peak(500)),
            Trial(1, Phase.SEARCH, {}, peak=peak(2000)),
            Trial(2, Phase.FINALIST, {}, source_trial=1, peak=peak(1000)),
            Trial(3, Phase.CONFIRM, {}, source_trial=1, peak=peak(1000)),
            Trial(4, Phase.CONFIRM, {}, source_trial=1, failure="did not start"),
            Trial(5, Phase.CONFIRM, {}, source_trial=0, peak=peak(600)),
            Trial(6, Phase.CONFIRM, {}, source_trial=1),
        )
    )
    assert [trial.number for trial in list_repeats(state, 1)] == [2, 3, 4]
    # The finals decided who wins: what is concluded from now on is shown by the confirmation alone.
    concluded = replace(state, verdict=Verdict("improved", peaks_from=("confirm",)))
    assert [trial.number for trial in list_repeats(concluded, 1)] == [3, 4]
    unmeetable = replace(concluded, trials=state.trials[:3])
    assert [trial.number for trial in list_repeats(unmeetable, 1)] == [2]
    found = MeasuredConfiguration(state.trials[1], list_repeats(state, 1)).repeated_peak
    assert found is not None
    assert round(found.peak) == 1000
    assert log(found.high / found.low) / 2 == pytest.approx(1.645 * 0.02 / 2**0.5)  # of two
    assert MeasuredConfiguration(state.trials[6], list_repeats(state, 7)).repeated_peak is None


# Functions that only the view calls, and the modules that define them.
BUILDERS = ("build_headline", "format_gain_split", "build_next_steps", "collect_warnings",
            "find_today_latency")  # fmt: skip


@pytest.mark.parametrize("builder", BUILDERS)
def test_no_renderer_computes_what_the_view_contains(builder: str) -> None:
    called = re.compile(rf"(?<!def )\b{builder}\(")
    modules = (Path(__file__).parents[2] / "autotune").rglob("*.py")
    assert [path.name for path in modules if called.search(path.read_text())] == ["view.py"]
