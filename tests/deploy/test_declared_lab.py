"""HAProxy declared in YAML alone does on a real host what the one that ships does, and is restored."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.environments.preparation import prepare
from autotune.environments.stack import StackEnvironment
from autotune.lab.plan import derive_names
from autotune.parameter_name import select_service_settings
from autotune.services.base import Action, Value
from autotune.target.read_target import read_target
from tests.deploy.lab import Ground, News, acted, differing
from tests.lab.shared import NETWORK

pytestmark = pytest.mark.lab
DECLARATION = Path(__file__).parents[1] / "services" / "declared_haproxy.yaml"
TARGET = f"""\
name: declared
slo: {{p99: 200ms}}
ssh: {{config: CONFIG}}
hosts: {{fllb: {{address: {NETWORK}.21}}, flweb: {{address: {NETWORK}.22}}}}
tiers:
  lb: {{hosts: fllb, service: SERVICE, forwards_to: web}}
  web: {{hosts: flweb, service: nginx}}
services:
  balancer:
"""
_FRONT = f"""
cat >>/etc/haproxy/haproxy.cfg <<END

frontend http
	bind :80
	default_backend web

backend web
	server web1 {NETWORK}.22:80
END
systemctl start haproxy
"""
CHANGED: dict[str, Value] = {
    "server_maxconn": 7, "tune_bufsize": 32768, "balance": "leastconn", "timeout_server": 9000,
    "backlog": 300,
}  # fmt: skip
IN_EFFECT = {key: CHANGED[key] for key in ("server_maxconn", "tune_bufsize", "balance", "backlog")}


def test_it_does_what_the_one_that_ships_does(ground: Ground) -> None:
    ground.sh("flweb", "systemctl start nginx")
    ground.sh("fllb", _FRONT)
    before = ground.pictures()
    outcomes = {service: outcome(ground, service) for service in ("haproxy", "balancer")}
    assert differing(before, ground.pictures()) == []
    assert outcomes["balancer"] == outcomes["haproxy"]
    lines, actions = outcomes["balancer"]
    assert {"timeout server  9000", "default-server maxconn 7"} <= {*lines}
    assert actions == [Action.RESTART]


_HOOK = """
set -e
printf 'WORKERS=4\\n' >/etc/shop.env
cat >/usr/local/bin/shop <<'END'
#!/bin/sh -e
. /etc/shop.env
[ "$WORKERS" -lt 9 ]
echo "$WORKERS" >>/run/shop.applied
END
chmod +x /usr/local/bin/shop
cat >/etc/systemd/system/shop.service <<END
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/bin/shop
END
systemctl daemon-reload
systemctl start nginx shop
"""
HOOK = f"""\
name: hook
slo: {{p99: 200ms}}
ssh: {{config: CONFIG}}
hosts: {{flweb: {{address: {NETWORK}.22}}}}
tiers: {{web: {{hosts: flweb, service: shop}}}}
services:
  shop:
    role: app
    port: 80
    listens: false
    unit: shop.service
    files: {{/etc/shop.env: {{}}}}
    parameters:
      workers: {{meaning: Workers., directive: "WORKERS={{}}", default: 2, range: [1, 16]}}
"""


def test_a_script_of_one_s_own_applies_the_values(ground: Ground) -> None:
    ground.sh("flweb", _HOOK)
    before = ground.pictures()
    path = ground.directory / "hook.yaml"
    path.write_text(HOOK.replace("CONFIG", str(derive_names(ground.lab).ssh_config)))
    environment = prepare(read_target(path))
    assert isinstance(environment, StackEnvironment)
    fleet = environment.create_deployment(ground.directory / "study-hook", News().note)
    fleet.lock_hosts()
    try:
        assert fleet.space.baseline["web.shop.workers"] == 4
        fleet.deploy(fleet.space.build_candidate({}).settings)
        fleet.deploy(fleet.space.build_candidate({"web.shop.workers": 7}).settings)
        with pytest.raises(DeployFailed):
            fleet.deploy(fleet.space.build_candidate({"web.shop.workers": 12}).settings)
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()
    # Started, changed, restored after what failed, and restored at the end.
    assert ground.sh("flweb", "cat /run/shop.applied").split() == ["4", "7", "7", "4"]
    assert differing(before, ground.pictures()) == []


def outcome(ground: Ground, service: str) -> tuple[list[str], list[Action]]:
    """The lines of the file with the changed values, and what was done; both are the host's own."""
    path = ground.directory / f"{service}.yaml"
    text = TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config)).replace(
        "SERVICE", service
    )
    path.write_text(text + indent(DECLARATION.read_text(), "    "))
    environment = prepare(read_target(path))
    assert isinstance(environment, StackEnvironment)
    fleet = environment.create_deployment(ground.directory / f"study-{service}", News().note)
    fleet.lock_hosts()
    try:
        unchanged = fleet.deploy(fleet.space.build_candidate({}).settings)
        assert set(unchanged.actions.values()) == {Action.NONE}
        changed = {f"lb.{service}.{name}": value for name, value in CHANGED.items()}
        deployed = fleet.deploy(fleet.space.build_candidate(changed).settings)
        effective = select_service_settings(deployed.effective, f"lb.{service}")
        assert {name: effective[name] for name in IN_EFFECT} == IN_EFFECT
        file = ground.sh("fllb", "cat /etc/haproxy/haproxy.cfg")
        lines = sorted(line.strip() for line in file.splitlines())
        return lines, [*acted(deployed.actions).values()]
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()
