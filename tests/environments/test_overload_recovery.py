"""When the load rises in steps after an overload."""

from __future__ import annotations

import pytest

from autotune.environments.overload_recovery import OverloadRecovery
from autotune.measure.reading import Reading

PASSED, FAILED, OVERLOADED = 0, 20, 100  # violations of 100 requests


@pytest.mark.parametrize(
    ("readings", "needs_steps"),
    [
        ([(500, PASSED), (700, OVERLOADED), (450, OVERLOADED)], True),
        ([(500, PASSED), (700, OVERLOADED), (480, OVERLOADED)], False),  # near the limit by chance
        ([(500, PASSED), (700, OVERLOADED), (450, FAILED)], False),  # a few late requests
        ([(500, PASSED), (450, OVERLOADED)], False),  # a disturbance, because no overload precedes
        ([(700, OVERLOADED), (450, OVERLOADED)], False),  # no rate has passed
        ([(500, PASSED), (700, OVERLOADED), (450, OVERLOADED), (300, PASSED)], True),
    ],
)
def test_steps_are_needed_after_a_failure_below_a_rate_that_passed(
    readings: list[tuple[float, int]], needs_steps: bool
) -> None:
    recovery = OverloadRecovery()
    for rate, violations in readings:
        is_met = violations == PASSED
        recovery = recovery.with_reading(Reading(rate, 1.0, 100, violations), is_met=is_met)
    assert recovery.needs_steps is needs_steps


def test_only_the_reading_after_an_overload_gets_steps() -> None:
    recovery = OverloadRecovery(passed_rate=500, follows_overload=True, needs_steps=True)
    assert recovery.list_step_rates(400) == (100, 200, 300)
    assert recovery.with_deployment().list_step_rates(400) == ()
    passed = recovery.with_reading(Reading(400, 1.0, 100, 0), is_met=True)
    assert passed.list_step_rates(450) == ()
    assert passed.with_deployment().needs_steps
