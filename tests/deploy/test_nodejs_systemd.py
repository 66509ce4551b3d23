"""A Node.js cluster behind nginx: adopted, changed by its environment, refused, starved, restored."""

from __future__ import annotations

from functools import partial

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.loads.base import Request
from autotune.loads.registry import LOAD_GENERATORS
from autotune.target.slo import Slo
from tests.answers import fetched
from tests.deploy.lab import Ground, diagnosed, redeployed
from tests.lab.shared import NETWORK

pytestmark = pytest.mark.lab
RIGHT = (200, b"right\n")
PASSWORD = "correct-Horse-7-battery"
# The application starts for its own account and with its secret alone; a request is 20 ms of computing.
_SITE = f"""
set -e
exec 2>&1
mkdir -p /srv/shop
echo 'SHOP_PASSWORD={PASSWORD}' >/etc/shop.env
chmod 600 /etc/shop.env
cat >/srv/shop/shop.js <<'END'
const cluster = require("cluster"), http = require("http"), os = require("os");
if (process.env.SHOP_PASSWORD !== "{PASSWORD}" || os.userInfo().username !== "www-data") process.exit(1);
const workers = Number(process.env.WEB_CONCURRENCY || 1);
if (workers > 1 && cluster.isPrimary) {{
  for (let i = 0; i < workers; i++) cluster.fork();
}} else {{
  http.createServer((request, response) => {{
    const before = process.cpuUsage();
    for (let used; !used || used.user + used.system < 20000;) used = process.cpuUsage(before);
    response.end("right\\n");
  }}).listen(process.env.PORT, "127.0.0.1");
}}
END
cat >/etc/systemd/system/shop.service <<'END'
[Service]
User=www-data
Group=www-data
WorkingDirectory=/srv/shop
Environment=PORT=3000 WEB_CONCURRENCY=2
Environment="NODE_OPTIONS=--max-old-space-size=512"
EnvironmentFile=/etc/shop.env
ExecStart=/usr/bin/env node shop.js
END
cat >/etc/nginx/sites-available/default <<'END'
server {{
    listen 80;
    location / {{ proxy_pass http://127.0.0.1:3000; }}
}}
END
systemctl daemon-reload
systemctl start shop nginx
for _ in $(seq 2000); do curl -fso /dev/null http://127.0.0.1/ && break; sleep 0.05; done
"""


def test_its_environment_is_adopted_changed_refused_starved_and_restored(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(ground.sh("flweb", _SITE))
    # However busy this machine is.
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)
    with ground.adopted(f"{NETWORK}.22", path="/") as (written, fleet):
        assert written.tier_summaries == (
            "lb: nginx on flweb, port 80; forwards to app",
            "app: nodejs on flweb, port 3000",
        )
        deployed = partial(redeployed, fleet, "app.flweb.nodejs")
        _, effective = deployed()
        assert effective["app.nodejs.workers"] == 2
        values = {"workers": 3, "uv_threadpool_size": 8, "max_semi_space_size": 32}
        settings, effective = deployed(**values)
        assert {name: effective[f"app.nodejs.{name}"] for name in values} == values
        assert effective["app.nodejs.max_old_space_size"] == 512
        assert fetched(fleet.stack.entry, "/") == RIGHT

        pid = ground.sh("flweb", "systemctl show -P MainPID shop")
        with pytest.raises(DeployFailed, match="illegal value for flag --max-semi-space-size=many"):
            fleet.deploy({**settings, "app.nodejs.max_semi_space_size": "many"})
        assert ground.sh("flweb", "systemctl show -P MainPID shop") == pid
        assert fetched(fleet.stack.entry, "/") == RIGHT

        deployed(workers=1)
        request = Request(fleet.stack.entry, "/", RIGHT[1])
        bottleneck = diagnosed(
            ground, fleet, LOAD_GENERATORS["httperf"], request, Slo(limit=0.6), 100.0, "app"
        )
        assert bottleneck.service == "nodejs"
        assert "raise workers" in bottleneck.evidence
    texts = [path.read_bytes() for path in ground.directory.rglob("*") if path.is_file()]
    assert PASSWORD.encode() not in b"".join(texts)
