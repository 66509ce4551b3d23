"""Caddy as Debian's own unit on real hosts: chosen, reloaded, refused, and adopted as it lies there."""

from __future__ import annotations

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.services.base import Action
from tests.answers import fetched
from tests.deploy.lab import Ground, acted, settings
from tests.lab.shared import NETWORK

pytestmark = pytest.mark.lab
RIGHT = (200, b"found 0100 of 0100\n")
LB = "lb.fllb.caddy"
_FRONT = f"""
set -e
cat >/etc/caddy/Caddyfile <<'END'
{{
	grace_period 5s
}}

:80 {{
	log {{
		output file /var/log/caddy/access.log
	}}
	reverse_proxy {NETWORK}.22:80 {{
		transport http {{
			max_conns_per_host 40
		}}
	}}
}}
END
systemctl start caddy
"""
_WEB = "systemctl start nginx"
OURS = "/etc/systemd/system/caddy.service.d/zz-autotune.conf"


def test_it_is_chosen_reloaded_restarted_and_taken_away(ground: Ground) -> None:
    with ground.opened(("service: nginx,", "service: [nginx, caddy],")) as fleet:
        chosen = fleet.deploy(settings(fleet, lb__service="caddy"))
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        states = ground.sh("fllb", "systemctl is-active nginx caddy").split()
        assert states == ["inactive", "active"]
        assert not [d for d in chosen.mismatches if d.parameter.startswith("lb.caddy.")]
        pid = ground.sh("fllb", "systemctl show -P MainPID caddy")

        changed = {
            "lb__service": "caddy",
            "lb__caddy__max_conns_per_host": 50,
            "lb__caddy__compression": False,
        }
        reloaded = fleet.deploy(settings(fleet, **changed))
        assert acted(reloaded.actions) == {LB: Action.RELOAD}
        assert reloaded.effective["lb.caddy.max_conns_per_host"] == 50
        assert reloaded.effective["lb.caddy.compression"] is False
        assert ground.sh("fllb", "systemctl show -P MainPID caddy") == pid

        with pytest.raises(DeployFailed, match="luck"):
            fleet.deploy({**settings(fleet, **changed), "lb.caddy.lb_policy": "luck"})
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT

        restarted = fleet.deploy(settings(fleet, **changed, lb__caddy__gogc=400))
        assert acted(restarted.actions) == {LB: Action.RESTART}
        assert restarted.effective["lb.caddy.gogc"] == 400
        assert ground.sh("fllb", "systemctl show -P MainPID caddy") != pid


def test_it_serves_an_application_of_php(ground: Ground) -> None:
    with ground.opened(("service: nginx+php-fpm,", "service: caddy+php-fpm,")) as fleet:
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        deployed = fleet.deploy(settings(fleet, web__caddy__gogc=200))
        assert acted(deployed.actions) == {"web.flweb.caddy": Action.RESTART}
        assert deployed.effective["web.caddy.gogc"] == 200
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT


def test_debian_s_own_is_adopted_and_given_back(ground: Ground) -> None:
    ground.sh("flweb", _WEB)
    print(ground.sh("fllb", f"exec 2>&1\n{_FRONT}"))
    hosts = (f"{NETWORK}.21", f"{NETWORK}.22")
    with ground.adopted(*hosts, path="/") as (written, fleet):
        assert written.tier_summaries[0] == "lb: caddy on fllb, port 80; forwards to web"
        unchanged = fleet.deploy(fleet.space.build_candidate({}).settings)
        assert set(unchanged.actions.values()) == {Action.NONE}
        assert unchanged.effective["lb.caddy.max_conns_per_host"] == 40
        deployed = fleet.deploy(
            fleet.space.build_candidate(
                {
                    "lb.caddy.max_conns_per_host": 7,
                    "lb.caddy.keepalive_idle_conns_per_host": 100,
                }
            ).settings
        )
        assert acted(deployed.actions) == {LB: Action.RELOAD}
        assert deployed.effective["lb.caddy.max_conns_per_host"] == 7
        assert deployed.effective["lb.caddy.keepalive_idle_conns_per_host"] == 100
        text = ground.sh("fllb", "cat /etc/caddy/Caddyfile")
        assert "\t\t\tmax_conns_per_host 7\n" in text
        assert ground.sh("fllb", f"ls {OURS} 2>/dev/null") == ""

        restarted = fleet.deploy(fleet.space.build_candidate({"lb.caddy.gogc": 400}).settings)
        assert acted(restarted.actions) == {LB: Action.RESTART}
        assert restarted.effective["lb.caddy.gogc"] == 400
        # The validation took no file from Caddy's account.
        assert fetched(fleet.stack.entry, "/")
        assert ground.sh("fllb", "stat -c %U /var/log/caddy/access.log") == "caddy"
