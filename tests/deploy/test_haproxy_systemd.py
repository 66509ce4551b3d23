"""HAProxy as Debian's own unit on real hosts: chosen, changed, starved, and adopted as it lies there."""

from __future__ import annotations

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.discovery.target_writer import adopt_hosts
from autotune.environments import stack
from autotune.lab.plan import derive_names
from autotune.loads.base import Request
from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.base import Action, Value
from autotune.services.diagnosis import Resource
from autotune.target.read_target import read_target
from autotune.target.slo import Slo
from tests.answers import fetched
from tests.deploy.lab import Ground, News, acted, diagnosed, differing, settings
from tests.lab.shared import NETWORK

pytestmark = pytest.mark.lab
RIGHT = (200, b"found 0100 of 0100\n")
CHANGES = (
    ("service: nginx,", "service: [nginx, haproxy],"),
    ("p99: 50ms", "p99: 200ms"),
    ("uses: [cache, store]", "uses: [store]"),
    ("pairs: 2000", "pairs: 2000, store_latency: 30ms"),
)
LB = "lb.fllb.haproxy"
_FRONT = f"""
set -e
cat >>/etc/haproxy/haproxy.cfg <<END

frontend http
	bind :80
	default_backend site
END
mkdir /etc/haproxy/conf.d
cat >/etc/haproxy/conf.d/site.cfg <<END
backend site
	server site1 {NETWORK}.22:80 maxconn 40
END
echo 'EXTRAOPTS="-f /etc/haproxy/conf.d"' >>/etc/default/haproxy
systemctl start haproxy
"""


def test_it_is_chosen_changed_starved_and_taken_away(ground: Ground) -> None:
    with ground.opened(*CHANGES) as fleet:
        chosen = fleet.deploy(settings(fleet, lb__service="haproxy"))
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        assert ground.sh("fllb", "systemctl is-active nginx haproxy").split() == [
            "inactive",
            "active",
        ]
        assert not [d for d in chosen.mismatches if d.parameter.startswith("lb.haproxy.")]
        pid = ground.sh("fllb", "systemctl show -P MainPID haproxy")

        starved = {
            "lb__service": "haproxy",
            "lb__haproxy__server_maxconn": 1,
            "lb__haproxy__maxconn": 900,
        }
        reloaded = fleet.deploy(settings(fleet, **starved))
        assert acted(reloaded.actions) == {LB: Action.RELOAD}
        assert reloaded.effective["lb.haproxy.server_maxconn"] == 1
        assert reloaded.effective["lb.haproxy.maxconn"] == 900
        assert ground.sh("fllb", "systemctl show -P MainPID haproxy") == pid

        wrong = {**settings(fleet, **starved), "lb.haproxy.balance": "luck"}
        with pytest.raises(DeployFailed, match="balance only supports"):
            fleet.deploy(wrong)

        # Twice the rate that one request at a time allows.
        request = Request(fleet.stack.entry, "/kv.php", RIGHT[1])
        bottleneck = diagnosed(
            ground,
            fleet,
            LOAD_GENERATORS["httperf"],
            request,
            Slo(limit=0.2),
            60.0,
            "lb",
            Resource.CONNECTIONS,
        )
        assert bottleneck.service == "haproxy"
        assert "raise server_maxconn" in bottleneck.evidence


def test_debian_s_own_is_adopted_and_given_back(ground: Ground) -> None:
    ground.sh("flweb", "systemctl start nginx")
    print(ground.sh("fllb", f"exec 2>&1\n{_FRONT}"))
    before = ground.pictures()
    out = ground.directory / "own.yaml"
    config = derive_names(ground.lab).ssh_config
    written = adopt_hosts([f"{NETWORK}.21", f"{NETWORK}.22"], out, config, "/")
    assert written.tier_summaries[0] == "lb: haproxy on fllb, port 80; forwards to web"
    assert differing(before, ground.pictures()) == []
    target = read_target(out)
    assert target.target.parameters["lb.haproxy.server_maxconn"].default == 40
    environment = stack.prepare(target)
    fleet = environment.create_deployment(ground.directory / "own", News().note)
    fleet.lock_hosts()
    try:
        unchanged = fleet.deploy(fleet.space.build_candidate({}).settings)
        assert set(unchanged.actions.values()) == {Action.NONE}
        # Where the file does not say it, HAProxy computes it from what it may open, and raises that.
        worked_out = {"lb.haproxy.maxconn", "lb.limits.nofile"}
        assert {d.parameter for d in unchanged.mismatches} <= worked_out
        assert unchanged.effective["lb.haproxy.server_maxconn"] == 40
        changed: dict[str, Value] = {
            "lb.haproxy.server_maxconn": 7, "lb.haproxy.nbthread": 1,
            "lb.haproxy.balance": "leastconn", "lb.haproxy.timeout_client": 9000,
        }  # fmt: skip
        deployed = fleet.deploy(fleet.space.build_candidate(changed).settings)
        assert acted(deployed.actions) == {LB: Action.RELOAD}
        assert {d.parameter for d in deployed.mismatches} <= worked_out
        assert deployed.effective["lb.haproxy.balance"] == "leastconn"
        assert ground.sh("fllb", "cat /etc/haproxy/conf.d/site.cfg").endswith(" maxconn 7")
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()
    assert differing(before, ground.pictures()) == []
