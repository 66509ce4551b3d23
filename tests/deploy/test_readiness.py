"""The wait for a right answer."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from autotune.deploy import readiness
from autotune.deploy.readiness import Answer, RightAnswer, wait_until_ready

RIGHT = RightAnswer(b"found\n", frozenset({200}))


def answers(*given: Answer) -> Iterator[Answer]:
    yield from given
    while True:
        yield given[-1]


def test_a_stack_that_starts_is_waited_for() -> None:
    sent = answers("refused", (502, b""), (200, b"starting\n"), (200, b"found\n"))
    assert wait_until_ready(lambda: next(sent), RIGHT, 60.0) is None


@pytest.mark.parametrize("interval", [0.5, 20.0])
def test_requests_are_sent_no_more_often_than_the_load_limit_allows(
    interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(readiness, "time", clock)
    assert wait_until_ready(lambda: "refused", RIGHT, 60.0, interval) == "refused"
    assert len(pauses) > 2
    assert min(pauses) >= interval


@pytest.mark.parametrize(
    ("starting", "seconds", "waited"),
    [(0, 600.0, 15.0), (0, 3.0, 3.0), (40, 600.0, 55.0), (40, 50.0, 50.0), (1000, 600.0, 600.0)],
)
def test_the_wait_for_a_started_stack_counts_from_its_first_response(
    starting: int, seconds: float, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(readiness, "time", clock)
    told = wait_until_ready(
        lambda: (503 if sum(pauses) < starting else 500, b""), RIGHT, seconds, 1.0
    )
    assert told is not None
    assert waited - 2.0 < sum(pauses) <= waited + 2.0


def test_the_last_wrong_answer_is_described() -> None:
    assert wait_until_ready(lambda: (503, b"no server"), RIGHT, 0.0) == (
        "status 503, body 'no server'"
    )
    long = b"<p>\x1b[2J\xff DB_PASSWORD=hunter2hunter2 " + 100 * b"of a customer "
    told = wait_until_ready(lambda: (500, long), RIGHT, 0.0)
    assert told is not None
    assert told.isprintable()
    assert "hunter2" not in told
    assert len(told) < 100
    assert wait_until_ready(lambda: "refused", RIGHT, 0.0) == "refused"


def test_only_the_status_counts_without_a_body() -> None:
    right = RightAnswer(statuses=frozenset({204}))
    assert right.is_met((204, b"any"))
    assert not right.is_met((200, b"any"))
    assert not right.is_met("refused")
