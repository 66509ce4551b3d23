"""What to do on a host, from how it should be and how it is."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.deploy.desired_state import plan_host
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedFile,
    ObservedHost,
    ObservedUnit,
    split_into_steps,
)
from autotune.deploy.unit_start import UnitStart
from autotune.services.base import Action

CONF, DROP_IN = "/etc/nginx/nginx.conf", "/etc/systemd/system/nginx.service.d/autotune.conf"
NGINX, APACHE = "nginx.service", "apache2.service"
NEEDS = {
    CONF: {NGINX: Action.RELOAD},
    DROP_IN: {NGINX: Action.RESTART},
    "net.core.somaxconn": {NGINX: Action.RESTART},
    "vm.swappiness": {},
}


def file(content: bytes, mode: int = 0o644, owner: str = "0:0") -> ObservedFile:
    return ObservedFile("file", mode, owner, "1.5", hashlib.sha256(content).hexdigest())


def unit(*, active: bool) -> ObservedUnit:
    return ObservedUnit(exists=True, active=active, enabled="disabled", pid=7 * active, restarts=0)


WANTED = HostState(
    {CONF: FileState(b"new"), DROP_IN: FileState(b"limits")},
    {NGINX: True, APACHE: False},
    {"net.core.somaxconn": "4096", "vm.swappiness": "10"},
)
RIGHT = ObservedHost(
    {CONF: file(b"new"), DROP_IN: file(b"limits")},
    {NGINX: unit(active=True), APACHE: unit(active=False)},
    {"net.core.somaxconn": "4096", "vm.swappiness": "10"},
)
ABSENT = ObservedFile("absent")


def observed(**changed: object) -> ObservedHost:
    parts = {"files": RIGHT.files, "units": RIGHT.units, "sysctls": RIGHT.sysctls}
    return ObservedHost(**{name: {**part, **changed.get(name, {})} for name, part in parts.items()})  # type: ignore[arg-type,dict-item]


@pytest.mark.parametrize(
    ("how", "steps"),
    [
        ({}, HostPlan()),
        (
            {"files": {CONF: file(b"old")}},
            HostPlan(files_to_write=(CONF,), unit_actions={NGINX: Action.RELOAD}),
        ),
        (
            {"files": {DROP_IN: ABSENT}},
            HostPlan(files_to_write=(DROP_IN,), unit_actions={NGINX: Action.RESTART}),
        ),
        (
            {"files": {CONF: file(b"old"), DROP_IN: file(b"old")}},
            HostPlan(files_to_write=(CONF, DROP_IN), unit_actions={NGINX: Action.RESTART}),
        ),
        ({"units": {NGINX: unit(active=False)}}, HostPlan(unit_actions={NGINX: Action.RESTART})),
        ({"units": {APACHE: unit(active=True)}}, HostPlan(units_to_stop=(APACHE,))),
        ({"sysctls": {"vm.swappiness": "60"}}, HostPlan(sysctls={"vm.swappiness": "10"})),
        (
            {"sysctls": {"net.core.somaxconn": "128"}},
            HostPlan(sysctls={"net.core.somaxconn": "4096"}, unit_actions={NGINX: Action.RESTART}),
        ),
        ({"sysctls": {"vm.swappiness": None}}, HostPlan()),  # this kernel has no such value
    ],
)
def test_the_least_that_is_needed(how: dict[str, object], steps: HostPlan) -> None:
    plan = plan_host(WANTED, observed(**how), NEEDS)
    assert plan == steps
    assert plan.unread_files == plan.files_to_write


def test_nothing_to_do_is_false() -> None:
    assert not plan_host(WANTED, RIGHT, NEEDS)
    assert plan_host(WANTED, observed(units={APACHE: unit(active=True)}), NEEDS)


def test_touched_units_are_restarted_though_all_looks_right() -> None:
    plan = plan_host(WANTED, RIGHT, {}, dict.fromkeys((NGINX, APACHE), Action.RESTART))
    # The drop-in is right, but nothing tells whether systemd was told of it.
    assert plan == HostPlan(unit_actions={NGINX: Action.RESTART})
    assert DROP_IN in plan.unread_files


def test_what_was_absent_is_removed_before_the_directory_it_is_in() -> None:
    inner, outer = "/var/www/autotune/kv.php", "/var/www/autotune"
    wanted = HostState({outer: FileState(), inner: FileState()})
    there = ObservedHost({outer: ObservedFile("directory"), inner: file(b"<?php")})
    assert plan_host(wanted, there, {}).files_to_remove == (inner, outer)


@pytest.mark.parametrize(
    ("wanted", "there", "same"),
    [
        (FileState(b"x"), file(b"x", 0o600, "5:5"), True),  # bits and owner stay what they are
        (FileState(b"x", 0o640, "5:5", modified="1.5"), file(b"x", 0o640, "5:5"), True),
        (FileState(b"x", 0o644, "5:5"), file(b"x", 0o640, "5:5"), False),
        (FileState(b"x", 0o640, "0:0"), file(b"x", 0o640, "5:5"), False),
        (FileState(b"x", modified="2.0"), file(b"x"), False),
        (FileState(link_target="a"), ObservedFile("link", detail="a"), True),
        (FileState(link_target="a"), ObservedFile("link", detail="b"), False),
        (FileState(b"x"), ObservedFile("link", detail="b"), False),
        (FileState(b""), file(b""), True),
        (FileState(), file(b""), False),
        (FileState(), ABSENT, True),
    ],
)
def test_files_are_compared_in_all_that_is_known_of_them(
    wanted: FileState, there: ObservedFile, same: bool
) -> None:
    assert there.matches(wanted) is same


@given(st.sets(st.sampled_from([CONF, DROP_IN])), st.booleans(), st.booleans())
def test_only_changed_files_are_written(old: set[str], nginx: bool, apache: bool) -> None:
    how = observed(
        files={path: file(b"old") for path in old},
        units={NGINX: unit(active=nginx), APACHE: unit(active=apache)},
    )
    steps = plan_host(WANTED, how, NEEDS)
    assert set(steps.files_to_write) == old
    assert (NGINX in steps.unit_actions) == (bool(old) or not nginx)
    assert steps.units_to_stop == ((APACHE,) if apache else ())


def test_tiers_behind_start_before_the_entry_and_files_come_first() -> None:
    starts = {
        "lb1": {"haproxy": UnitStart(2)},
        "web1": {"nginx": UnitStart(1), "fpm": UnitStart(1)},
        "db1": {"db": UnitStart(0)},
    }
    restart = Action.RESTART
    plans = {
        "lb1": HostPlan(files_to_write=("/a",), unit_actions={"haproxy": Action.RELOAD}),
        "web1": HostPlan(
            unit_actions={"fpm": restart, "nginx": restart}, boot_changes={"fpm": True}
        ),
        "db1": HostPlan(sysctls={"x": "1"}, unit_actions={"db": restart}),
        "idle": HostPlan(),
    }
    assert split_into_steps(plans, starts) == [
        {
            "lb1": HostPlan(files_to_write=("/a",)),
            "db1": HostPlan(sysctls={"x": "1"}, unit_actions={"db": restart}),
        },
        {"web1": HostPlan(unit_actions={"fpm": restart, "nginx": restart})},
        {"lb1": HostPlan(unit_actions={"haproxy": Action.RELOAD})},
        {"web1": HostPlan(boot_changes={"fpm": True})},
    ]
    assert split_into_steps({"idle": HostPlan()}, starts) == []


def test_unit_files_are_reread_before_the_first_unit_starts_even_if_no_file_changes() -> None:
    plan = HostPlan(unread_files=("/etc/systemd/system/x",), unit_actions={"x": Action.RESTART})
    first, second = split_into_steps(
        {"lb1": plan, "db1": HostPlan(unit_actions={"db": Action.RESTART})},
        {"lb1": {"x": UnitStart(1)}},
    )
    assert first["lb1"].unread_files == plan.unread_files
    assert set(first) == {"lb1", "db1"}
    assert second == {"lb1": HostPlan(unit_actions={"x": Action.RESTART})}


def test_a_start_is_the_same_after_its_record() -> None:
    start = UnitStart(3, "80", "http://10.0.0.2:80/", "shop.example", 240.0, 2.0)
    assert UnitStart.from_record(start.to_record()) == start
    assert start.build_wait_command("x") == (
        "ready", "x", "80", "240", "http://10.0.0.2:80/", "shop.example", "2"
    )  # fmt: skip
    assert UnitStart(address="/run/x").build_wait_command("x") == ("up", "x", "/run/x", "120")


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1},
        {"rank": "x"},
        {"url": None},
        {"name": "a\nb"},
        {"seconds": 1e9},
        {"interval": 0},
    ],
)
def test_a_start_with_other_values_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        UnitStart.from_record({**UnitStart().to_record(), **change})
