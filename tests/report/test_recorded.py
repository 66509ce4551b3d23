"""Recorded studies, and all that is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.report.status import build_status, format_status
from autotune.report.studies import Study
from autotune.report.summary import build_summary
from autotune.report.text_report import format_report_lines
from autotune.report.view import build_study_view

STUDIES = Path(__file__).parent / "studies"
NAMES = sorted(path.name for path in STUDIES.iterdir())
pytestmark = pytest.mark.usefixtures("beside_studies")
Opened = Callable[[str], Study]


def summarised(study: Study) -> dict[str, Any]:
    return build_summary(build_study_view(study))


def rendered(study: Study, width: int | None = None) -> str:
    return "".join(f"{line}\n" for line, _ in format_report_lines(build_study_view(study), width))


@pytest.mark.parametrize("name", NAMES)
def test_summary(name: str, study: Opened) -> None:
    expected = json.loads((STUDIES / name / "expected.json").read_text())
    assert json.loads(json.dumps(summarised(study(name)))) == expected


@pytest.mark.parametrize("name", NAMES)
def test_text(name: str, study: Opened) -> None:
    opened = study(name)
    said = rendered(opened, width=100)
    assert said == (STUDIES / name / "expected.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_status(name: str, study: Opened) -> None:
    assert (
        format_status(build_study_view(study(name)))
        == (STUDIES / name / "expected-status.txt").read_text()
    )


@pytest.mark.parametrize("name", NAMES)
def test_summary_keeps_the_contract(name: str, study: Opened) -> None:
    found = summarised(study(name))
    assert list(found) == [
        "schema", "study", "verdict", "headline", "slo", "baseline", "best", "preset", "gain",
        "gain_shares", "latency", "memory", "changes", "next", "trials", "seconds", "bottleneck",
        "warnings",
    ]  # fmt: skip
    assert found["schema"] == 1
    assert set(found["slo"]) == {"percentile", "limit", "errors"}
    assert set(found["trials"]) == {"complete", "failed", "screened"}
    seconds = dict(found["seconds"])
    total = seconds.pop("total")
    assert set(seconds) == {"load", "deploy", "search", "other"}
    assert sum(seconds.values()) == pytest.approx(total, abs=0.3)
    for side in (found["baseline"], found["best"], found["preset"]):
        assert side is None or set(side) == {
            "trial", "peak", "low", "high", "limit", "requests", "lowest_rate", "parameters",
        }  # fmt: skip
    if found["gain"]:
        assert set(found["gain"]) == {"ratio", "low", "high", "pairs"}
        assert found["gain"]["low"] <= found["gain"]["ratio"] <= found["gain"]["high"]


VERDICTS = {
    "aa": "no-improvement",
    "improved": "improved",
    "infeasible": "improved",
    "killed": "stopped",
    "lifted": "improved",
    "noisy": "improved",
    "unmeetable": "unmeetable",
}


@pytest.mark.parametrize(("name", "verdict"), VERDICTS.items())
def test_verdicts(name: str, verdict: str, study: Opened) -> None:
    assert summarised(study(name))["verdict"] == verdict


def test_the_best_peak_is_not_the_one_it_was_selected_by(study: Opened) -> None:
    opened = study("improved")
    found = summarised(opened)
    selected_by = opened.state.find_trial(found["best"]["trial"]).peak
    assert selected_by is not None
    assert found["best"]["peak"] != pytest.approx(selected_by.peak, rel=1e-4)
    again = [
        t.peak.peak
        for t in opened.state.trials
        if t.source_trial == found["best"]["trial"] and t.peak
    ]
    assert min(again) <= found["best"]["peak"] <= max(again)


def test_a_peak_of_the_search_alone_is_not_reported(study: Opened) -> None:
    best = summarised(study("killed"))["best"]
    assert (best["peak"], best["low"], best["high"]) == (None, None, None)
    assert best["parameters"]


def test_fast_wrong_answers_are_reported_as_failures(study: Opened) -> None:
    opened = study("infeasible")
    said = rendered(opened)
    assert "1 × requests failed or got incorrect responses: 97 % of" in said
    wrong = next(n for n, seen in opened.reading_counts.items() if "5xx" in seen.errors)
    assert summarised(opened)["best"]["trial"] != wrong


def test_no_advice_to_change_anything_without_a_gain(study: Opened) -> None:
    opened = study("aa")
    said = rendered(opened)
    assert "no distinguishable improvement" in said.splitlines()[0]
    assert "Change nothing" in said
    assert "autotune export" not in said


def test_a_torn_last_line_is_no_record(study: Opened) -> None:
    assert not (STUDIES / "killed" / "events.jsonl").read_bytes().endswith(b"\n")
    opened = study("killed")
    assert not opened.state.trials[-1].is_finished
    assert build_status(build_study_view(opened))["trial"]["phase"] == "search"


def test_text_without_a_terminal_has_no_escapes(study: Opened) -> None:
    opened = study("improved")
    assert "\x1b" not in rendered(opened)
    first, style = next(format_report_lines(build_study_view(opened)))
    assert first.startswith("✓ +")
    assert style == "green"


def test_text_fits_its_width(study: Opened) -> None:
    opened = study("improved")
    said = rendered(opened, width=90)
    settings = [line for line in said.splitlines() if "→" in line]
    assert settings
    assert max(map(len, settings)) <= 90
