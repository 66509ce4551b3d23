from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.report import format as fmt
from autotune.services.base import Value
from autotune.target.slo import Slo


@pytest.mark.parametrize(
    ("value", "text"),
    [(1706.4, "1,706"), (84.21, "84.2"), (0.0, "0"), (3.0, "3"), (None, "–"), (12_345.6, "12,346")],
)
def test_rate(value: float | None, text: str) -> None:
    assert fmt.format_rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.038, "38 ms"),
        (0.0004, "0.4 ms"),
        (1.2, "1.2 s"),
        (0.9999, "1 s"),
        (0.999, "999 ms"),
        (12.34, "12 s"),
        (123.0, "123 s"),
        (3600.0, "3,600 s"),
        (None, "–"),
    ],
)
def test_latency(seconds: float | None, text: str) -> None:
    assert fmt.format_latency(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (460, "7 min 40 s"), (7500, "2 h 5 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert fmt.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        ((1.41, 1.36, 1.47), "+41 % [36, 47]"),
        ((1.012, 0.98, 1.045), "+1.2 % [-2.0, 4.5]"),
        ((0.94, 0.91, 0.97), "-6.0 % [-9.0, -3.0]"),
        ((0.99999, 0.98, 1.02), "+0.0 % [-2.0, 2.0]"),
        ((3.2, 2.9, 3.5), "+220 % [190, 250]"),
        ((132.3, 29.4, 595), "×132 [29.4, 595]"),
        ((1234.5, 29.4, 45678), "×1,234 [29.4, 45,678]"),
    ],
)
def test_gain(gain: tuple[float, float, float], text: str) -> None:
    assert fmt.format_change_interval(*gain) == text


@given(st.floats(0.01, 100))
def test_a_change_never_has_the_wrong_sign(ratio: float) -> None:
    said = fmt.format_change(ratio)
    assert said[0] in "+-×"
    assert not (said[0] == "-" and ratio > 1)
    assert not (said[0] == "+" and ratio < 0.999)


@pytest.mark.parametrize(
    ("slo", "text"),
    [
        (Slo(0.99, 0.050), "p99 ≤ 50 ms"),
        (Slo(0.999, 1.5), "p99.9 ≤ 1.5 s"),
        (Slo(0.95, 0.0002), "p95 ≤ 0.2 ms"),
        (Slo(0.57, 0.1), "p57 ≤ 100 ms"),
        (Slo(0.99, 1.25), "p99 ≤ 1.25 s"),
        (Slo(0.99, 0.0505), "p99 ≤ 50.5 ms"),
        (Slo(0.99, 120.0), "p99 ≤ 120 s"),
    ],
)
def test_objective(slo: Slo, text: str) -> None:
    assert fmt.format_objective(slo) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (True, "", "on"),
        (False, "", "off"),
        (64, "KB", "64 KB"),
        (1.25, "", "1.25"),
        ("static", "", "static"),
    ],
)
def test_setting(value: Value, unit: str, text: str) -> None:
    assert fmt.format_setting(value, unit) == text


def test_share_of_nothing() -> None:
    assert fmt.format_share(0, 0) == "0 %"
