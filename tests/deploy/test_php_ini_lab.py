"""PHP's own settings on a real host: Debian's files, the pool asked itself, starved and put back."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.environments.load_meter import LoadMeter
from autotune.environments.stack import StackEnvironment, prepare
from autotune.lab.plan import derive_names
from autotune.loads.base import Request
from autotune.loads.custom_generator import CustomGenerator
from autotune.monitor.host_watch import build_watched_hosts
from autotune.services.base import Action
from autotune.services.diagnosis import Resource
from autotune.target.read_target import read_target
from autotune.target.slo import Slo
from autotune.transports.local import LocalTransport
from tests.answers import fetched
from tests.deploy.lab import Ground, News, acted, differing, renewed, settings, shown
from tests.lab.shared import NETWORK, SharedLab

pytestmark = pytest.mark.lab
WEB = "flweb"
SCRIPTS = 150  # of 80 KB each once they are compiled: more than 8 MB
RELOADED = {f"web.{WEB}.php_ini": Action.RELOAD, f"web.{WEB}.php_fpm": Action.RELOAD}
RIGHT = (200, f"{SCRIPTS * 5000}\n".encode())
_SITE = f"""
set -e
cat >/etc/nginx/sites-available/default <<'END'
server {{
    listen 80;
    root /var/www/html;
    location ~ \\.php$ {{
        include snippets/fastcgi-php.conf;
        fastcgi_pass unix:/run/php/php8.2-fpm.sock;
    }}
}}
END
echo 'php_admin_value[memory_limit] = 200M' >>/etc/php/8.2/fpm/pool.d/www.conf
cd /var/www/html
for number in $(seq {SCRIPTS}); do
    echo "<?php return [$(seq -s, 5000)];" >"numbers-$number.php"
done
cat >all.php <<'END'
<?php
$sum = 0;
foreach (glob(__DIR__ . '/numbers-*.php') as $file) $sum += count(include $file);
echo "$sum\\n";
END
echo '<?php opcache_compile_file("/var/www/html/all.php");' >preload.php
printf 'opcache.preload=%s/preload.php\\nopcache.preload_user=www-data\\n' "$PWD" \\
    >/etc/php/8.2/fpm/conf.d/30-shop.ini
systemctl start nginx php8.2-fpm
"""
TARGET = f"""\
name: shop
slo: {{p99: 500ms, errors: 0.1%}}
hosts: {{{WEB}: {{address: {NETWORK}.22}}}}
ssh: {{config: CONFIG}}
tiers: {{web: {{hosts: {WEB}, service: nginx+php-fpm}}}}
load: {{path: /all.php, max_rate: 200/s}}
"""
# One request after the other, however long each takes.
_ASKING = """
import json, sys, urllib.request
spec = json.load(sys.stdin)
count = max(1, round(spec["rate"] * spec["seconds"]))
for _ in range(count):
    urllib.request.urlopen(sys.argv[1], timeout=60).read()
print(json.dumps({"requests": count, "errors": {}, "late": 0}))
"""


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        print(ground.sh(WEB, f"exec 2>&1\n{_SITE}"))
        yield ground


def reloads(ground: Ground) -> int:
    """How often the master of the pools has begun anew, by its own log."""
    return int(ground.sh(WEB, "grep -c 'reloading: execvp' /var/log/php8.2-fpm.log || :"))


def test_the_pool_s_own_settings_are_changed_starved_and_put_back(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy this machine is.
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)
    path = ground.directory / "shop.yaml"
    path.write_text(TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config)))
    before = ground.pictures()
    environment = prepare(read_target(path))
    fleet = environment.create_deployment(ground.directory / "study", News().note)
    fleet.boot_times.fixed_limit = 60.0
    fleet.lock_hosts()
    try:
        unchanged = fleet.deploy(settings(fleet))
        assert set(unchanged.actions.values()) == {Action.NONE}
        assert in_conf_d(before, ground) == []  # there is no empty file
        assert unchanged.effective["web.php_ini.opcache_memory_consumption"] == 128
        assert unchanged.effective["web.php_ini.opcache_jit"] == "off"  # by Debian's own line
        assert unchanged.effective["web.php_ini.opcache_preload"] is True
        assert "memory_limit not tuned (a pool sets it)" in "\n".join(environment.excluded)
        changed(ground, fleet)
        starved(ground, environment, fleet)
        fleet.deploy(settings(fleet))
        assert in_conf_d(before, ground) == []
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()
    assert differing(before, ground.pictures()) == []


def in_conf_d(before: Mapping[str, list[str]], ground: Ground) -> list[str]:
    """What is there that was not: of files that are written anew the time is another one."""
    left = differing(before, ground.pictures())
    return [line for line in left if f"{WEB}: etc/php/8.2/fpm/conf.d" in line]


def changed(ground: Ground, fleet: Deployment) -> None:
    """One reload of the unit whichever of its two files are changed, and every value in effect."""
    values = {
        "web__php_ini__opcache_memory_consumption": 8,
        "web__php_ini__opcache_interned_strings_buffer": 2,
        "web__php_ini__opcache_jit": "tracing",
        "web__php_ini__opcache_jit_buffer_size": 32,
        "web__php_ini__realpath_cache_size": 1000,
        "web__php_ini__opcache_preload": False,
        "web__php_fpm__max_children": 7,
    }
    pid = ground.sh(WEB, "systemctl show -P MainPID php8.2-fpm")
    so_far = reloads(ground)
    deployed = fleet.deploy(settings(fleet, **values))
    assert acted(deployed.actions) == RELOADED
    assert reloads(ground) == so_far + 1
    assert ground.sh(WEB, "systemctl show -P MainPID php8.2-fpm") == pid
    # What the pool sets itself is in effect, and said.
    assert [d.parameter for d in deployed.mismatches] == ["web.php_ini.memory_limit"]
    assert deployed.effective["web.php_ini.memory_limit"] == 200
    for name, value in values.items():
        assert deployed.effective[name.replace("__", ".")] == value
    wrong = {**settings(fleet, **values), "web.php_ini.opcache_jit": "luck"}
    with pytest.raises(DeployFailed, match=r'Invalid "opcache\.jit" setting'):
        fleet.deploy(wrong)
    assert fetched(fleet.stack.entry, "/all.php") == RIGHT
    assert reloads(ground) == so_far + 1


def starved(ground: Ground, environment: StackEnvironment, fleet: Deployment) -> None:
    """More scripts than there is memory for: they are compiled again for every request."""
    script = ground.directory / "asking.py"
    script.write_text(_ASKING)
    hosts = build_watched_hosts(
        fleet.stack, dict.fromkeys(ground.transports, 2.0), environment.transports
    )
    meter = LoadMeter(
        CustomGenerator((sys.executable, str(script), f"http://{NETWORK}.22/all.php")),
        Request(fleet.stack.entry, "/all.php", RIGHT[1]),
        Slo(limit=2.0),
        (LocalTransport(),),
        fleet.stack,
        hosts,
        timeout=60.0,
        max_rate=20_000.0,
        read_deployed_settings=lambda: fleet.deployed_settings,
    )
    # Counters that take longer than a few seconds to come are missing.
    bottleneck = shown(
        lambda: meter.find_bottleneck(fleet.deployed_settings, [meter.take_reading(4.0, 1.0)]),
        "web",
        Resource.CACHE,
    )
    assert bottleneck.service == "php_ini"
    assert "raise opcache_memory_consumption" in bottleneck.evidence
