"""Every mistake of the first ten minutes: a file in ``bad/``, and what is said about it.

The first line of each file is the message it must give, without the path; the second, where there
is one, the hint.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.errors import INVALID_TARGET_EXIT_CODE, TargetError
from autotune.target.read_target import read_target

CASES = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
# Words of the libraries underneath, and of Python.
JARGON = re.compile(
    r"(?i:pydantic|input should|valid integer|extra inputs|validation|_type\b|ruamel|block end)"
    r"|\b(None|True|False|dict|tuple|str|int|float|Commented\w+|\w*Error)\b"
)


def read_expectation(case: Path, what: str) -> str | None:
    found = re.search(rf"^# {what}: (.*)$", case.read_text(), re.MULTILINE)
    return found[1] if found else None


def test_there_are_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_one_message_points_at_the_mistake(case: Path) -> None:
    with pytest.raises(TargetError) as caught:
        read_target(case)
    assert caught.value.message == f"{case}:{read_expectation(case, 'expect')}"
    assert caught.value.hint == read_expectation(case, "hint")
    assert caught.value.exit_code == INVALID_TARGET_EXIT_CODE


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_no_message_speaks_of_the_machinery(case: Path) -> None:
    said = f"{read_expectation(case, 'expect')} {read_expectation(case, 'hint') or ''}"
    assert not JARGON.search(said)


@pytest.mark.parametrize(
    "case", [c for c in CASES if "hunter2" in c.read_text()], ids=lambda case: case.stem
)
def test_no_secret_is_repeated(case: Path) -> None:
    with pytest.raises(TargetError) as caught:
        read_target(case)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint} {caught.value.excerpt}"
    assert re.search(r"ssh agent|\$\{TOKEN\}", str(caught.value.hint))
