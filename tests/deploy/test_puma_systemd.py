"""Puma behind nginx, its numbers in its file or its unit: adopted, changed, starved, restored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.loads.base import Request
from autotune.loads.registry import LOAD_GENERATORS
from autotune.target.slo import Slo
from tests.answers import fetched
from tests.deploy.lab import Ground, diagnosed, redeployed
from tests.lab.shared import NETWORK

pytestmark = pytest.mark.lab
RIGHT = (200, b"right\n")
APP = "app.flweb.puma"
PASSWORD = "correct-Horse-7-battery"
# The application starts for its own account, which owns its directory, and with its secret alone.
_SITE = f"""
set -e
exec 2>&1
mkdir -p /srv/shop/config
echo 'SHOP_PASSWORD={PASSWORD}' >/etc/shop.env
chmod 600 /etc/shop.env
cat >/srv/shop/config.ru <<'END'
require "etc"
raise unless ENV["SHOP_PASSWORD"] == "{PASSWORD}" && Etc.getpwuid.name == "www-data"
run lambda {{ |env|
  sleep 0.1
  [200, {{"Content-Type" => "text/plain", "Content-Length" => "6"}}, ["right\\n"]]
}}
END
cat >/srv/shop/config/puma.rb <<'END'
# the shop
workers 2
threads 1, 1
bind "unix:///run/shop/web.sock?umask=0111"
state_path "/run/shop/state"
activate_control_app "unix:///run/shop/control.sock"
persistent_timeout 30
END
chown -R www-data: /srv/shop
cat >/etc/systemd/system/shop.service <<'END'
[Service]
User=www-data
Group=www-data
WorkingDirectory=/srv/shop
RuntimeDirectory=shop
EnvironmentFile=/etc/shop.env
ExecStart=/usr/bin/puma -e production
END
cat >/etc/nginx/sites-available/default <<'END'
server {{
    listen 80;
    location / {{ proxy_pass http://unix:/run/shop/web.sock; }}
}}
END
systemctl daemon-reload
systemctl start shop nginx
for _ in $(seq 2000); do curl -fso /dev/null http://127.0.0.1/ && break; sleep 0.05; done
"""
# As Rails has it, in a unit as a package has it.
_RAILS = f"""
{_SITE.split("cat >/srv/shop/config/puma.rb", maxsplit=1)[0]}
cat >/srv/shop/config/puma.rb <<'END'
max_threads_count = ENV.fetch("RAILS_MAX_THREADS") {{ 5 }}
min_threads_count = ENV.fetch("RAILS_MIN_THREADS") {{ max_threads_count }}
threads min_threads_count, max_threads_count
worker_timeout 3600 if ENV.fetch("RAILS_ENV", "development") == "development"
port ENV.fetch("PORT") {{ 3000 }}
workers ENV.fetch("WEB_CONCURRENCY") {{ 1 }}
END
cat >{_SITE.split("cat >", maxsplit=3)[3]}
"""
for _own, _other in (
    ("/etc/systemd/system/shop", "/usr/lib/systemd/system/shop"),
    ("http://unix:/run/shop/web.sock", "http://127.0.0.1:3000"),
    (
        "ExecStart=/usr/bin/puma -e production",
        "Environment=RAILS_ENV=production\nExecStart=/usr/bin/puma",
    ),
):
    assert _own in _RAILS
    _RAILS = _RAILS.replace(_own, _other)
_THREADS = {"workers": 3, "max_threads": 4, "min_threads": 2, "persistent_timeout": 10}
SITES = (
    pytest.param(_SITE, "socket /run/shop/web.sock", {**_THREADS, "backlog": 300}, id="own"),
    pytest.param(_RAILS, "port 3000", _THREADS, id="rails", marks=pytest.mark.soak),
)


@pytest.mark.parametrize(("site", "place", "values"), SITES)
def test_it_is_adopted_changed_refused_starved_and_restored(
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
    site: str,
    place: str,
    values: Mapping[str, int],
) -> None:
    print(ground.sh("flweb", site))
    # However busy this machine is.
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)
    with ground.adopted(f"{NETWORK}.22", path="/") as (written, fleet):
        assert written.tier_summaries == (
            "lb: nginx on flweb, port 80; forwards to app",
            f"app: puma on flweb, {place}",
        )
        changed_and_starved(ground, fleet, values)
    texts = [path.read_bytes() for path in ground.directory.rglob("*") if path.is_file()]
    assert PASSWORD.encode() not in b"".join(texts)


def changed_and_starved(ground: Ground, fleet: Deployment, values: Mapping[str, int]) -> None:
    deployed = partial(redeployed, fleet, APP)
    settings, effective = deployed()
    for name in ("workers", "min_threads", "max_threads"):
        assert effective[f"app.puma.{name}"] == settings[f"app.puma.{name}"]
    assert fetched(fleet.stack.entry, "/") == RIGHT
    settings, effective = deployed(**values)
    assert {name: effective[f"app.puma.{name}"] for name in values} == values
    assert ground.sh("flweb", "pgrep -u www-data -cf 'puma: cluster worker'") == "3"
    assert fetched(fleet.stack.entry, "/") == RIGHT

    pid = ground.sh("flweb", "systemctl show -P MainPID shop")
    with pytest.raises(DeployFailed, match=r"minimum \(9\) number of threads must be less"):
        fleet.deploy({**settings, "app.puma.min_threads": 9})
    assert ground.sh("flweb", "systemctl show -P MainPID shop") == pid
    assert fetched(fleet.stack.entry, "/") == RIGHT

    deployed(workers=1, max_threads=1, min_threads=1)  # a request each 0.1 s
    request = Request(fleet.stack.entry, "/", RIGHT[1])
    bottleneck = diagnosed(
        ground, fleet, LOAD_GENERATORS["httperf"], request, Slo(limit=0.6), 30.0, "app"
    )
    assert bottleneck.service == "puma"
    assert "raise workers, or max_threads" in bottleneck.evidence
