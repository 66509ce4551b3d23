from __future__ import annotations

import pytest

from autotune.errors import AutotuneError
from autotune.report.parameters import (
    build_catalogue_json,
    find_parameter,
    format_catalogue,
    list_active_parameters,
    list_catalogue_entries,
    list_setting_changes,
)
from autotune.services.base import Settings
from autotune.services.registry import SHIPPED

POOL = "web.php_fpm."


def test_described_by_service_and_name() -> None:
    parameter = find_parameter("web.php_fpm.max_children")
    assert parameter is not None
    assert parameter.name == "max_children"
    assert find_parameter("lb.nginx.keepalive_timeout") is not None
    assert find_parameter("web.lua.pool_size") is None
    assert find_parameter("web") is None
    chosen = find_parameter("web.service")
    assert chosen is not None
    assert chosen.meaning


def test_the_kernel_and_limits_are_listed_as_services_are() -> None:
    listed = build_catalogue_json()["services"]
    assert {"sysctl", "limits"} < set(listed)
    for name in listed:
        assert build_catalogue_json(name)["services"] == {name: listed[name]}
        assert listed[name]


def test_a_service_of_two_kinds_is_listed_with_the_parameters_of_both() -> None:
    entries = list_catalogue_entries("apache")["apache"]
    deployments = {each.parameter.name: each.deployments for each in entries}
    assert deployments["ThreadsPerChild"] == ("apache",)
    assert deployments["MaxSpareServers"] == ("apache+mod_php",)
    assert deployments["KeepAlive"] == ()
    limits = [each for each in entries if each.parameter.name == "MaxRequestWorkers"]
    assert [each.deployments for each in limits] == [("apache",), ("apache+mod_php",)]
    assert "in apache+mod_php only" in format_catalogue("apache")
    assert {service.name for service in SHIPPED.services if service.parameters} == set(
        list_catalogue_entries()
    )
    for service in SHIPPED.services:
        assert all(
            p in [e.parameter for e in list_catalogue_entries()[service.name]]
            for p in service.parameters
        )


def test_of_two_kinds_of_one_name_the_settings_tell() -> None:
    event = {"lb.apache.MaxRequestWorkers": 150, "lb.apache.ThreadsPerChild": 25}
    prefork = {"web.apache.MaxRequestWorkers": 150, "web.apache.MaxSpareServers": 10}
    threads = find_parameter("lb.apache.MaxRequestWorkers", event)
    processes = find_parameter("web.apache.MaxRequestWorkers", prefork)
    assert threads is not None
    assert processes is not None
    assert threads.meaning != processes.meaning


def test_what_the_chosen_deployment_does_not_run_has_no_effect() -> None:
    settings = {"web.service": "apache+mod_php", "web.nginx.backlog": 64, "web.php_fpm.pm": "static",
                "web.apache.MaxRequestWorkers": 30, "lb.nginx.backlog": 64}  # fmt: skip
    acting = {"web.service", "web.apache.MaxRequestWorkers", "lb.nginx.backlog"}
    assert list_active_parameters(settings) == acting
    before = {**settings, "web.service": "nginx+php-fpm", "web.apache.MaxRequestWorkers": 150}
    changed = list_setting_changes(before, settings)
    assert {change.name for change in changed} == {"web.service", "web.apache.MaxRequestWorkers"}
    back = list_setting_changes(settings, {**before, "web.nginx.backlog": 128})
    assert {change.name for change in back} == {"web.service", "web.nginx.backlog"}


def test_what_has_no_effect_is_not_active() -> None:
    fixed = {POOL + "pm": "static", POOL + "max_children": 8, POOL + "start_servers": 2}
    assert list_active_parameters(fixed) == {POOL + "pm", POOL + "max_children"}
    assert list_active_parameters({**fixed, POOL + "pm": "dynamic"}) == set(fixed)


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
    found = list_setting_changes(before, after)
    assert [change.name for change in found] == names
    assert all(change.after == after[change.name] for change in found)


def test_a_change_knows_its_unit() -> None:
    (change,) = list_setting_changes(
        {"lb.nginx.keepalive_timeout": 75}, {"lb.nginx.keepalive_timeout": 5}
    )
    assert change.unit == "s"
    (own,) = list_setting_changes({"a.own.x": 1}, {"a.own.x": 2})
    assert own.unit == ""


EVERY = [
    (service, each.parameter)
    for service, entries in list_catalogue_entries().items()
    for each in entries
]


def test_every_parameter_is_documented() -> None:
    assert len(EVERY) > 30
    for service, parameter in EVERY:
        where = f"{service}.{parameter.name}"
        assert len(parameter.meaning) > 15, where
        assert parameter.meaning.endswith((".", ")")), where
        assert len(parameter.source) > 3, where
        assert parameter.choices or parameter.low is not None, where


def test_text_and_json_say_the_same_of_all() -> None:
    text, found = format_catalogue(), build_catalogue_json()
    for service, parameter in EVERY:
        assert f"  {parameter.name}: " in text
        assert parameter.name in [entry["name"] for entry in found["services"][service]]
        assert f"source: {parameter.source}" in text


def test_one_service_by_either_of_its_names() -> None:
    assert list(build_catalogue_json("php-fpm")["services"]) == ["php_fpm"]
    assert build_catalogue_json("php_fpm") == build_catalogue_json("php-fpm")


def test_an_unknown_service_names_the_nearest() -> None:
    with pytest.raises(AutotuneError) as raised:
        format_catalogue("ngnix")
    assert raised.value.hint == "did you mean 'nginx'?"
