"""The page of a sweep: what its script draws, and what a real browser makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.sweep.figures import Diagram, Series, SeriesPoint
from autotune.sweep.output import (
    build_diagram_data,
    format_headline,
    format_sweep,
    render_page,
    write_page,
)
from autotune.sweep.plan import AxisValue, SweepAxis, SweepPlan
from autotune.sweep.results import Mean, Result, SweepResults
from autotune.target.read_target import read_target
from tests.report.browser import Browser

NASTY = "<img src=x onerror=alert(1)> & <b>bold</b>"
PAPER = Path(__file__).parents[2] / "targets" / "paper.yaml"
numbers = st.floats(1e-3, 1e6)
dots = st.builds(
    lambda x, y, half: SeriesPoint(x, y, y - half, y + half), numbers, numbers, st.floats(0, 1e6)
)


def panel(*series: Series) -> Diagram:
    return Diagram("Response time", "lb.apache.ServerLimit", "ms", series)


def build_results(values: tuple[Any, ...], *names: str, responses: list[float]) -> SweepResults:
    """A sweep over ``values`` and, as series, ``names``."""
    choices = tuple(AxisValue(name, {}) for name in names)
    plan = SweepPlan(
        "A sweep",
        (SweepAxis("lb.nginx.worker_connections", tuple(AxisValue(v, {}) for v in values)),
         SweepAxis("service", choices)),
        rates=(100.0,),
    )  # fmt: skip
    results = [
        Result(point, 100.0, response=Mean(t, 0.8 * t, 1.3 * t, 3), throughput=Mean(100.0))
        for point, t in zip(plan.points, responses, strict=True)
    ]
    return SweepResults("a-sweep", plan, read_target(PAPER).target, tuple(results), 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"remaining_measurements": 1}, "unfinished: 1 measurement remains"),
        ({"remaining_measurements": 2}, "unfinished: 2 measurements remain"),
        ({}, ("lowest response time at 0.5 requests/s: 200.00 ms [160.00, 260.00], with "
              "lb.nginx.worker_connections 512, service a")),
    ],
)  # fmt: skip
def test_the_headline_has_an_interval(changes: dict[str, int], said: str) -> None:
    results = build_results((512, 1024), "a", responses=[0.2, 0.4])
    slow = replace(
        results,
        plan=replace(results.plan, rates=(0.5,)),
        results=tuple(replace(result, rate=0.5) for result in results.results),
        **changes,
    )
    assert format_headline(slow) == said


@pytest.mark.parametrize(
    ("mean", "limit", "said"),
    [
        (Mean(1234.4, 1200.0, 1270.0, 3), None, "1,234 requests/s [1,200, 1,270], with"),
        (Mean(0.84), None, "0.84 requests/s, with"),
        (
            Mean(8000.0),
            "load.max_rate",
            "at least 8,000 requests/s (limited by load.max_rate), with",
        ),
    ],
)
def test_the_highest_capacity_has_an_interval(mean: Mean, limit: str | None, said: str) -> None:
    results = build_results((512,), "a", responses=[0.2])
    peaks = tuple(replace(r, rate=None, peak=mean, limit=limit) for r in results.results)
    capacities = replace(results, plan=replace(results.plan, rates=()), results=peaks)
    assert format_headline(capacities).startswith(f"highest capacity: {said}")


def test_a_table_names_capacities_that_are_lower_bounds() -> None:
    results = build_results((512, 1024, 2048), "a", responses=[0.2] * 3)
    limits = ("load.max_rate", None, "load.max_rate")
    peaks = tuple(replace(r, rate=None, peak=Mean(8000.0), limit=limit)
                  for r, limit in zip(results.results, limits, strict=True))  # fmt: skip
    capacities = replace(results, plan=replace(results.plan, rates=()), results=peaks)
    lines = format_sweep(capacities).splitlines()
    assert lines[-2:] == [
        "Capacities that are only lower bounds, limited by:", "  2 × load.max_rate"
    ]  # fmt: skip
    plain = replace(capacities, results=peaks[1:2])
    assert "lower bounds" not in format_sweep(plain)


@given(st.lists(st.lists(dots, min_size=1, max_size=6), min_size=1, max_size=14))
def test_every_dot_and_its_interval_is_drawn(many: list[list[SeriesPoint]]) -> None:
    data = build_diagram_data(panel(*(Series(f"s{i}", tuple(one)) for i, one in enumerate(many))))
    assert [series["name"] for series in data["series"]] == [f"s{i}" for i in range(len(many))]
    for series, one in zip(data["series"], many, strict=True):
        assert series["x"] == [dot.x for dot in one]
        assert series["y"] == [dot.y for dot in one]
        assert all(above >= 0 for above in (*series["above"], *series["below"]))


def test_an_interval_is_a_distance_from_its_dot_or_nothing() -> None:
    data = build_diagram_data(
        panel(Series("one", (SeriesPoint(1, 10.0, 8.0, 13.0), SeriesPoint(2, 20.0, None, None))))
    )
    assert data["series"][0]["below"] == [2.0, None]
    assert data["series"][0]["above"] == [3.0, None]


@pytest.mark.parametrize(
    ("xs", "words", "shown"),
    [
        (("poll", "epoll"), True, ["poll", "epoll"]),
        ((False, True), True, ["False", "True"]),
        ((512, 1024), False, [512, 1024]),
    ],
)
def test_words_have_a_place_each(xs: tuple[Any, ...], words: bool, shown: list[object]) -> None:
    data = build_diagram_data(
        panel(Series("one", tuple(SeriesPoint(x, 3.0, None, None) for x in xs)))
    )
    assert data["words"] is words
    assert data["series"][0]["x"] == shown


@pytest.mark.parametrize(
    ("ys", "log"),
    [((1.0, 10.0, 100.0), True), ((1.0, 10.0), False), ((0.0, 100.0), False)],
)
def test_far_apart_values_are_drawn_on_a_logarithmic_axis(ys: tuple[float, ...], log: bool) -> None:
    series = Series("one", tuple(SeriesPoint(i, y, None, None) for i, y in enumerate(ys)))
    assert build_diagram_data(panel(series))["log"] is log


def test_what_is_embedded_is_what_the_panels_hold() -> None:
    document = render_page(
        build_results((512, 1024), "nginx", NASTY, responses=[0.01, 0.02, 0.03, 0.04])
    )
    packed = re.search(r'id="data">([^<]*)<', document)
    assert packed is not None
    (data,) = json.loads(gzip.decompress(base64.b64decode(packed[1])))["panels"]
    assert data["y"] == "ms"
    assert [series["name"] for series in data["series"]] == ["nginx", NASTY]
    assert data["series"][0]["y"] == [10.0, 30.0]
    assert NASTY not in document


@pytest.mark.parametrize(("repeat", "has_interval"), [(1, False), (3, True)])
def test_points_that_were_measured_once_have_no_interval(repeat: int, has_interval: bool) -> None:
    sweep = build_results((512, 1024), "nginx", responses=[0.01, 0.02])
    document = render_page(replace(sweep, plan=replace(sweep.plan, repeat=repeat)))
    assert ("Each point was measured once" in document) is not has_interval
    assert ("Each point is the mean of" in document) is has_interval


@pytest.mark.browser
@pytest.mark.parametrize(
    ("values", "responses", "shown"),
    [
        ((512, 1024), [0.01, 0.02, 0.03, 0.04],
         {"nginx", "ms", "lb.nginx.worker_connections", "0", "40"}),
        (("epoll", "poll"), [0.001, 0.02, 0.3, 4.0],
         {"worker_connections epoll · nginx", "ms", "requests/s answered", "1,000"}),
    ],
)  # fmt: skip
def test_a_browser_draws_it(
    values: tuple[Any, ...],
    responses: list[float],
    shown: set[str],
    browser: Browser,
    tmp_path: Path,
) -> None:
    path = write_page(
        build_results(values, "nginx", NASTY, responses=responses), tmp_path / "sweep.html"
    )
    document, console = browser.drawn(path)
    assert console == []
    assert 'data-drawn="yes"' in document
    assert document.count('class="point"') == 4
    assert document.count('class="yerror"') == 4
    assert "<img" not in document
    texts = set(re.findall(r">([^<>]+)</text>", document))
    assert shown <= texts
    assert any("onerror=alert(1)" in text for text in texts)
