from __future__ import annotations

from typing import Any

from autotune.environments.peak import Peak
from autotune.report.trial_outcomes import (
    ReadingCounts,
    count_readings,
    describe_errors,
    format_outcome,
    format_trial_label,
)
from autotune.report.units import RequestUnits
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import Phase, Trial


def reading(trial: int, purpose: str = "peak", **counts: Any) -> RecordedReading:
    known: dict[str, Any] = {"errors": {"5xx": 4}, **counts}
    return RecordedReading(trial, "", purpose, 100.0, 1.0, 100, 10, **known)


def test_counts_are_summed_by_trial() -> None:
    found = count_readings([reading(1), reading(1, errors={"5xx": 1, "timeout": 2}), reading(2)])
    assert found[1].readings == 2
    assert (found[1].intended, found[1].violations) == (200, 20)
    assert found[1].errors == {"5xx": 5, "timeout": 2}
    assert found[1].failed_share == 0.035
    assert found[2].errors == {"5xx": 4}


def test_warming_up_is_in_no_count_but_its_own() -> None:
    found = count_readings([reading(1, "warm-up"), reading(1, "warm-up"), reading(1)])
    assert (found[1].warmed, found[1].readings, found[1].intended) == (2, 1, 100)


def test_limited_readings_are_counted() -> None:
    assert count_readings([reading(1, limited="no free port"), reading(1)])[1].limited == 1


def test_nothing_is_nothing() -> None:
    assert count_readings([]) == {}
    assert ReadingCounts().failed_share == 0.0
    assert describe_errors(None) == describe_errors(ReadingCounts()) == ""


def test_a_trial_says_which_one_it_measures_again() -> None:
    assert format_trial_label(Trial(7, Phase.SEARCH, {})) == "#7 search"
    assert (
        format_trial_label(Trial(21, Phase.CONFIRM, {}, source_trial=7, bed="a"))
        == "#21 confirm #7 on a"
    )
    assert format_trial_label(Trial(9, Phase.ADVISED, {}, source_trial=2)) == "#9 advised #2"


def test_a_search_without_a_rate_that_met_the_objective_shows_no_capacity() -> None:
    """Its peak is only an estimate."""
    shown = {
        verdict: format_outcome(
            Trial(3, Phase.BASELINE, {}, peak=Peak(700.0, 300.0, 1600.0, 0.5, verdict)),
            RequestUnits("p99 ≤ 50 ms"),
        )
        for verdict in ("unsettled", "unmet")
    }
    assert "700" in shown["unsettled"]
    assert shown["unmet"] == "no rate met the SLO in time"
