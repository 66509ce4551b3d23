"""Closed loops: whole answers are compared while the clients run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.loads import closed_loop, probes
from autotune.loads.answer_kind import ReferenceAnswer
from autotune.loads.answer_validation import AnswerValidator, LoadPage
from autotune.loads.closed_load import ClosedLoopCeiling, ClosedLoopClients, WrkGenerator
from autotune.services.base import Argv, Endpoint
from autotune.target.requests_file import SessionStep
from autotune.transports.base import CommandResult
from autotune.transports.request import Request
from tests.loads.offered import Recorder

WRK = (Path(__file__).parent / "fixtures" / "closed" / "wrk-healthy.txt").read_text()
REQUEST = Request(Endpoint("198.18.0.1", 80), "/shop")
RIGHT = probes.ProbeAnswer(200, 5000, f"<html><title>Shop</title>{'<p>a product' * 400}</html>")
WRONG = replace(RIGHT, size=60, text="<html>Fatal error: Uncaught Error in shop.php</html>")
CLIENTS = ClosedLoopClients(5, 5.0, max_rate=20_000.0)


class Host(Recorder):
    """A load host whose wrk printed a healthy run, while curl got one wrong answer in ``every``."""

    every = 4

    def run(
        self, argv: Argv, *, input: bytes | None = None, timeout: float = 30.0
    ) -> CommandResult:
        done = super().run(argv, input=input, timeout=timeout)
        return replace(done, stdout="curl" if "curl --disable --config" in argv[2] else WRK)


def measure(
    monkeypatch: pytest.MonkeyPatch,
    validator: AnswerValidator,
    every: int = 4,
    wrong: probes.ProbeAnswer = WRONG,
) -> ClosedLoopCeiling:
    def answers_of(
        _: CommandResult, requests: tuple[Request, ...], **_options: bool
    ) -> list[probes.ProbeAnswer]:
        assert {request.path for request in requests} == {"/shop"}
        return [RIGHT if turn % every else wrong for turn in range(len(requests))]

    monkeypatch.setattr(probes, "parse_answers", answers_of)
    return closed_loop.run_closed_loop(WrkGenerator(), REQUEST, CLIENTS, Host("load1"), validator)


def page(path: str, **more: Any) -> LoadPage:
    return LoadPage(
        SessionStep(path=path), reference=ReferenceAnswer.from_samples([RIGHT] * 5), **more
    )


def test_answers_that_differ_in_kind_are_errors_of_the_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = measure(monkeypatch, AnswerValidator(()))
    ceiling = measure(monkeypatch, AnswerValidator((page("/shop"), page("/other"))))
    assert right.rate > 0
    assert ceiling.errors["wrong answer"] >= 0.25 * right.requests
    assert ceiling.rate == pytest.approx(0.75 * right.rate, rel=0.01)
    assert "/shop" in ceiling.example
    assert json.dumps(ceiling.example)


def test_redirects_that_wrk_accepts_are_errors_of_the_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = measure(monkeypatch, AnswerValidator(()))
    moved = replace(RIGHT, status=302, size=0, text="")
    ceiling = measure(monkeypatch, AnswerValidator((page("/shop"),)), wrong=moved)
    assert ceiling.rate == pytest.approx(0.75 * right.rate, rel=0.01)
    assert ceiling.example == "/shop: status 302 instead of 200"


def test_pages_that_the_clients_do_not_request_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ceiling = measure(monkeypatch, AnswerValidator((page("/other"),)))
    assert ceiling.example == ""
    assert "wrong answer" not in ceiling.errors


def test_slow_answers_are_compared_as_long_as_the_clients_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A closed loop has no latency limit, after which a response would count as late."""
    monkeypatch.setattr(
        probes, "parse_answers", lambda _, requests, **_options: [None] * len(requests)
    )
    host, clients = Host("load1"), replace(CLIENTS, timeout=20.0)
    validator = AnswerValidator((page("/shop"),))
    closed_loop.run_closed_loop(WrkGenerator(), REQUEST, clients, host, validator)
    (curl,) = [argv for argv, _ in host.ran if "curl --disable --config" in argv[2]]
    assert float(curl[4]) >= clients.seconds + clients.timeout


def test_answers_after_the_load_do_not_hide_errors_under_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = replace(WRONG, latency_seconds=1.0)
    monkeypatch.setattr(
        probes,
        "parse_answers",
        lambda _, requests, **_options: [*[slow] * 5, *[RIGHT] * (len(requests) - 5)],
    )
    validator = AnswerValidator((page("/shop"),))
    ceiling = closed_loop.run_closed_loop(
        WrkGenerator(), REQUEST, CLIENTS, Host("load1"), validator
    )
    assert ceiling.rate == 0
