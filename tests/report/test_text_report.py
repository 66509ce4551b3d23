from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.optimize.confirmation import Gain
from autotune.report.capacity import CapacityFigures
from autotune.report.conclusion import Conclusion, MeasuredConfiguration
from autotune.report.figures import build_study_figures
from autotune.report.headline import build_headline
from autotune.report.studies import Study
from autotune.report.summary import build_summary
from autotune.report.text_report import build_sections
from autotune.report.units import GainFigures, RequestUnits
from autotune.report.view import build_study_view
from autotune.study.study_state import Phase, State, Trial
from autotune.target.model import Simulated, Target
from autotune.target.read_target import read_target

TARGET = read_target(Path(__file__).parents[2] / "targets" / "local.yaml").target
AT = "p99 ≤ 50 ms"
BASELINE = MeasuredConfiguration(Trial(0, Phase.BASELINE, {}), ())
BEST = MeasuredConfiguration(Trial(7, Phase.SEARCH, {}), ())


def told(verdict: str, target: Target = TARGET, **known: Any) -> str:
    """The headline of a study that concluded this, of which that is known."""
    state = State(purpose=known.pop("purpose", ""))
    empty = build_study_figures(Study(Path("lab"), target, (), state))
    known = {"baseline": BASELINE, "best": BEST, "gain": None, "trials": {"complete": 5}, **known}
    return build_headline(
        replace(
            empty,
            conclusion=Conclusion(verdict, known["baseline"], known["best"], None),
            capacities={"baseline": CapacityFigures(), "best": CapacityFigures(1706.0)},
            gain=known["gain"],
            trial_counts=known["trials"],
        )
    ).text


def gain(ratio: float, low: float, high: float, pairs: int = 6) -> GainFigures:
    return RequestUnits(AT).build_gain(Gain(ratio, low, high, pairs), 1.0)


CASES: list[tuple[str, dict[str, Any], str]] = [
    (
        "improved",
        {"gain": gain(1.41, 1.36, 1.47)},
        "+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs",
    ),
    (
        "improved",
        {},
        "1,706 requests/s at p99 ≤ 50 ms; the baseline does not meet the SLO at any rate",
    ),
    (
        "no-improvement",
        {"gain": gain(1.01, 0.98, 1.04, 5)},
        f"no distinguishable improvement: +1.0 % [-2.0, 4.0] requests/s at {AT}, 5 alternating pairs",
    ),
    (
        "no-improvement",
        {"gain": gain(1.52, 1.07, 2.16, 3)},
        (
            "likely an improvement, but not proven at 95 %: "
            f"+52 % [7, 116] requests/s at {AT}, 3 alternating pairs"
        ),
    ),
    (
        "no-improvement",
        {"gain": gain(0.9, 0.85, 0.95, 1)},
        (
            "no improvement: the best candidate is worse, "
            f"-10 % [-15, -5] requests/s at {AT}, 1 alternating pair"
        ),
    ),
    (
        "no-improvement",
        {"gain": gain(1.2, 0.98, 1.47, 2)},
        (
            "too little time to prove a gain (needs 3 pairs): "
            f"+20 % [-2, 47] requests/s at {AT}, 2 alternating pairs"
        ),
    ),
    (
        "no-improvement",
        {"best": None},
        "no improvement at p99 ≤ 50 ms: no other configuration met the SLO",
    ),
    (
        "no-improvement",
        {},
        "no improvement at p99 ≤ 50 ms: no other configuration was confirmed",
    ),
    (
        "no-improvement",
        {"best": None, "trials": {"complete": 1, "failed": 0, "screened": 0}},
        ("no improvement at p99 ≤ 50 ms: time ran out before any candidate was tried"),
    ),
    (
        "unmeetable",
        {"best": None},
        "p99 ≤ 50 ms not attainable at any rate with any configuration tried",
    ),
    (
        "unmeetable",
        {},
        (
            "p99 ≤ 50 ms not met reliably: trial 7 met it in 0 of 1 measurement, and 4 must all "
            "meet it"
        ),
    ),
    ("stopped", {}, "unfinished: no verdict for lab yet"),
    (
        "stopped",
        {"baseline": None, "best": None, "trials": {"complete": 0}},
        "unfinished: no verdict for lab yet",
    ),
    (
        "stopped",
        {"baseline": None, "best": None, "trials": {"complete": 0}, "purpose": "measured"},
        "no verdict: lab compared no configurations at p99 ≤ 50 ms",
    ),
]


@pytest.mark.parametrize(("verdict", "found", "said"), CASES)
def test_no_more_is_said_than_was_proven(verdict: str, found: dict[str, Any], said: str) -> None:
    assert told(verdict, **found) == said


@pytest.mark.parametrize(
    ("low", "said"), [(1.07, "Its gain is not proven."), (0.98, "No measurable gain.")]
)
def test_a_likely_gain_is_not_called_unmeasurable(
    low: float, said: str, study: Callable[[str], Study]
) -> None:
    opened = study("aa")
    assert opened.state.verdict is not None
    verdict = replace(opened.state.verdict, gain=Gain(1.2, low, 1.4, 6))
    view = build_study_view(replace(opened, state=replace(opened.state, verdict=verdict)))
    assert build_sections(view)["Change nothing"] == [
        f"best candidate: trial 4 (34 settings changed). {said}"
    ]


def test_the_reason_why_a_search_stopped_is_told(study: Callable[[str], Study]) -> None:
    opened = study("aa")
    state = replace(opened.state, stop_reason="after 5 configurations, no gain is expected")
    lines = build_sections(build_study_view(replace(opened, state=state)))["Configurations"]
    assert lines[1] == "search finished: after 5 configurations, no gain is expected"


def test_a_repeated_measurement_does_not_run_into_its_outcome(
    study: Callable[[str], Study],
) -> None:
    opened = study("improved")
    limited = Peak(800.0, 800.0, 800.0, 0.0, "limited", limit="load.max_rate")
    trials = (
        Trial(0, Phase.MEASURE, {}, peak=limited),
        Trial(1, Phase.MEASURE, {}, source_trial=0, peak=limited),
    )
    state = replace(opened.state, trials=trials, verdict=None, purpose="measured")
    view = build_study_view(replace(opened, state=state))
    outcome = "at least 800 requests/s (limited by load.max_rate)"
    assert build_sections(view)["Measured"] == [
        f"#0 measure    {outcome}",
        f"#1 measure #0 {outcome}",
    ]


def test_the_limit_of_the_load_is_in_the_json(study: Callable[[str], Study]) -> None:
    opened = study("killed")
    first, *others = opened.state.trials
    assert first.peak is not None
    limited = replace(first.peak, verdict="limited", limit="load.max_rate")
    state = replace(opened.state, trials=(replace(first, peak=limited), *others))
    baseline = build_summary(build_study_view(replace(opened, state=state)))["baseline"]
    assert baseline is not None
    assert baseline["limit"] == "load.max_rate"


def test_the_headline_of_a_model_says_so() -> None:
    modelled = TARGET.model_copy(update={"simulated": Simulated()})
    said = told("improved", modelled, gain=gain(1.41, 1.36, 1.47))
    assert said.endswith("pairs (simulated; no host was touched)")
