from __future__ import annotations

import pytest

from autotune.target.messages import format_count, format_value


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "nothing"), (True, "true"), (False, "false"), (12, "12"), (1.5, "1.5"),
     (float("inf"), ".inf"), (float("-inf"), "-.inf"), (float("nan"), ".nan"),
     (1e300, "1e+300"), ("x", "'x'"),
     ("x" * 41, "'" + "x" * 39 + "…'"), ([1], "a list"), ({"a": 1}, "a mapping")],
)  # fmt: skip
def test_shown(value: object, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 units"), (1, "1 unit"), (2, "2 units"), (1.0, "1 unit"), (1.5, "1.5 units")],
)
def test_counted(count: float, text: str) -> None:
    assert format_count(count, "unit") == text
