"""Terms of rules with their units, and sizes as text."""

from __future__ import annotations

import pytest

from autotune.space.expression import parse_expression
from autotune.space.quantity_text import find_unit, format_bytes, format_quantity, format_terms

MB = 2.0**20
UNITS = {"shared": "B", "work": "B", "memory(db1)": "B", "wait": "s"}
NAMES = {
    "shared": 128 * MB,
    "work": 4 * MB,
    "memory(db1)": 1024 * MB,
    "clients": 100.0,
    "files": 1_048_576.0,
    "factor": 2.25,
    "wait": 300.0,
}


@pytest.mark.parametrize(
    ("text", "unit", "terms"),
    [
        ("shared", "B", "128 MB"),
        ("shared + clients * (work + 3 MB)", "B", "128 MB + 100 * (4 MB + 3 MB)"),
        ("80% of memory(db1)", "B", "0.8 * 1 GB"),
        ("shared + 1 KB", "B", "128 MB + 1 KB"),
        # A bare number in a sum of sizes is a size.
        ("shared + 512", "B", "128 MB + 512 B"),
        ("max(work, shared / 32)", "B", "max(4 MB, 128 MB / 32)"),
        ("-work", "B", "-4 MB"),
        # Counts have no unit, and no exponent.
        ("files", "", "1048576"),
        ("clients * factor + 3", "", "100 * 2.25 + 3"),
        ("memory(db1) / work", "", "1 GB / 4 MB"),
        ("memory(db1) / (clients * work)", "", "1 GB / (100 * 4 MB)"),
        ("wait * 2 + 5 s", "s", "300 s * 2 + 5 s"),
        ("50 ms", "s", "0.05 s"),
    ],
)
def test_each_term_has_its_unit(text: str, unit: str, terms: str) -> None:
    expression = parse_expression(text)
    assert find_unit(expression, UNITS) == unit
    assert format_terms(expression, NAMES, UNITS) == terms


@pytest.mark.parametrize(
    "text", ["8 / 50% of 4", "1 / (2 * 4)", "8 - (2 - 1)", "30 MB / (1 MB * 3)"]
)
def test_an_expression_as_text_has_the_same_value(text: str) -> None:
    expression = parse_expression(text)
    again = parse_expression(str(expression))
    assert again == expression
    assert again.evaluate({}) == expression.evaluate({})
    assert find_unit(again, {}) == find_unit(expression, {})


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0.0, "0 B"),
        (512.0, "512 B"),
        (1024.0, "1 KB"),
        (1.5 * MB, "1.5 MB"),
        (819.2 * MB, "819 MB"),
        (999.7 * MB, "1000 MB"),
        (1023.0 * MB, "1023 MB"),
        (1.03 * 1024 * MB, "1.03 GB"),
        (-4 * MB, "-4 MB"),
        (5 * 1024.0**4, "5 TB"),
    ],
)
def test_a_size_has_three_digits_and_no_exponent(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2048.0, "", "2048"),
        (150, "", "150"),
        (0.7, "", "0.7"),
        (1e6, "", "1000000"),
        (float("inf"), "", "inf"),
    ],
)
def test_a_count_is_a_plain_number(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text
