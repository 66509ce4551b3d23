from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.target.corrections import (
    correct_boolean,
    correct_number,
    correct_quantity,
    correct_range,
)
from autotune.target.quantities import UNITS_BY_KIND, parse_duration, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "kind", "correction"),
    [
        ("50msec", "a duration", "50ms"), ("50MS", "a duration", "50ms"),
        ("2 hours", "a duration", "2h"), ("1d", "a duration", "24h"),
        ("1,5s", "a duration", "1.5s"), ("< 50ms", "a duration", "50ms"),
        ("1h30m", "a duration", "90m"), ("PT45M", "a duration", "45m"),
        ("00:45:10", "a duration", "2710s"), ("fast", "a duration", None), ("", "a duration", None),
        ("4Gi", "a size", "4GB"), ("512m", "a size", "512MB"), ("2 gigabytes", "a size", "2GB"),
        ("8192", "a size", None), (8192, "a size", None),
        ("5000 rps", "a rate", "5000/s"), ("20k", "a rate", "20000/s"),
        ("1.5k/s", "a rate", "1500/s"), ("20,000/s", "a rate", "20000/s"),
        ("300 req/s", "a rate", "300/s"), ("600 rpm", "a rate", "600/min"),
        ("5000 requests per second", "a rate", "5000/s"), ("300/h", "a rate", None),
        ("0.1 percent", "a fraction", "0.1%"), ("1‰", "a fraction", "0.1%"),
        ("1" + " " * 100_000 + "!", "a size", None),
    ],
    ids=str,
)  # fmt: skip
def test_quantities(text: object, kind: str, correction: str | None) -> None:
    assert correct_quantity(text, kind, UNITS_BY_KIND[kind]) == correction


@given(st.text("0123456789.,_ kKmMgGiIbBsShHdDrpsec/%:<PT", max_size=12))
def test_whatever_is_suggested_is_valid(text: str) -> None:
    for kind, parse in (
        ("a duration", parse_duration),
        ("a size", parse_size),
        ("a rate", parse_rate),
    ):
        correction = correct_quantity(text, kind, UNITS_BY_KIND[kind])
        assert correction is None or parse(correction) >= 0


@pytest.mark.parametrize(
    ("text", "key", "number"),
    [
        ("100k", "pairs", "100000"), ("1.5M", "pairs", "1500000"), ("100,000", "pairs", "100000"),
        ("1_000", "pairs", "1000"), ("8 cores", "cpus", "8"), ("4000m", "cpus", "4"),
        ("500m", "cpus", "0.5"), ("6379/tcp", "port", "6379"), ("90%", "skew", "0.9"),
        ("40", "trials", "40"), ("many", "trials", None), ("80:80", "port", None), (None, "port", None),
    ],
)  # fmt: skip
def test_numbers(text: object, key: str, number: str | None) -> None:
    assert correct_number(text, key) == number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"min": 1, "max": 9}, "[1, 9]"), ({"from": "1MB", "to": "9MB"}, "[1MB, 9MB]"),
        ("1-9", "[1, 9]"), ("1..9", "[1, 9]"), ("1 to 9", "[1, 9]"), ("1, 9", "[1, 9]"),
        ("5MB-7MB", "[5MB, 7MB]"), ({"min": 1}, None), ({"min": [1], "max": 9}, None),
        ("few", None), (7, None),
    ],
)  # fmt: skip
def test_ranges(value: object, text: str | None) -> None:
    assert correct_range(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [("yes", "true"), ("On", "true"), (1, "true"), ("no", "false"), (0, "false"), ("maybe", None)],
)
def test_booleans(value: object, text: str | None) -> None:
    assert correct_boolean(value) == text
