from __future__ import annotations

from pathlib import Path

import pytest

from autotune.loads import bodies
from autotune.loads.base import LoadResult, LoadSpec, Request
from autotune.loads.bodies import Look
from autotune.services.base import Endpoint

RECORDED = Path(__file__).parent / "fixtures" / "curl"
RIGHT = b"found 0100 of 0100\n"
LOOKS = {
    "right": Look(12, 0),
    "wrong": Look(12, 12),
    "one-host-of-two": Look(12, 4),
    "empty": Look(12, 12),
    "502": Look(0, 0),
    "refused": Look(0, 0),
    "timeouts": Look(0, 0),
    "half-an-answer-in-time": Look(0, 0),
}


@pytest.mark.parametrize(("name", "look"), LOOKS.items())
def test_recorded_answers_are_held_against_the_body(name: str, look: Look) -> None:
    assert bodies.parse((RECORDED / f"{name}.txt").read_bytes().decode(), RIGHT) == look


def test_what_was_cut_off_is_not_an_answer() -> None:
    printed = (RECORDED / "right.txt").read_text()
    assert bodies.parse(printed[:-3], RIGHT) == Look(11, 0)
    # Its end was looked for from each of its bytes: this took hours.
    assert bodies.parse(f"{printed}{'<li>' * 250_000}", RIGHT) == Look(12, 0)


@pytest.mark.parametrize(
    ("rate", "seconds", "looks"), [(1000, 3, 18), (1000, 0.2, 2), (100, 3, 3), (5, 3, 2)]
)
def test_the_look_adds_but_a_trace_of_load(rate: float, seconds: float, looks: int) -> None:
    assert bodies.count(LoadSpec(rate, seconds)) == looks


def test_a_path_with_signs_that_mean_something_to_curl() -> None:
    request = Request(Endpoint("h", 80), "/a[1]{b}?c=d", RIGHT)
    assert bodies.argv(request, LoadSpec(1000, 2.0))[-1] == r"http://h:80/a\[1\]\{b\}?c=d#[1-12]"


SHARES = [
    # looked at, wrong, of 80 right and 20 wrong by their size already → wrong in the end
    (Look(10, 0), 20), (Look(10, 1), 20), (Look(10, 5), 50), (Look(10, 10), 100), (Look(0, 0), 20),
]  # fmt: skip


@pytest.mark.parametrize(("look", "wrong"), SHARES)
def test_the_share_of_wrong_bodies_stands_for_all_answers(look: Look, wrong: int) -> None:
    result = LoadResult(110, 110, {"wrong body": 20, "timeout": 10}, {0.001: 50, 0.2: 30})
    reclassified = look.reclassify(result)
    assert reclassified.errors == {"wrong body": wrong, "timeout": 10}
    assert reclassified.replies_ok + reclassified.failed == 110
