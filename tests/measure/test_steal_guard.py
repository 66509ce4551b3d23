from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure.steal_guard import (
    FREE,
    MUCH,
    REMEMBERED,
    SHARE,
    RetryBudget,
    StealGuard,
    worst,
)
from autotune.monitor.activity import HostUsage


def hosts(*stolen: float) -> dict[str, HostUsage]:
    """web1, web2, … by what was stolen from each."""
    return {f"web{number}": HostUsage(0.5, steal, 1.0, 1.0, 0.5, 10, 0, 1e6)
            for number, steal in enumerate(stolen, 1)}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        ((), (0.01, 0.02), None),
        ((), (0.01, 0.30), "30% of the CPU time of web2 was taken by the machine below it"),
        # Where little is ever stolen, that is usual, and most readings may be disturbed …
        ((0.0, 0.3, 0.3, 0.3, 0.3), (0.3,), "30% of the CPU time of web1"),
        # … but a machine that always loses time is what it is.
        ((0.3, 0.2, 0.2, 0.25, 0.2), (0.22,), None),
        ((0.2,) * 9, (0.4,), "40% of the CPU time of web1"),
        # Nothing was seen, so nothing is known.
        ((0.0,), (), None),
    ],
)
def test_a_reading_is_judged_by_what_is_usual(
    before: tuple[float, ...], now: tuple[float, ...], says: str | None
) -> None:
    guard = StealGuard()
    for stolen in before:
        guard = guard.after(hosts(stolen))
    found = guard.disturbed(hosts(*now))
    assert found is None if says is None else found is not None and found.startswith(says)


def test_retries_are_limited_by_the_time_the_study_has_taken() -> None:
    guard = StealGuard().after(hosts(0.3), FREE - 1)
    assert guard.may_retry(0.0)
    assert not guard.after(hosts(0.3), 2).may_retry(0.0)
    assert guard.after(hosts(0.3), 2).may_retry(2 * FREE / SHARE)


@given(st.lists(st.floats(0, 1), max_size=3 * REMEMBERED), st.floats(0, 1))
def test_what_is_usual_is_never_disturbed(past: list[float], now: float) -> None:
    guard = StealGuard()
    for stolen in past:
        guard = guard.after(hosts(stolen))
    assert len(guard.stolen) <= REMEMBERED
    if past:
        assert min(past) <= guard.usual <= max(past)
    assert (guard.disturbed(hosts(now)) is not None) == (now > guard.usual + MUCH)


def test_the_worst_host_of_none() -> None:
    assert worst({}) == ("", 0.0)


def test_leave_to_lose_more_counts_from_now_and_is_never_less_than_before() -> None:
    guard = StealGuard().after(hosts(0.3), 2 * FREE)
    assert not guard.may_retry(0.0)
    assert guard.within(RetryBudget(FREE, 10.0)).may_retry(0.0)
    assert not guard.within(RetryBudget(FREE, 10.0)).after(hosts(0.3), 11.0).may_retry(0.0)
    assert StealGuard().within(RetryBudget(more=1.0)).free == FREE
