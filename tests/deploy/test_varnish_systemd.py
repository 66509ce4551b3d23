"""Varnish as Debian's own unit before a web server: adopted, changed, refused, starved, restored."""

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
RIGHT = (200, b"slow\n")
CACHE = "http_cache.fllb.varnish"
OURS = "/etc/systemd/system/varnish.service.d/zz-autotune.conf"
# Nothing that its page answers may be kept, and each answer takes 0.3 s.
_WEB = """
set -e
cat >/etc/nginx/sites-available/default <<'END'
server {
    listen 80;
    root /var/www/html;
    location ~ \\.php$ { include snippets/fastcgi-php.conf; fastcgi_pass unix:/run/php/php8.2-fpm.sock; }
}
END
cat >/var/www/html/slow.php <<'END'
<?php header('Cache-Control: no-store, max-age=0'); usleep(300000); echo "slow\\n";
END
sed -i -e 's/^pm = .*/pm = static/' -e 's/^pm.max_children = .*/pm.max_children = 40/' \
    /etc/php/8.2/fpm/pool.d/www.conf
systemctl start nginx php8.2-fpm
"""
_CACHE = f"""
sed -i -e 's/"127.0.0.1"/"{NETWORK}.22"/' -e 's/"8080"/"80"/' /etc/varnish/default.vcl
systemctl start varnish
for _ in $(seq 2000); do curl -fso /dev/null http://127.0.0.1:6081/slow.php && break; sleep 0.05; done
"""


def test_debian_s_own_is_adopted_changed_refused_starved_and_restored(ground: Ground) -> None:
    ground.sh("flweb", _WEB)
    ground.sh("fllb", _CACHE)
    hosts = (f"{NETWORK}.21", f"{NETWORK}.22")
    with ground.adopted(*hosts, path="/slow.php") as (written, fleet):
        assert (
            written.tier_summaries[0] == "http_cache: varnish on fllb, port 6081; forwards to web"
        )
        assert not [note for note in written.notes if "fllb" in note]
        assert "listening but not tuned on every host: sshd (22)" in written.notes
        changed_and_starved(ground, fleet)
    assert "malloc,256m" in ground.sh("fllb", "systemctl show -P ExecStart varnish")


def changed_and_starved(ground: Ground, fleet: Deployment) -> None:
    deployed = partial(redeployed, fleet, CACHE)
    deployed()
    assert fetched(fleet.stack.entry, "/slow.php") == RIGHT
    assert ground.sh("fllb", f"ls {OURS} 2>/dev/null") == ""
    _, effective = deployed(storage=32, thread_pools=1, thread_pool_min=20, thread_pool_max=200,
                            listen_depth=300, workspace_client=128, gzip_level=1)  # fmt: skip
    assert effective["http_cache.varnish.storage"] == 32
    assert effective["http_cache.varnish.thread_pool_max"] == 200

    pid = ground.sh("fllb", "systemctl show -P MainPID varnish")
    settings = fleet.space.build_candidate({}).settings
    for name, value, why in (("thread_pool_min", 3, "Must be at least 5"),
                             ("storage", "1x", "Unknown BYTES unit")):  # fmt: skip
        with pytest.raises(DeployFailed, match=why):
            fleet.deploy({**settings, f"http_cache.varnish.{name}": value})
    assert ground.sh("fllb", "systemctl show -P MainPID varnish") == pid

    # Ten threads, of which each request takes two for 0.3 s.
    deployed(thread_pools=1, thread_pool_min=5, thread_pool_max=10)
    request = Request(fleet.stack.entry, "/slow.php", RIGHT[1])
    bottleneck = diagnosed(
        ground, fleet, LOAD_GENERATORS["httperf"], request, Slo(limit=0.6), 80.0, "http_cache"
    )
    assert bottleneck.service == "varnish"
    assert "raise thread_pool_max" in bottleneck.evidence
