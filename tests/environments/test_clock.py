"""The seconds that each activity of a study takes."""

from __future__ import annotations

from autotune.environments.clock import StudyClock


def test_the_time_of_a_running_activity_is_counted_once() -> None:
    now = [100.0]
    clock = StudyClock(lambda: now[0])
    now[0] += 1.0
    with clock.time_activity("load"):
        now[0] += 5.0
        assert clock.collect_seconds() == {"load": 5.0, "deploy": 0.0, "search": 0.0, "other": 1.0}
        now[0] += 2.0
    now[0] += 0.5
    assert clock.collect_seconds() == {"load": 2.0, "deploy": 0.0, "search": 0.0, "other": 0.5}
