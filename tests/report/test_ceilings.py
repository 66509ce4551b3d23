"""Ceilings as they are told: by `measure`, in a report and on its page."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.loads.closed import Ceiling
from autotune.loads.memcaslap import CacheCeiling
from autotune.report.ceilings import ceiling_lines, ceilings_json, ceilings_table
from autotune.report.charts import data
from autotune.report.page import page
from autotune.report.studies import open_study
from autotune.report.summary import summary
from autotune.report.text import report_lines
from autotune.report.view import study_view
from autotune.study.ceilings import OfCaches, OfStack
from autotune.study.store import Store

STACK = OfStack(
    "ab",
    (
        Ceiling(1, 5.0, 605, {}, {50.0: 0.00741, 99.0: 0.0202}),
        Ceiling(5, 5.0, 2400, {"status": 2400}, {99.0: 0.001}),
        Ceiling(9, failed="ab printed no result: nothing"),
    ),
)
CACHES = OfCaches(
    ("127.0.0.1:20071",),
    (
        CacheCeiling("100 B", 5.0, 93_840, 84_456, 7_685, 12_500_000),
        CacheCeiling("4 KB", failed="memcaslap printed no result: nothing"),
        CacheCeiling("100 B, 100 at once", 5.0, 500_000, 450_000, 0, 62_500_000, together=100),
    ),
    24_825.0,
)


def test_a_closed_loop_is_labelled_so() -> None:
    said = "\n".join(ceiling_lines(STACK.record()))
    assert "closed loop: a ceiling" in said
    assert "121/s  p50 7.41 ms, p99 20.2 ms" in said
    assert "2400 status" in said
    assert "printed no result" in said
    found = STACK.record()
    assert found["closed"] is True
    assert [one["rate"] for one in found["ceilings"]] == [121.0, 0.0, 0.0]
    assert found["ceilings"][0]["percentiles"] == {"p50": 0.00741, "p99": 0.0202}


def test_the_chain_stands_beside_its_caches() -> None:
    said = "\n".join(ceiling_lines(CACHES.record()))
    assert "18,768 ops/s  0.02 Gb/s  hit rate 90.9 %" in said
    assert "at capacity the stack reads 24,825 keys/s: 25 % of the caches' own ceiling" in said
    found = ceilings_json(CACHES.record())
    assert found["schema"] == 1
    assert found["chain"] == 24_825.0
    assert found["ceilings"][1]["failed"]


@pytest.mark.parametrize("found", [STACK, CACHES])
def test_what_is_on_record_is_in_every_report(
    found: OfStack | OfCaches, copied: Callable[[str], Path]
) -> None:
    directory = copied("improved")
    store = Store(directory)
    store.ceilings(found.record())
    assert store.state.ceilings == (found.record(),)
    store.close()
    study = open_study(directory)
    assert study.state.ceilings == (found.record(),)  # JSON and back
    view = study_view(study)
    assert summary(view)["ceilings"] == [found.record()]
    assert data(view)["ceilings"] == [found.record()]
    for line in ceiling_lines(found.record()):
        assert any(line.strip() in told for told, _ in report_lines(view))
    document = page(view)
    shown = html.unescape(document[document.index("<h2>Ceilings") : document.index('id="latency"')])
    table = ceilings_table(found.record())
    for cell in [table["note"], *table["heads"], *itertools.chain(*table["rows"])]:
        assert cell in shown
