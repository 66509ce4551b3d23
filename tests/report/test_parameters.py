from __future__ import annotations

import pytest

from autotune.report.parameters import active, changes, described
from autotune.services.base import Settings

POOL = "web.php_fpm."


def test_described_by_service_and_name() -> None:
    parameter = described("web.php_fpm.max_children")
    assert parameter is not None
    assert parameter.name == "max_children"
    assert described("lb.nginx.keepalive_timeout") is not None
    assert described("web.lua.pool_size") is None
    assert described("web") is None


def test_what_has_no_effect_is_not_active() -> None:
    fixed = {POOL + "pm": "static", POOL + "max_children": 8, POOL + "start_servers": 2}
    assert active(fixed) == {POOL + "pm", POOL + "max_children"}
    assert active({**fixed, POOL + "pm": "dynamic"}) == set(fixed)


CASES: list[tuple[Settings, Settings, list[str]]] = [
    ({"a.own.x": 1}, {"a.own.x": 1}, []),
    ({"a.own.x": 1}, {"a.own.x": 2}, ["a.own.x"]),
    ({"a.own.x": 1}, {"a.own.x": True}, ["a.own.x"]),
    ({"a.own.x": 1}, {"a.own.x": 1.0}, []),
    ({}, {"a.own.x": 0}, ["a.own.x"]),
    ({"a.own.x": 1}, {}, []),
    (
        {POOL + "pm": "dynamic", POOL + "start_servers": 2},
        {POOL + "pm": "static", POOL + "start_servers": 9},
        [POOL + "pm"],
    ),
]


@pytest.mark.parametrize(("before", "after", "names"), CASES)
def test_changes(before: Settings, after: Settings, names: list[str]) -> None:
    found = changes(before, after)
    assert [change.name for change in found] == names
    assert all(change.after == after[change.name] for change in found)


def test_a_change_knows_its_unit() -> None:
    (change,) = changes({"lb.nginx.keepalive_timeout": 75}, {"lb.nginx.keepalive_timeout": 5})
    assert change.unit == "s"
    (own,) = changes({"a.own.x": 1}, {"a.own.x": 2})
    assert own.unit == ""
