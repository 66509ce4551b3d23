from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.sweep.figure import Dot, Panel, Series
from autotune.sweep.svg import HEIGHT, WIDTH, draw

numbers = st.floats(1e-3, 1e6)
dots = st.builds(
    lambda x, y, half: Dot(x, y, y - half, y + half), numbers, numbers, st.floats(0, 1e6)
)
SPACE = "{http://www.w3.org/2000/svg}"


def parsed(panel: Panel) -> ET.Element:
    return ET.fromstring(draw(panel))


def panel(*series: Series) -> Panel:
    return Panel("Response time", "lb.apache.ServerLimit", "ms", series)


@given(st.lists(st.lists(dots, min_size=1, max_size=6), min_size=1, max_size=14))
def test_every_dot_is_drawn_inside_the_frame(many: list[list[Dot]]) -> None:
    made = panel(*(Series(f"s{i}", tuple(one)) for i, one in enumerate(many)))
    svg = parsed(made)
    circles = svg.findall("circle")
    assert len(circles) == sum(len(one) for one in many)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= WIDTH
        assert 0 <= float(circle.attrib["cy"]) <= HEIGHT
    for bar in svg.findall("line[@class]"):
        assert 0 <= float(bar.attrib["y1"]) <= HEIGHT + 300


def test_higher_is_higher_and_an_interval_spans_its_dot() -> None:
    svg = parsed(panel(Series("one", (Dot(1, 10.0, 8.0, 12.0), Dot(2, 20.0, None, None)))))
    low, high = (float(circle.attrib["cy"]) for circle in svg.findall("circle"))
    assert high < low
    bars = [line for line in svg.findall("line") if line.attrib["class"].startswith("bar")]
    assert len(bars) == 1
    assert float(bars[0].attrib["y2"]) < low < float(bars[0].attrib["y1"])


def test_words_have_a_place_each() -> None:
    svg = parsed(
        panel(Series("one", (Dot("poll", 3.0, None, None), Dot("epoll", 2.0, None, None))))
    )
    said = [text.text for text in svg.findall("text")]
    assert {"poll", "epoll", "lb.apache.ServerLimit", "ms", "one"} <= set(said)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", 'a "quoted" & b'])
def test_names_are_escaped(name: str) -> None:
    svg = parsed(panel(Series(name, (Dot(1, 1.0, None, None),))))
    assert name in [text.text for text in svg.findall("text")]


def test_far_apart_values_are_drawn_on_a_logarithmic_axis() -> None:
    svg = parsed(panel(Series("one", tuple(Dot(i, 10.0**i, None, None) for i in range(1, 5)))))
    places = [float(circle.attrib["cy"]) for circle in svg.findall("circle")]
    steps = [a - b for a, b in pairwise(places)]
    assert max(steps) - min(steps) < 0.5
