"""A comma between thousands splits a number in a list, and is named as the cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import TargetError
from autotune.target.read_target import read_target

COMMAND = """\
name: rows
command: [./bench]
maximize: true
parameters:
  batch: RULE
"""
COMMA = "a ',' separates values: "


def read_rule(directory: Path, rule: str) -> None:
    path = directory / "rows.yaml"
    path.write_text(COMMAND.replace("RULE", rule))
    read_target(path)


def find_hint(directory: Path, rule: str) -> str | None:
    """Return the hint of the first error, if any."""
    try:
        read_rule(directory, rule)
    except TargetError as error:
        return error.hint
    return None


@pytest.mark.parametrize(
    ("rule", "message", "hint"),
    [
        ("{choices: [1,000, 2,000]}", "5:30: choices: 0 is listed twice",
         "write `choices: [1000, 2000]`"),
        ("{choices: [1,500, 2,500], default: 1500}", "5:30: choices: 500 is listed twice",
         "write `choices: [1500, 2500]`"),
        ("{choices: [1,000,2,000]}", "5:29: choices: 0 is listed twice",
         "write thousands without it, such as `1024`"),
        ("{choices: [512, 1,024]}", "5:28: 024 is read as 24", "write `choices: [512, 1024]`"),
        ("{choices: [1,024, 2,048, 4,096]}", "5:23: 024 is read as 24",
         "write `choices: [1024, 2048, 4096]`"),
        ("{choices: [1,000,000, 5,500]}", "5:27: choices: 0 is listed twice",
         "write `choices: [1000000, 5500]`"),
        ("{choices: [1,024, 2,048], default: 1024}",
         "5:36: default: 1024 is not among the choices", "write `choices: [1024, 2048]`"),
        ("{range: [1,024, 4,096]}", "5:11: range: needs 2 values, not 4",
         "write `range: [1024, 4096]`"),
        ("{range: [1,024]}", "5:21: 024 is read as 24",
         "write thousands without it, such as `1024`"),
        ("\n    choices: [\n      1,024, 4096]", "7:9: 024 is read as 24",
         "write thousands without it, such as `1024`"),
    ],
)  # fmt: skip
def test_a_comma_between_thousands_is_the_cause(
    tmp_path: Path, rule: str, message: str, hint: str
) -> None:
    with pytest.raises(TargetError) as refused:
        read_rule(tmp_path, rule)
    assert refused.value.message == f"{tmp_path}/rows.yaml:{message}"
    assert refused.value.hint == f"{COMMA}{hint}"
    assert refused.value.others == ()


@pytest.mark.parametrize(
    "rule",
    [
        "{choices: [1, 24, 2, 48]}",
        "{choices: [10,100, 200,300]}",
        "{choices: [001,002]}",
        "{choices: [1,0.24, 7]}",
        "{choices: ['1,024', '2,048']}",
    ],
)
def test_other_lists_are_no_such_mistake(tmp_path: Path, rule: str) -> None:
    assert find_hint(tmp_path, rule) is None


@given(st.lists(st.integers(1000, 10**9), min_size=2, max_size=4, unique=True))
def test_no_part_of_a_split_number_becomes_a_choice(tmp_path: Path, numbers: list[int]) -> None:
    texts = [f"{number:,}" for number in numbers]
    groups = [group for text in texts for group in text.split(",")]
    is_clear = len(groups) > len({*map(int, groups)}) or any(g[0] == "0" for g in groups)
    hint = find_hint(tmp_path, f"{{choices: [{', '.join(texts)}]}}")
    assert hint == (
        f"{COMMA}write `choices: [{', '.join(map(str, numbers))}]`" if is_clear else None
    )
