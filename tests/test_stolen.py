from __future__ import annotations

from pathlib import Path

import pytest

from tests import stolen

pytest_plugins = ["pytester"]
STAT = "cpu  100 20 30 700 50 0 0 {stolen} 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
CONFTEST = """\
import pathlib, pytest
from tests import stolen

def pytest_collection_modifyitems(items):
    for item in items:
        stolen.watch(item)

def pytest_runtest_setup(item):
    stolen.begins(item)

stolen.PAUSE = 0
stolen.spent = lambda: stolen.counted(pathlib.Path("stat").read_text())
"""
TEST = """\
import pathlib

def test_one():
    stat, tried = pathlib.Path("stat"), pathlib.Path("tried")
    before = len(tried.read_text()) if tried.exists() else 0
    tried.write_text("x" * (before + 1))
    stat.write_text({stat!r}.format(stolen={stolen} * (before + 1)))
    assert before == {passes}
"""


def test_a_tenth_was_stolen() -> None:
    began, ended = (stolen.counted(STAT.format(stolen=ticks)) for ticks in (0, 100))
    assert ended == (100, 1000)
    assert stolen.fraction(began, ended) == 1.0
    assert stolen.fraction((0, 0), ended) == 0.1
    assert stolen.fraction(ended, ended) == 0.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("ticks", "passes", "outcome"),
    [
        (400, 0, {"passed": 1}),
        (400, 1, {"passed": 1, "rerun": 1}),
        (400, 2, {"passed": 1, "rerun": 2}),
        (400, 9, {"failed": 1, "rerun": 2}),
        (0, 1, {"failed": 1}),
    ],
)
def test_only_a_test_that_lacked_cpu_time_is_taken_again(
    pytester: pytest.Pytester, ticks: int, passes: int, outcome: dict[str, int]
) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:xdist\ntimeout = 60\n")
    root = Path(__file__).parent.parent
    pytester.syspathinsert(root)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST.format(stat=STAT, stolen=ticks, passes=passes))
    pytester.path.joinpath("stat").write_text(STAT.format(stolen=0))
    ran = pytester.runpytest_subprocess()
    assert ran.parseoutcomes() == outcome
