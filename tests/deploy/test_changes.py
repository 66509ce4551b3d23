"""What a deployment would change on hosts as they are, with the reason of each action."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.changes import (
    CurrentHost,
    HostChanges,
    UnitChange,
    compute_host_changes,
    find_current_settings,
)
from autotune.deploy.desired_state import DesiredState
from autotune.deploy.host_state import FileState, ObservedFile, ObservedHost, ObservedUnit
from autotune.study.run_plan import encode_host_changes, format_changes
from tests.deploy.test_desired_state import CONF, FPM, NGINX, wanted


def as_is(state: DesiredState, host: str, **files: bytes) -> CurrentHost:
    """The host as ``state`` has it, but for a file of another content."""
    desired = state.hosts[host]
    contents = {path: file.content or b"" for path, file in desired.files.items()}
    contents |= {f"/{path.replace('__', '/')}.conf": content for path, content in files.items()}
    observed = ObservedHost(
        {path: ObservedFile("file", 0o644, "0:0", "", FileState(content).digest)
         for path, content in contents.items()},
        {unit: ObservedUnit(True, True, "enabled", 7, 0) for unit in desired.units},
        dict(desired.sysctls),
    )  # fmt: skip
    return CurrentHost(observed, contents)


def test_nothing_where_all_is_in_place(tmp_path: Path) -> None:
    stock = wanted(tmp_path)
    assert not compute_host_changes("lb1", stock, stock, as_is(stock, "lb1"))


@pytest.mark.parametrize(
    "changes",
    [
        HostChanges(files=(CONF,)),
        HostChanges(sysctls={"vm.swappiness": ("60", "10")}),
        HostChanges(units={NGINX: UnitChange("restart", ("it is not running",))}),
    ],
)
def test_each_kind_of_change_is_a_change(changes: HostChanges) -> None:
    assert changes


def test_each_unit_with_the_parameters_that_ask_for_it(tmp_path: Path) -> None:
    stock = wanted(tmp_path)
    changed = wanted(tmp_path, web__nginx__worker_processes=4, web__php_fpm__max_children=9)
    changes = compute_host_changes("web1", stock, changed, as_is(stock, "web1"))
    assert changes.units == {NGINX: UnitChange("reload", ("worker_processes",)),
                             FPM: UnitChange("reload", ("max_children",))}  # fmt: skip
    assert f"--- now/web1{CONF}\n+++ planned/web1{CONF}\n" in changes.diff
    assert "+pm.max_children = 9\n" in changes.diff
    changed = wanted(tmp_path, store__redis__maxclients=400,
                     store__sysctl__net__core__somaxconn=9000)  # fmt: skip
    changes = compute_host_changes("db1", stock, changed, as_is(stock, "db1"))
    reasons = ("maxclients", "net.core.somaxconn")
    assert changes.units == {"redis-server.service": UnitChange("restart", reasons)}
    assert changes.sysctls == {"net.core.somaxconn": ("4096", "9000")}


def test_files_that_are_not_the_baseline_are_the_reason(tmp_path: Path) -> None:
    stock = wanted(tmp_path)
    now = as_is(stock, "lb1", etc__nginx__nginx=b"# by hand\nsecret_key S3cret-key-2931;\n")
    changes = compute_host_changes("lb1", stock, stock, now)
    assert changes.files == (CONF,)
    assert changes.units == {NGINX: UnitChange("restart", (CONF,))}
    assert "-# autotune-masked-1-of-2\n" in changes.diff
    assert "S3cret" not in changes.diff


def test_of_other_files_than_the_baselines_nothing_is_known(tmp_path: Path) -> None:
    stock = wanted(tmp_path)
    now = as_is(stock, "lb1").observed
    assert find_current_settings("lb1", stock, now) == stock.settings
    by_hand = as_is(stock, "lb1", etc__nginx__nginx=b"# by hand\n").observed
    assert find_current_settings("lb1", stock, by_hand) is None
    assert find_current_settings("lb1", stock, replace(now, files={})) is None


def test_a_unit_that_does_not_run_is_started(tmp_path: Path) -> None:
    stock = wanted(tmp_path)
    now = as_is(stock, "lb1")
    stopped = replace(
        now,
        observed=replace(now.observed, units={NGINX: ObservedUnit(True, False, "enabled", 0, 0)}),
    )
    changes = compute_host_changes("lb1", stock, stock, stopped)
    assert changes.units == {NGINX: UnitChange("restart", ("it is not running",))}


def test_hosts_that_act_at_once_are_told_together() -> None:
    both = HostChanges(units={NGINX: UnitChange("restart", ("backlog", "reuseport"))})
    other = HostChanges(sysctls={"net.core.somaxconn": ("128", "4096")},
                        units={NGINX: UnitChange("reload", ("backlog",))})  # fmt: skip
    assert [*format_changes(encode_host_changes({"web1": both, "web2": both, "lb1": other}))] == [
        f"  restart {NGINX} on web1, web2 (2 at once), for backlog, reuseport",
        f"  reload {NGINX} on lb1, for backlog",
        "  lb1: net.core.somaxconn 128 → 4096",
    ]
