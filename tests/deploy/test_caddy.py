"""Caddy with the real server: in front of the reference web tier, and in front of PHP-FPM."""

from __future__ import annotations

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.services.base import Action
from tests.deploy.conftest import Opened
from tests.deploy.lab import acted
from tests.deploy.test_embedded import RIGHT, answer, fleet, settings

pytestmark = pytest.mark.stack
LB = "lb.here.caddy"
CHANGED = {
    "lb__caddy__gomaxprocs": 1,
    "lb__caddy__gogc": 400,
    "lb__caddy__lb_policy": "least_conn",
    "lb__caddy__keepalive_idle_conns_per_host": 200,
    "lb__caddy__max_conns_per_host": 50,
    "lb__caddy__compression": False,
}


def test_it_is_changed_refused_and_read_back(opened: Opened) -> None:
    with opened(("service: nginx, forwards_to", "service: caddy, forwards_to")) as bench:
        first = fleet(bench).deploy(settings(bench))
        assert answer(bench) == RIGHT
        assert first.mismatches == ()
        assert set(fleet(bench).deploy(settings(bench)).actions.values()) == {Action.NONE}

        # A private process has no unit that reloads it.
        changed = fleet(bench).deploy(settings(bench, **CHANGED))
        assert answer(bench) == RIGHT
        assert acted(changed.actions) == {LB: Action.RESTART}
        assert changed.mismatches == ()
        expected = {name.replace("__", "."): value for name, value in CHANGED.items()}
        assert expected.items() <= dict(changed.effective).items()

        with pytest.raises(DeployFailed, match="luck"):
            fleet(bench).deploy({**settings(bench, **CHANGED), "lb.caddy.lb_policy": "luck"})
        assert answer(bench) == RIGHT


def test_it_serves_an_application_of_php(opened: Opened) -> None:
    with opened(("service: nginx+php-fpm", "service: caddy+php-fpm")) as bench:
        deployed = fleet(bench).deploy(settings(bench, web__caddy__gogc=200))
        assert answer(bench) == RIGHT
        assert deployed.mismatches == ()
        assert deployed.effective["web.caddy.gogc"] == 200


def test_it_takes_the_place_of_another_balancer_and_gives_it_back(opened: Opened) -> None:
    with opened(("service: nginx, forwards_to", "service: [nginx, caddy], forwards_to")) as bench:
        for service in ("nginx", "caddy", "nginx"):
            deployed = fleet(bench).deploy(settings(bench, lb__service=service))
            assert answer(bench) == RIGHT
            assert deployed.mismatches == ()
            assert (LB in deployed.actions) == (service == "caddy")
