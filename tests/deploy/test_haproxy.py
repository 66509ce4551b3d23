"""HAProxy with the real server, in front of the reference web tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.services.base import Action
from autotune.study.trial_context import TrialContext
from tests.answers import fetched
from tests.deploy.conftest import Opened
from tests.deploy.test_embedded import RIGHT, answer, fleet, settings
from tests.meanwhile import asked_meanwhile

pytestmark = pytest.mark.stack

HAPROXY = ("service: nginx, forwards_to", "service: haproxy, forwards_to")
LB = "lb.here.haproxy"
CHANGED = {
    "lb__haproxy__nbthread": 1,
    "lb__haproxy__maxconn": 500,
    "lb__haproxy__server_maxconn": 20,
    "lb__haproxy__balance": "leastconn",
    "lb__haproxy__tune_bufsize": 32768,
}


def acted(actions: dict[str, Action]) -> dict[str, Action]:
    return {name: action for name, action in actions.items() if action is not Action.NONE}


def master(bench: TrialContext) -> int:
    site = next(p.placement for p in fleet(bench).stack.instances if p.service.name == "haproxy")
    return int(Path(site.directory, "haproxy.pid-of").read_text().split()[0])


def test_it_is_changed_reloaded_restarted_and_read_back(opened: Opened) -> None:
    with opened(HAPROXY) as bench:
        first = fleet(bench).deploy(settings(bench))
        assert answer(bench) == RIGHT
        assert first.mismatches == ()
        begun = master(bench)
        assert set(fleet(bench).deploy(settings(bench)).actions.values()) == {Action.NONE}

        with asked_meanwhile(lambda: answer(bench)) as answers:
            reloaded = fleet(bench).deploy(settings(bench, **CHANGED))
        assert set(answers) == {RIGHT}
        assert acted(dict(reloaded.actions)) == {LB: Action.RELOAD}
        assert reloaded.mismatches == ()
        expected = {name.replace("__", "."): value for name, value in CHANGED.items()}
        assert expected.items() <= dict(reloaded.effective).items()
        assert master(bench) == begun

        with pytest.raises(DeployFailed, match="balance only supports"):
            fleet(bench).deploy({**settings(bench, **CHANGED), "lb.haproxy.balance": "luck"})
        assert answer(bench) == RIGHT

        # The listening socket outlives a reload, with its queue.
        restarted = fleet(bench).deploy(settings(bench, **CHANGED, lb__haproxy__backlog=300))
        assert acted(dict(restarted.actions)) == {LB: Action.RESTART}
        assert restarted.effective["lb.haproxy.backlog"] == 300
        assert master(bench) != begun
        assert fetched(fleet(bench).stack.entry, "/kv.php") == RIGHT


def test_it_takes_the_place_of_another_balancer_and_gives_it_back(opened: Opened) -> None:
    with opened(("service: nginx, forwards_to", "service: [nginx, haproxy], forwards_to")) as bench:
        for service in ("nginx", "haproxy", "nginx"):
            deployed = fleet(bench).deploy(settings(bench, lb__service=service))
            assert answer(bench) == RIGHT
            assert deployed.mismatches == ()
            assert (LB in deployed.actions) == (service == "haproxy")
