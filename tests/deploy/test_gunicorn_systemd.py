"""gunicorn behind nginx, in units of the user and of packages: adopted, changed, starved, restored."""

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
APP = "app.flweb.gunicorn"
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
echo 'workers = 1 * 2' >/srv/shop/gunicorn.conf.py
echo 'max_requests = 1000' >>/srv/shop/gunicorn.conf.py
cat >/etc/systemd/system/shop.service <<'END'
[Service]
Type=notify
User=www-data
Group=www-data
WorkingDirectory=/srv/shop
EnvironmentFile=/etc/shop.env
ExecStart=/usr/bin/gunicorn --bind 127.0.0.1:8000 --threads=1 \\
    shop:application
END
cat >/etc/nginx/sites-available/default <<'END'
server {{
    listen 80;
    location / {{ proxy_pass http://127.0.0.1:8000; }}
}}
END
systemctl daemon-reload
systemctl start shop nginx
for _ in $(seq 2000); do curl -fso /dev/null http://127.0.0.1/ && break; sleep 0.05; done
"""
# As a package has it, at a socket in the directory that the unit makes for it.
_PACKAGED = (
    _SITE.replace("/etc/systemd/system/shop", "/usr/lib/systemd/system/shop")
    .replace("--bind 127.0.0.1:8000", "--bind unix:/run/shop/web.sock")
    .replace("User=", "RuntimeDirectory=shop\nUser=")
    .replace("http://127.0.0.1:8000", "http://unix:/run/shop/web.sock")
)
SITES = {"own": (_SITE, "port 8000"), "packaged": (_PACKAGED, "socket /run/shop/web.sock")}


@pytest.mark.parametrize(("site", "place"), SITES.values(), ids=SITES)
def test_a_unit_is_adopted_changed_refused_starved_and_restored(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, site: str, place: str
) -> None:
    print(ground.sh("flweb", site))
    # However busy this machine is.
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)
    with ground.adopted(f"{NETWORK}.22", path="/") as (written, fleet):
        assert written.tier_summaries == (
            "lb: nginx on flweb, port 80; forwards to app",
            f"app: gunicorn on flweb, {place}",
        )
        changed_and_starved(ground, fleet)
    texts = [path.read_bytes() for path in ground.directory.rglob("*") if path.is_file()]
    assert PASSWORD.encode() not in b"".join(texts)


def changed_and_starved(ground: Ground, fleet: Deployment) -> None:
    deployed = partial(redeployed, fleet, APP)
    _, effective = deployed()
    assert effective["app.gunicorn.workers"] == 2
    assert effective["app.gunicorn.max_requests"] == 1000
    assert fetched(fleet.stack.entry, "/") == RIGHT
    values = {"workers": 3, "threads": 4, "backlog": 300, "keepalive": 5, "worker_connections": 100,
              "max_requests": 500, "max_requests_jitter": 20}  # fmt: skip
    settings, effective = deployed(**values)
    assert {name: effective[f"app.gunicorn.{name}"] for name in values} == values
    assert (
        ground.sh("flweb", "pgrep -u www-data -cf 'gunicorn --bind'") == "4"
    )  # and the one that manages them
    pid = ground.sh("flweb", "systemctl show -P MainPID shop")
    with pytest.raises(DeployFailed, match="invalid int value: 'many'"):
        fleet.deploy({**settings, "app.gunicorn.workers": "many"})
    assert ground.sh("flweb", "systemctl show -P MainPID shop") == pid
    assert fetched(fleet.stack.entry, "/") == RIGHT

    request = Request(fleet.stack.entry, "/", RIGHT[1])
    for threads in (1, 4):  # each serves a request in 0.1 s
        deployed(workers=1, threads=threads, worker_connections=1000)
        bottleneck = diagnosed(
            ground,
            fleet,
            LOAD_GENERATORS["httperf"],
            request,
            Slo(limit=0.6),
            30.0 * threads,
            "app",
        )
        assert bottleneck.service == "gunicorn", threads
        assert "raise workers" in bottleneck.evidence, threads
