"""Hints for names of services that people write."""

from __future__ import annotations

import pytest

from autotune.services.registry import SHIPPED


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mysql", "mariadb"),
        ("httpd", "apache"),
        ("Apache2", "apache"),
        ("redis-server", "redis"),
        ("valkey", "redis"),
        ("postgres", "postgresql"),
        ("node", "nodejs"),
        ("php", "nginx+php-fpm"),
        ("httpd+php-fpm", "apache+php-fpm"),
        ("nginxx", "nginx"),
    ],
)
def test_names_that_people_use(name: str, meant: str) -> None:
    assert meant in SHIPPED.deployments
    assert f"did you mean {meant!r}?" in SHIPPED.suggest_deployment(name)


@pytest.mark.parametrize("name", ["mysql", "squid", "rabbitmq"])
def test_other_software_can_be_declared(name: str) -> None:
    assert "Declare other software under `services:`" in SHIPPED.suggest_deployment(name)
