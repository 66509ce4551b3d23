from __future__ import annotations

import re
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.space.expression import parse_comparison, parse_expression

NAMES = {
    "web.php_fpm.max_children": 20.0,
    "web.memory": 4.0 * 2**30,
    "count(web.hosts)": 3.0,
    "cpus": 2.0,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * cpus", 4),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("8 / 2 / 2", 2),
        ("-3 + 5", 2),
        ("30 MB", 30 * 2**20),
        ("50 ms", 0.05),
        ("70% of web.memory", 0.7 * 4 * 2**30),
        ("10%", 0.1),
        ("min(65536, cpus * 10)", 20),
        ("max(1, 2, 3)", 3),
        ("count(web.hosts) * web.php_fpm.max_children", 60),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    assert parse_expression(text).evaluate(NAMES) == pytest.approx(value)


def test_a_setting_of_zero_may_divide() -> None:
    assert parse_expression("2 / spare").evaluate({"spare": 0.0}) == inf
    assert parse_expression("-2 / spare").evaluate({"spare": 0.0}) == -inf


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a value, not 'the end'"),
        ("2 *", "expected a value, not 'the end'"),
        ("2 3", "'3' is unexpected"),
        ("(2", "expected ')'"),
        ("2 ; 3", "';' is not valid"),
        ("system(1)", "unknown function 'system'"),
        ("__import__('os')", "is not valid"),
        ("1 / 0", "division by zero in '1 / 0'"),
        ("cpus / (3 - 3)", "division by zero"),
        ("1 => 2", "'=' is not valid in '1 => 2': expected <=, >=, <, > or =="),
    ],
)
def test_nonsense_is_said_where_it_is(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_expression(text)


@pytest.mark.parametrize(
    "text",
    ["1" + " + 1" * 3000, "-" * 3000 + "1", "(" * 3000 + "1" + ")" * 3000, "min(" * 3000 + "1"],
)
def test_what_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 250 words"):
        parse_expression(text)


@pytest.mark.parametrize("start", ["1 + ", "-", "(", "min(", "70% of "])
def test_what_is_just_short_enough_can_be_evaluated(start: str) -> None:
    for count in range(90, 130):
        text = start * count + "1" + ")" * (start.endswith("(") * count)
        try:
            expression = parse_expression(text)
        except ValueError as error:
            assert "too many" in str(error) or count > 100  # noqa: PT017  # Python's own limit of brackets
        else:
            assert isinstance(expression.evaluate({}), float)
            assert str(expression)


@pytest.mark.parametrize(
    "text",
    [
        "(1).real",
        "a if 1 else 2",
        "[1]",
        "1 ** 2",
        "1 // 2",
        "~1",
        "x := 1",
        "min(*a)",
        "1j",
        "min(1, key=2)",
    ],
)
def test_nothing_of_python_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"in '|no arithmetic"):
        parse_expression(text)


def test_a_share_binds_more_tightly_than_division() -> None:
    assert parse_expression("8 / 50% of 4").evaluate({}) == 4
    assert parse_expression("50% of 50% of -8").evaluate({}) == -2


def test_a_comparison_needs_a_sign() -> None:
    with pytest.raises(ValueError, match="expected <="):
        parse_comparison("cpus 3")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("web.php_fpm.max_children * 30 MB <= 70% of web.memory", True),
        ("web.php_fpm.max_children * 300 MB <= 70% of web.memory", False),
        ("cpus > 1", True),
        ("cpus < 2", False),
        ("cpus >= 2", True),
        ("cpus == 2", True),
    ],
)
def test_comparisons(text: str, holds: bool) -> None:
    rule = parse_comparison(text)
    assert rule.is_satisfied(NAMES) is holds
    assert rule.names() <= set(NAMES)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_comparison(text)
    except ValueError:
        return


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_it_agrees_with_arithmetic(a: int, b: int, c: int) -> None:
    assert parse_expression(f"{a} + {b} * {c} - ({a} - {b}) / {c}").evaluate({}) == pytest.approx(
        a + b * c - (a - b) / c
    )
