"""uWSGI behind nginx, in its own protocol: adopted, changed, refused, starved, restored."""

from __future__ import annotations

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
APP = "app.flweb.uwsgi"
PASSWORD = "correct-Horse-7-battery"
# The application starts for its own account, in its directory and with its secret alone.
_SITE = f"""
set -e
exec 2>&1
mkdir -p /srv/shop
echo 'SHOP_PASSWORD={PASSWORD}' >/etc/shop.env
chmod 600 /etc/shop.env
cat >/srv/shop/shop.py <<'END'
import getpass, os, time
assert os.environ["SHOP_PASSWORD"] == "{PASSWORD}"
assert getpass.getuser() == "www-data"
def application(environ, start_response):
    time.sleep(0.1)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
    return [b"right\\n"]
END
cat >/srv/shop/shop.ini <<'END'
[uwsgi]
; the shop
plugins = python3
chdir = %d
module = shop:application
socket = /run/shop/web.sock
stats = /run/shop/stats.sock
pidfile = /run/shop/pid
master = true
die-on-term = true
workers = 2
max-requests = 1000
END
cat >/etc/systemd/system/shop.service <<'END'
[Service]
User=www-data
Group=www-data
RuntimeDirectory=shop
EnvironmentFile=/etc/shop.env
ExecStart=/usr/bin/uwsgi --ini /srv/shop/shop.ini
END
cat >/etc/nginx/sites-available/default <<'END'
server {{
    listen 80;
    location / {{ include uwsgi_params; uwsgi_pass unix:/run/shop/web.sock; }}
}}
END
systemctl daemon-reload
systemctl start shop nginx
for _ in $(seq 2000); do [ -S /run/shop/stats.sock ] && break; sleep 0.05; done
"""
# As Debian's package starts what is in its directory, with its own defaults and a secret in the file.
_DEBIAN = (
    rf"""
{_SITE.split("cat >/etc/systemd", maxsplit=1)[0]}
mkdir -p /var/log/uwsgi/app  # hosts of a lab have logs of their own
mv /srv/shop/shop.ini /etc/uwsgi/apps-enabled/
cd /etc/uwsgi/apps-enabled
sed -i '/^socket\|^pidfile\|^workers/d; s,/run/shop/stats,/run/uwsgi/app/shop/stats,' shop.ini
sed -i 's,%d,/srv/shop,' shop.ini
echo 'env = SHOP_PASSWORD={PASSWORD}' >>shop.ini
{"cat >/etc/nginx" + _SITE.split("cat >/etc/nginx")[1]}
""".replace("/run/shop/", "/run/uwsgi/app/shop/")
    .replace("web.sock", "socket")
    .replace("start shop", "start uwsgi")
)
SITES = (
    pytest.param(_SITE, "/run/shop/web.sock", id="own"),
    # Its init script waits long for what it starts and ends.
    pytest.param(_DEBIAN, "/run/uwsgi/app/shop/socket", id="debian", marks=pytest.mark.soak),
)
_FILES = "/srv/shop/shop.ini /etc/uwsgi/apps-enabled/shop.ini"
_PIDS = "/run/shop/pid /run/uwsgi/app/shop/pid"


@pytest.mark.parametrize(("site", "socket"), SITES)
def test_an_ini_file_is_adopted_changed_refused_starved_and_restored(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, site: str, socket: str
) -> None:
    print(ground.sh("flweb", site))
    # However busy this machine is.
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)
    with ground.adopted(f"{NETWORK}.22", path="/") as (written, fleet):
        assert written.tier_summaries == (
            "lb: nginx on flweb, port 80; forwards to app",
            f"app: uwsgi on flweb, socket {socket}",
        )
        changed_and_starved(ground, fleet)
    texts = [path.read_bytes() for path in ground.directory.rglob("*") if path.is_file()]
    assert PASSWORD.encode() not in b"".join(texts)


def changed_and_starved(ground: Ground, fleet: Deployment) -> None:
    deployed = partial(redeployed, fleet, APP)
    _, effective = deployed()
    assert (effective["app.uwsgi.processes"], effective["app.uwsgi.threads"]) == (2, 1)
    assert fetched(fleet.stack.entry, "/") == RIGHT
    values = {"processes": 3, "threads": 4, "listen": 300, "cheaper": 2, "max_requests": 500}
    settings, effective = deployed(**values)
    for name in ("processes", "threads", "listen"):
        assert effective[f"app.uwsgi.{name}"] == values[name]
    assert ground.sh("flweb", f"grep -hs ^cheaper {_FILES}") == "cheaper = 2"
    pid = ground.sh("flweb", f"cat {_PIDS} 2>&1")
    with pytest.raises(DeployFailed, match="must be lower than processes"):
        fleet.deploy({**settings, "app.uwsgi.cheaper": 3})
    # What validated it has started nothing, and said nothing where the running one does.
    assert ground.sh("flweb", f"cat {_PIDS} 2>&1") == pid
    assert fetched(fleet.stack.entry, "/") == RIGHT

    deployed(processes=1, threads=1)  # a request each 0.1 s
    request = Request(fleet.stack.entry, "/", RIGHT[1])
    bottleneck = diagnosed(
        ground, fleet, LOAD_GENERATORS["httperf"], request, Slo(limit=0.6), 30.0, "app"
    )
    assert bottleneck.service == "uwsgi"
    assert "raise processes" in bottleneck.evidence
