"""An application that boots slowly behind a web server and a load balancer with health checks."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.deploy import deployment
from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.deploy.read_back import StackNotReady
from autotune.discovery.target_writer import adopt_hosts
from autotune.environments.stack import prepare
from autotune.lab.plan import derive_names
from autotune.services.base import Endpoint
from autotune.services.haproxy.servers import parse_down_servers
from autotune.services.haproxy.stats import build_stats_command
from autotune.target.read_target import read_target
from tests.answers import fetched
from tests.deploy.lab import Ground, News, differing
from tests.lab.shared import NETWORK

pytestmark = pytest.mark.lab
RIGHT = (200, b"right\n")
ENTRY = Endpoint(f"{NETWORK}.21", 80)
APP = "app.puma.max_threads"
# The master listens at once, and the workers boot the application: requests wait meanwhile, and the web
# server answers 504 after two seconds.
_SITE = """
set -e
exec 2>&1
mkdir -p /srv/shop/config
cat >/srv/shop/config.ru <<'END'
sleep BOOT
run lambda { |env| [200, {"Content-Type" => "text/plain", "Content-Length" => "6"}, ["right\\n"]] }
END
cat >/srv/shop/config/puma.rb <<'END'
workers 2
threads 1, 1
port 3000
END
chown -R www-data: /srv/shop
cat >/etc/systemd/system/shop.service <<'END'
[Service]
User=www-data
WorkingDirectory=/srv/shop
ExecStart=/usr/bin/puma -e production
END
cat >/etc/nginx/sites-available/default <<'END'
server {
    listen 80;
    location / { proxy_pass http://127.0.0.1:3000; proxy_read_timeout 2s; }
}
END
systemctl daemon-reload
systemctl start shop nginx
"""
_BALANCER = f"""
set -e
exec 2>&1
cat >>/etc/haproxy/haproxy.cfg <<END

frontend http
	bind :80
	default_backend site

backend site
	option httpchk GET /
	server site1 {NETWORK}.22:80 check inter INTERVAL fall 3 rise 2
END
systemctl restart haproxy
for _ in $(seq 3000); do curl -fso /dev/null http://127.0.0.1/ && break; sleep 0.05; done
"""
CASES = (
    pytest.param(5, "1s", id="short"),
    pytest.param(20, "10s", id="twenty-seconds", marks=pytest.mark.soak),
)


def down_servers(ground: Ground, fleet: Deployment) -> tuple[str, ...]:
    (placement,) = [
        each.placement for each in fleet.stack.instances if each.service.name == "haproxy"
    ]
    done = ground.transports["fllb"].run([*build_stats_command(placement)], sudo=True)
    return parse_down_servers(done.stdout)


def force_down(ground: Ground, fleet: Deployment) -> None:
    """Let HAProxy regard its server as failed until its own checks succeed again."""
    (placement,) = [
        each.placement for each in fleet.stack.instances if each.service.name == "haproxy"
    ]
    argv = [*build_stats_command(placement)]
    ground.transports["fllb"].run([*argv[:-1], "set server site/site1 health down"], sudo=True)
    assert down_servers(ground, fleet) == ("site/site1",)


def assert_answers_right(count: int) -> None:
    """Every one of these requests has a right answer. They are sent right after the event."""
    assert [fetched(ENTRY, "/") for _ in range(count)] == [RIGHT] * count


@pytest.mark.parametrize(("boot", "interval"), CASES)
def test_a_slow_application_is_waited_for_and_the_balancer_too(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, boot: int, interval: str
) -> None:
    print(ground.sh("flweb", _SITE.replace("BOOT", str(boot))))
    print(ground.sh("fllb", _BALANCER.replace("INTERVAL", interval)))
    assert fetched(ENTRY, "/") == RIGHT
    before, out, news = ground.pictures(), ground.directory / "own.yaml", News()
    config = derive_names(ground.lab).ssh_config
    adopt_hosts([f"{NETWORK}.21", f"{NETWORK}.22"], out, config, "/")
    environment = prepare(read_target(out))
    fleet = environment.create_deployment(ground.directory / "own", news.note)
    fleet.lock_hosts()
    try:
        baseline = fleet.space.build_candidate({}).settings
        fleet.deploy(baseline)
        fleet.deploy({**baseline, APP: 2})
        assert_answers_right(20)
        assert fleet.boot_times.units["flweb", "shop.service"] >= boot

        force_down(ground, fleet)
        fleet.await_service(is_answer_doubtful=False)
        assert down_servers(ground, fleet) == ()
        assert [note for note in news.notes if "site/site1 (HAProxy on fllb)" in note]

        # A rollback starts the same application, and takes as long.
        monkeypatch.setattr(deployment, "confirm_state", _fail_once())
        with pytest.raises(DeployFailed, match="refused by the test"):
            fleet.deploy({**baseline, APP: 3})
        assert_answers_right(20)
        fleet.deploy({**baseline, APP: 2})
    finally:
        fleet.restore()
        fleet.confirm_restored()
        right_after = [fetched(ENTRY, "/") for _ in range(200)]
        for transport in environment.transports.values():
            transport.close()
    assert right_after == [RIGHT] * 200
    assert "every host was restored, and the stack responds correctly" in news.notes
    assert differing(before, ground.pictures()) == []


def _fail_once() -> object:
    confirm, failed = deployment.confirm_state, list[bool]()

    def fail(*words: Any, **options: Any) -> object:
        if failed:
            return confirm(*words, **options)
        failed.append(True)
        raise StackNotReady("refused by the test")

    return fail
