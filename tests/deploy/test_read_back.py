"""What is in effect in a tier whose hosts need not agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.host_state import HostPlan, HostState, ObservedHost, ObservedUnit
from autotune.deploy.read_back import (
    StackNotReady,
    check_units_run,
    expect_restarts,
    merge_tier_values,
)
from autotune.runtimes.systemd import parse_units
from autotune.services.base import Action, Settings

ASKED: Settings = {"web.children": 8, "web.backlog": 511, "web.growth": 1.3172841}


@pytest.mark.parametrize(
    ("hosts", "effective"),
    [
        ([{"web.children": 8}, {"web.children": 8}], {"web.children": 8}),
        ([{"web.children": 8}, {"web.children": 5}], {"web.children": 5}),
        ([{"web.children": 5}, {"web.children": 8}], {"web.children": 5}),
        ([{"web.children": 5}, {"web.children": 6}], {"web.children": 5}),
        ([{"web.children": 8}, {"web.backlog": 128}], {"web.children": 8, "web.backlog": 128}),
        ([{}, {"lb.workers": 2}], {"lb.workers": 2}),
        ([{"web.growth": 1.32}, {"web.growth": 1.25}], {"web.growth": 1.25}),
        ([], {}),
    ],
)
def test_the_host_that_is_not_as_asked_is_told(
    hosts: list[dict[str, float]], effective: dict[str, float]
) -> None:
    desired: Any = SimpleNamespace(settings=ASKED, instances_on=lambda _: [])
    assert merge_tier_values(desired, dict(zip("abc", hosts, strict=False))) == effective


def unit(active: str, sub: str, restarts: int) -> str:
    return (
        f"LoadState=loaded\nActiveState={active}\nSubState={sub}\nUnitFileState=enabled\n"
        f"MainPID=7\nNRestarts={restarts}\nFragmentPath=/lib/x.service"
    )


def host_with(text: str) -> ObservedHost:
    return ObservedHost(units=parse_units(("x.service",), text))


class Host:
    name = "web1"

    def find_failures(self) -> list[str]:
        return ["web1: its own last words"]


def test_a_process_without_a_service_manager_is_not_being_restarted() -> None:
    desired: Any = SimpleNamespace(hosts={"web1": HostState(units={"x": True})})
    host: Any = Host()
    running = ObservedHost(units={"x": ObservedUnit(True, True, "", pid=7, restarts=0)})
    check_units_run(host, desired, {"x": 0}, running)


@pytest.mark.parametrize(
    ("before", "now", "stays_up"),
    [
        (unit("active", "running", 0), unit("active", "running", 0), True),
        (unit("active", "running", 3), unit("active", "running", 3), True),
        (unit("active", "running", 3), unit("active", "running", 0), True),  # systemd counts anew
        (unit("inactive", "dead", 0), unit("active", "running", 0), True),
        (unit("active", "running", 0), unit("active", "running", 1), False),
        (unit("active", "running", 0), unit("activating", "auto-restart", 0), False),
        (unit("active", "running", 0), unit("failed", "failed", 0), False),
    ],
)
def test_a_unit_that_ended_and_was_started_again_does_not_stay_up(
    before: str, now: str, stays_up: bool
) -> None:
    earlier = expect_restarts(host_with(before), HostPlan())
    desired: Any = SimpleNamespace(hosts={"web1": HostState(units={"x.service": True})})
    host: Any = Host()
    if stays_up:
        check_units_run(host, desired, earlier, host_with(now))
        return
    with pytest.raises(StackNotReady, match=r"web1: .*its own last words"):
        check_units_run(host, desired, earlier, host_with(now))


def test_a_restart_by_autotune_resets_the_count_of_restarts() -> None:
    desired: Any = SimpleNamespace(hosts={"web1": HostState(units={"x.service": True})})
    host: Any = Host()
    plan = HostPlan(unit_actions={"x.service": Action.RESTART})
    earlier = expect_restarts(host_with(unit("active", "running", 3)), plan)
    check_units_run(host, desired, earlier, host_with(unit("active", "running", 0)))
    with pytest.raises(StackNotReady, match="started again by the service manager"):
        check_units_run(host, desired, earlier, host_with(unit("active", "running", 1)))


def test_a_value_that_only_some_hosts_reported_is_not_in_effect() -> None:
    instances = {
        "web1": [SimpleNamespace(parameter_prefix="web.nginx")],
        "web2": [SimpleNamespace(parameter_prefix="web.nginx")],
        "db1": [SimpleNamespace(parameter_prefix="db.redis")],
    }
    desired: Any = SimpleNamespace(instances_on=instances.get, settings={"web.nginx.queue": 511})
    values_by_host: dict[str, Settings] = {
        "web1": {"web.nginx.backlog": 511, "web.nginx.gzip": 1, "web.nginx.queue": 128},
        "web2": {"web.nginx.gzip": 1},
        "db1": {"db.redis.threads": 2},
    }
    effective = {"web.nginx.gzip": 1, "web.nginx.queue": 128, "db.redis.threads": 2}
    assert merge_tier_values(desired, values_by_host) == effective
