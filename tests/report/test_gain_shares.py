"""The gain of the preset and of the search, and the cost of reverting each change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, log

import pytest

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.reversal_cost import ReversalCost
from autotune.report.conclusion import find_conclusion
from autotune.report.gain_shares import (
    PeakMeasurement,
    compute_gain_shares,
    format_gain_shares,
)
from autotune.report.reversal_costs import format_reversal_cost, select_reversal_costs
from autotune.report.studies import Study
from autotune.report.summary import build_summary
from autotune.report.text_report import format_report_lines, sort_changes
from autotune.report.units import RequestUnits
from autotune.report.view import build_study_view
from autotune.study.ranking import find_best_preset
from autotune.study.state_replay import replay_records
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import Verdict

Opened = Callable[[str], Study]
UNITS = RequestUnits("p99 ≤ 50 ms")


def peak(value: float, sd: float = 0.01, verdict: str = "measured") -> Peak:
    half = 1.645 * sd
    return Peak(value, value * exp(-half), value * exp(half), sd, verdict)


def measured(value: float, count: int = 3) -> PeakMeasurement:
    return PeakMeasurement(peak(value), count)


def test_both_shares_multiply_to_the_ratio_of_the_capacities() -> None:
    shares = compute_gain_shares(
        State(), measured(600), measured(850), measured(924), preset_won=False
    )
    assert shares.preset is not None
    assert shares.search is not None
    assert shares.preset.value * shares.search.value == pytest.approx(924 / 600)
    text = format_gain_shares(shares, UNITS, 600, 850)
    assert text == "preset +42 % [38, 45], search +8.7 % [6.2, 11.3]"


def test_a_share_whose_interval_holds_zero_is_not_distinguishable() -> None:
    shares = compute_gain_shares(
        State(), measured(600), measured(850), measured(855), preset_won=False
    )
    assert format_gain_shares(shares, UNITS, 600, 850).endswith("(not distinguishable)")


def test_an_unmeasured_side_has_no_share() -> None:
    shares = compute_gain_shares(State(), None, measured(850), measured(924), preset_won=False)
    assert shares.preset is None
    assert shares.search is not None


SEARCHED = (
    Trial(0, Phase.BASELINE, {"a": 1}, peak=peak(600)),
    Trial(1, Phase.RECOMMENDED, {"a": 2}, peak=peak(800)),
    Trial(2, Phase.PUBLISHED, {"a": 3}, peak=peak(900)),
    Trial(3, Phase.ADVISED, {"a": 4}, peak=peak(2000, verdict="screened")),
    Trial(4, Phase.SEARCH, {"a": 5}, peak=peak(1000)),
)


def test_the_best_preset_was_measured_to_the_end() -> None:
    state = State(trials=SEARCHED)
    best = find_best_preset(state)
    assert best is not None
    assert best.number == 2
    # Finals count: they lower the second preset below the first.
    finals = tuple(
        Trial(5 + n, Phase.FINALIST, {"a": 3}, source_trial=2, peak=peak(600)) for n in range(3)
    )
    lowered = find_best_preset(State(trials=(*SEARCHED, *finals)))
    assert lowered is not None
    assert lowered.number == 1
    assert find_best_preset(State(trials=SEARCHED[:1])) is None


@pytest.mark.parametrize(
    ("winner", "preset_won", "shows_preset"),
    [
        (SEARCHED[4], False, True),
        (SEARCHED[2], True, False),
        (Trial(5, Phase.SIMPLIFIED, {"a": 1}, source_trial=2, peak=peak(890)), True, True),
        (Trial(5, Phase.SIMPLIFIED, {"a": 1}, source_trial=4, peak=peak(990)), False, True),
    ],
)
def test_a_preset_wins_as_it_is_or_simplified(
    winner: Trial, preset_won: bool, shows_preset: bool
) -> None:
    trials = SEARCHED if winner in SEARCHED else (*SEARCHED, winner)
    verdict = Verdict("improved", winner.number)
    conclusion = find_conclusion(State(trials=trials, verdict=verdict))
    assert conclusion.preset is not None
    assert conclusion.preset.trial.number == 2
    assert conclusion.preset_won is preset_won
    assert conclusion.shows_preset is shows_preset


def test_a_winning_preset_has_the_proven_gain_in_text_and_json(study: Opened) -> None:
    view = build_study_view(study("improved"))
    assert view.gain_split == "from the preset alone; the search found nothing better"
    shares, gain = build_summary(view)["gain_shares"], view.gain
    assert gain is not None
    preset = {"ratio": gain.ratio, "low": gain.low, "high": gain.high}
    assert shares == {"preset": preset, "search": None}


def test_nothing_is_split_without_a_proven_gain(study: Opened) -> None:
    view = build_study_view(study("aa"))
    assert view.gain_split == ""
    assert build_summary(view)["gain_shares"] is None


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (ReversalCost(log(1 / 0.74), 0.05), "-26 % [-32, -20]"),
        (ReversalCost(log(1 / 0.74), 0.05, is_measured=True), "-26 % [-32, -20], measured"),
        (ReversalCost(0.3, 0.2), "not distinguishable"),
        (ReversalCost(0.0, 0.0), "not distinguishable"),
        (None, "–"),
    ],
)
def test_the_cost_of_reverting_a_change(cost: ReversalCost | None, text: str) -> None:
    assert format_reversal_cost(cost, UNITS, 1000.0) == text


COSTS = {
    "event": "reversal-costs",
    "trial": 1,
    "costs": [
        {"parameter": "web.php_fpm.max_children", "loss": 0.4, "sd": 0.05},
        {"parameter": "lb.nginx.multi_accept", "loss": 0.01, "sd": 0.05},
    ],
}


def test_measured_costs_replace_modelled_ones() -> None:
    explained = {
        "event": "explained",
        "at": "2026-03-02T09:00:00",
        "losses": {"lb.nginx.multi_accept": 0.6, "lb.nginx.backlog": 0.1},
        "sds": {"lb.nginx.multi_accept": 0.02},
    }
    costs = select_reversal_costs(replay_records([COSTS, explained]))
    assert costs == {
        "lb.nginx.multi_accept": ReversalCost(0.6, 0.02, is_measured=True),
        "web.php_fpm.max_children": ReversalCost(0.4, 0.05),
    }


def test_recorded_costs_are_the_same_in_text_and_json_and_sort_the_changes(study: Opened) -> None:
    opened = study("improved")
    state = replay_records([COSTS], opened.state)
    view = build_study_view(replace(opened, state=state))
    assert [change.name for change in sort_changes(view)][:2] == [
        "web.php_fpm.max_children",
        "lb.nginx.multi_accept",
    ]
    first, second = build_summary(view)["changes"][:2]
    assert first["cost"]["ratio"] == pytest.approx(exp(-0.4), abs=1e-4)
    assert first["cost"]["distinguishable"] is True
    assert second["cost"]["distinguishable"] is False
    lines = [line for line, _ in format_report_lines(view)]
    (children,) = [line for line in lines if line.startswith("  web.php_fpm.max_children")]
    assert "reload" in children
    assert "-33 % [-38, -27]" in children
    (accept,) = [line for line in lines if line.startswith("  lb.nginx.multi_accept")]
    assert "not distinguishable" in accept


def test_the_interval_of_a_ratio_is_that_of_its_estimate() -> None:
    cost = ReversalCost(0.5, 0.1)
    assert cost.ratio == Estimate(-0.5, 0.1)
    assert cost.is_distinguishable
