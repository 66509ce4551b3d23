"""Time limits follow the measured boot times, the target's `ready:` and the balancer's checks."""

from __future__ import annotations

import pytest

from autotune.deploy import boot_times
from autotune.deploy.boot_times import BootTimes, is_starting
from autotune.deploy.host_state import HostState
from autotune.deploy.rollback import extend_start_seconds
from autotune.deploy.unit_start import (
    BOOT_FACTOR,
    MAX_START_SECONDS,
    UNKNOWN_BOOT_SECONDS,
    UnitStart,
)


def test_an_unknown_unit_has_longer_than_a_measured_one() -> None:
    times = BootTimes()
    assert times.unit_limit("web1", "app") == UNKNOWN_BOOT_SECONDS
    times.record_units("web1", {"app": 20.0})
    times.record_units("web1", {"app": 14.0})  # the longest counts
    assert times.unit_limit("web1", "app") == BOOT_FACTOR * 20.0
    assert times.unit_limit("web2", "app") == UNKNOWN_BOOT_SECONDS


def test_a_quick_unit_keeps_a_minimum() -> None:
    times = BootTimes()
    times.record_units("web1", {"nginx": 0.1})
    assert times.unit_limit("web1", "nginx") == boot_times.MIN_READY_SECONDS


def test_the_stack_has_time_for_health_checks_and_slow_pages() -> None:
    times = BootTimes(request_timeout=10.0, recovery=20.0)
    times.record_stack(0.5)
    assert times.stack_limit == boot_times.MIN_READY_SECONDS + 20.0 + 2 * 10.0


def test_the_target_overrides_all_limits_but_a_rollback_has_longer() -> None:
    times = BootTimes(fixed_limit=30.0, recovery=20.0)
    times.record_units("web1", {"app": 500.0})
    assert times.unit_limit("web1", "app") == times.stack_limit == 30.0
    assert times.late_limit >= 4 * 30.0


def test_no_limit_is_endless() -> None:
    times = BootTimes()
    times.record_units("web1", {"app": 1e6})
    assert times.unit_limit("web1", "app") == MAX_START_SECONDS


@pytest.mark.parametrize("times", [BootTimes(fixed_limit=1200.0), BootTimes(stack=300.0)])
def test_a_unit_that_starts_slowly_can_be_rolled_back(times: BootTimes) -> None:
    state = HostState(starts={"app": UnitStart()})
    rolled_back = extend_start_seconds(state, times.late_limit)
    assert rolled_back.starts["app"].seconds == MAX_START_SECONDS


@pytest.mark.parametrize("answer", ["connection refused", (502, b""), (503, b""), (504, b"")])
def test_a_stack_may_still_be_starting(answer: tuple[int, bytes] | str) -> None:
    assert is_starting(answer)


@pytest.mark.parametrize("status", [200, 301, 404, 500])
def test_other_wrong_responses_show_that_a_stack_has_started(status: int) -> None:
    assert not is_starting((status, b""))
