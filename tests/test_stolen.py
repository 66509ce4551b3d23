from __future__ import annotations

import re
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
# Of each case, what is stolen while it runs and the attempt that passes, what comes of its attempts.
CASES = {
    (400, 0): ["PASSED"],
    (400, 1): ["RERUN", "PASSED"],
    (400, 2): ["RERUN", "RERUN", "PASSED"],
    (400, 9): ["RERUN", "RERUN", "FAILED"],
    (0, 1): ["FAILED"],
}
TEST = f"""\
import pathlib, pytest

@pytest.mark.parametrize(("ticks", "passes"), {[*CASES]})
def test_one(ticks, passes):
    stolen, tried = pathlib.Path("stolen"), pathlib.Path(f"tried-{{ticks}}-{{passes}}")
    before = len(tried.read_text()) if tried.exists() else 0
    tried.write_text("x" * (before + 1))
    stolen.write_text(str(int(stolen.read_text()) + ticks))
    pathlib.Path("stat").write_text({STAT!r}.format(stolen=stolen.read_text()))
    assert before == passes
"""


def test_a_tenth_was_stolen() -> None:
    began, ended = (stolen.counted(STAT.format(stolen=ticks)) for ticks in (0, 100))
    assert ended == (100, 1000)
    assert stolen.fraction(began, ended) == 1.0
    assert stolen.fraction((0, 0), ended) == 0.1
    assert stolen.fraction(ended, ended) == 0.0


@pytest.mark.long
def test_only_a_test_that_lacked_cpu_time_is_taken_again(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:xdist -v\ntimeout = 60\n")
    root = Path(__file__).parent.parent
    pytester.syspathinsert(root)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST)
    pytester.path.joinpath("stat").write_text(STAT.format(stolen=0))
    pytester.path.joinpath("stolen").write_text("0")
    printed = pytester.runpytest_subprocess().stdout.str()
    attempts = re.findall(
        r"::test_one\[(\d+)-(\d+)\] ([A-Z]+)", printed.partition("= FAILURES =")[0]
    )
    outcomes = {case: [of for *at, of in attempts if tuple(map(int, at)) == case] for case in CASES}
    assert outcomes == CASES, printed
