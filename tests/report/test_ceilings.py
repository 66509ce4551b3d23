"""Ceilings as they are told: by `measure`, in a report and on its page."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.environments.cache_peak import CachePeak
from autotune.loads.closed_load import ClosedLoopCeiling
from autotune.loads.memcaslap import CacheCeiling
from autotune.report.ceilings import build_ceilings_json, build_ceilings_table, format_ceiling_lines
from autotune.report.charts import build_chart_data
from autotune.report.page import render_page
from autotune.report.studies import open_study
from autotune.report.summary import build_summary
from autotune.report.text_report import format_report_lines
from autotune.report.view import build_study_view
from autotune.study.ceiling_records import (
    CacheCeilingAtSize,
    CacheCeilings,
    Ceilings,
    StackCeiling,
    StackCeilings,
)
from autotune.study.record_codec import encode
from autotune.study.study_store import StudyStore

STACK_RESULTS = (
    ClosedLoopCeiling(1, 5.0, 605, {}, {50.0: 0.00741, 99.0: 0.0202}),
    ClosedLoopCeiling(5, 5.0, 2400, {"status": 2400}, {99.0: 0.001}),
    ClosedLoopCeiling(9, failure="ab printed no result: nothing"),
)
STACK = StackCeilings("ab", tuple(map(StackCeiling.from_result, STACK_RESULTS)))
CACHE_RESULTS = (
    CacheCeiling("100 B", 5.0, 93_840, 84_456, 7_685, 12_500_000),
    CacheCeiling("4 KB", failure="memcaslap printed no result: nothing"),
    CacheCeiling("100 B, 100 at once", 5.0, 500_000, 450_000, 0, 62_500_000, keys_per_get=100),
)
CACHES = CacheCeilings(
    ("127.0.0.1:20071",), tuple(map(CacheCeilingAtSize.from_result, CACHE_RESULTS)), 24_825.0
)


def test_a_closed_loop_is_labelled_so() -> None:
    said = "\n".join(format_ceiling_lines(STACK))
    assert "closed loop: a ceiling" in said
    assert "121/s  p50 7.41 ms, p99 20.2 ms" in said
    assert "2400 status" in said
    assert "printed no result" in said
    assert build_ceilings_json(STACK)["closed"] is True  # type: ignore[typeddict-item]
    assert [one.rate for one in STACK.ceilings] == [121.0, 0.0, 0.0]
    assert STACK.ceilings[0].percentiles == {"p50": 0.00741, "p99": 0.0202}


@pytest.mark.parametrize(
    ("clients", "is_limited", "says_so"), [(5, True, True), (1, True, False), (5, False, False)]
)
def test_latencies_that_include_waits_for_the_maximum_rate_are_marked(
    clients: int, is_limited: bool, says_so: bool
) -> None:
    result = ClosedLoopCeiling(clients, 5.0, 605, {}, {50.0: 0.01}, is_rate_limited=is_limited)
    ceilings = StackCeilings("wrk", (StackCeiling.from_result(result),))
    (row,) = build_ceilings_table(ceilings).rows
    for text in ("\n".join(format_ceiling_lines(ceilings)), row[2]):
        assert ("p50 10 ms (including waits for load.max_rate)" in text) is says_so
        assert "p50 10 ms" in text


def test_the_chain_stands_beside_its_caches() -> None:
    said = "\n".join(format_ceiling_lines(CACHES))
    assert "18,768 ops/s  0.02 Gb/s  hit rate 90.9 %" in said
    assert "at capacity the stack reads 24,825 keys/s: 25 % of the caches' own ceiling" in said
    found = build_ceilings_json(CACHES)
    assert found["schema"] == 1
    assert found["chain"] == 24_825.0
    assert found["ceilings"][1]["failed"]


@pytest.mark.parametrize(("is_limited", "bound"), [(False, ""), (True, "at most ")])
def test_a_share_of_a_lower_bound_is_an_upper_bound(is_limited: bool, bound: str) -> None:
    peak = CachePeak("100 B", "mutilate", 50_000.0, is_load_limited=is_limited)
    alone = replace(CACHES, ceilings=(CacheCeilingAtSize.from_result(peak),))
    *_, note = format_ceiling_lines(alone)
    assert note.endswith(f": {bound}50 % of the caches' own ceiling with one key per request")


def test_an_unknown_capacity_is_not_compared_with_the_caches() -> None:
    lines = [*format_ceiling_lines(replace(CACHES, chain=0.0))]
    assert len(lines) == 1 + len(CACHES.ceilings)
    assert not any("the stack reads" in line for line in lines)


@pytest.mark.parametrize("found", [STACK, CACHES])
def test_what_is_on_record_is_in_every_report(
    found: Ceilings, copied: Callable[[str], Path]
) -> None:
    directory = copied("improved")
    store = StudyStore(directory)
    store.record_ceilings(found)
    assert store.state.ceilings == (found,)
    store.close()
    study = open_study(directory)
    assert study.state.ceilings == (found,)  # JSON and back
    view = build_study_view(study)
    assert build_summary(view)["ceilings"] == [encode(found)]
    assert build_chart_data(view)["ceilings"] == [encode(found)]
    for line in format_ceiling_lines(found):
        assert any(line.strip() in told for told, _ in format_report_lines(view))
    document = render_page(view)
    shown = html.unescape(document[document.index("<h2>Ceilings") : document.index('id="latency"')])
    table = build_ceilings_table(found)
    for cell in [table.note, *table.heads, *itertools.chain(*table.rows)]:
        assert cell in shown
