"""An action in the background."""

from __future__ import annotations

import threading

from autotune.periodic_task import PeriodicTask


def test_an_action_is_repeated_until_it_is_stopped() -> None:
    calls, twice = list[int](), threading.Event()

    def act() -> None:
        calls.append(1)
        if len(calls) == 2:
            twice.set()

    task = PeriodicTask("calls", 0.001, act)
    task.start()
    assert twice.wait(60.0)
    task.stop()
    count = len(calls)
    threading.Event().wait(0.02)
    assert len(calls) == count


def test_a_task_that_was_never_started_stops_at_once() -> None:
    calls = list[int]()
    PeriodicTask("calls", 0.0, lambda: calls.append(1)).stop()
    assert calls == []
