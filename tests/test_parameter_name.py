"""Full names of parameters, in their parts and back."""

from __future__ import annotations

import pytest

from autotune.parameter_name import ParameterName, select_service_settings
from autotune.services.registry import SHIPPED

NAMES = {
    "web.nginx.worker_connections": ParameterName("web", "nginx", "worker_connections"),
    "web.sysctl.net.core.somaxconn": ParameterName("web", "sysctl", "net.core.somaxconn"),
    "web.service": ParameterName("web", "service"),
}


@pytest.mark.parametrize("text", NAMES)
def test_name_has_a_tier_a_service_and_the_rest(text: str) -> None:
    assert ParameterName.parse(text) == NAMES[text]
    assert str(NAMES[text]) == text


def test_every_parameter_of_the_catalogue_survives() -> None:
    names = [
        f"tier.{service.name}.{p.name}" for service in SHIPPED.services for p in service.parameters
    ]
    assert names
    assert [str(ParameterName.parse(name)) for name in names] == names
    assert {ParameterName.parse(name).service_prefix for name in names} == {
        f"tier.{service.name}" for service in SHIPPED.services if service.parameters
    }


def test_name_of_a_command_has_no_service() -> None:
    assert ParameterName.parse("threads") == ParameterName("threads", "")


def test_own_settings_are_those_of_one_service_only() -> None:
    settings = {"web.nginx.a": 1, "web.nginx.b.c": 2, "web.nginx2.a": 3, "lb.nginx.a": 4}
    assert select_service_settings(settings, "web.nginx") == {"a": 1, "b.c": 2}
