"""MariaDB as Debian's own unit, behind a page that asks it: changed, starved, adopted, restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.discovery.target_writer import adopt_hosts
from autotune.environments.stack import prepare
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.loads.base import Request
from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.base import Action
from autotune.services.diagnosis import Resource
from autotune.target.read_target import read_target
from autotune.target.slo import Slo
from autotune.transports.ssh import SshTransport
from tests.answers import fetched
from tests.deploy.lab import Ground, News, acted, diagnosed, differing, settings
from tests.lab.shared import NETWORK, SharedLab

pytestmark = pytest.mark.lab
WEB, DB = f"{NETWORK}.22", f"{NETWORK}.24"
PASSWORD = "correct-Horse-7-battery"  # of the database: in nothing that autotune writes
RIGHT = (200, b"offer 7\n")
ROWS = 2000
OWN = "/etc/mysql/mariadb.conf.d/zz-autotune.cnf"
TARGET = f"""\
name: shop
slo: {{p99: 500ms, errors: 0.1%}}
hosts: {{flweb: {{address: {WEB}}}, flstore: {{address: {DB}}}}}
ssh: {{config: CONFIG}}
tiers:
  web: {{hosts: flweb, service: nginx+php-fpm, uses: [db]}}
  db:  {{hosts: flstore, service: mariadb, replace: true}}
load: {{generator: httperf, path: /db.php}}
"""
_DB = f"""
set -e
printf '[mysqld]\\nbind-address = 0.0.0.0\\n' >/etc/mysql/mariadb.conf.d/90-shop.cnf
mariadb-install-db --user=mysql --skip-test-db >/dev/null
systemctl start mariadb
mariadb <<'END'
CREATE DATABASE shop;
CREATE USER shop@'{WEB}' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON shop.* TO shop@'{WEB}';
USE shop;
CREATE TABLE offers (id INT PRIMARY KEY, name TEXT, price DECIMAL(9, 2));
INSERT INTO offers SELECT seq, CONCAT('offer ', seq), seq / 7 FROM seq_1_to_{ROWS};
END
"""
_WEB = f"""
set -e
sed -i -e 's/^pm = .*/pm = static/' -e 's/^pm.max_children = .*/pm.max_children = 30/' \
    /etc/php/8.2/fpm/pool.d/www.conf
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
cat >/var/www/html/db.php <<'END'
<?php
mysqli_report(MYSQLI_REPORT_OFF);
$db = @new mysqli('{DB}', 'shop', '{PASSWORD}', 'shop');
if ($db->connect_errno) {{
    http_response_code(503);
    exit($db->connect_error);
}}
$db->query('SELECT SLEEP(0.2)');
echo $db->query('SELECT name FROM offers WHERE id = 7')->fetch_row()[0], "\\n";
END
systemctl start nginx php8.2-fpm
"""
_ROWS = "mariadb-dump --skip-dump-date --skip-comments --databases shop mysql | sha256sum"


@pytest.fixture(scope="module")
def ground(shared_lab: SharedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    shared_lab.renew()
    lab = shared_lab.directory
    transports = {name: SshTransport(build_ssh_host(lab, name)) for name in ("flweb", "flstore")}
    ground = Ground(lab, tmp_path_factory.mktemp("targets"), transports)
    for name, script in (("flstore", _DB), ("flweb", _WEB)):
        print(ground.sh(name, f"exec 2>&1\n{script}"))
    yield ground
    for transport in transports.values():
        transport.close()


@contextmanager
def opened(ground: Ground, path: Path) -> Iterator[Deployment]:
    """Afterwards hosts are as before bit by bit, and the database row by row."""
    before, rows = ground.pictures(), ground.sh("flstore", _ROWS)
    environment = prepare(read_target(path))
    fleet = environment.create_deployment(ground.directory / path.stem, News().note)
    fleet.lock_hosts()
    try:
        yield fleet
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()
    assert differing(before, ground.pictures()) == []
    assert ground.sh("flstore", _ROWS) == rows
    assert ground.sh("flstore", "systemctl is-active mariadb") == "active"


def test_it_is_changed_refused_starved_and_restored(ground: Ground) -> None:
    path = ground.directory / "shop.yaml"
    path.write_text(TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config)))
    with opened(ground, path) as fleet:
        baseline = fleet.deploy(settings(fleet))
        assert fetched(fleet.stack.entry, "/db.php") == RIGHT
        assert not [d for d in baseline.mismatches if d.parameter.startswith("db.")]

        changes = {
            "db__mariadb__innodb_buffer_pool_size": 48,
            "db__mariadb__innodb_log_file_size": 24,
            "db__mariadb__innodb_adaptive_hash_index": True,
            "db__mariadb__sort_buffer_size": 512,
            "db__mariadb__thread_handling": "pool-of-threads",
            "db__mariadb__max_connections": 200,
        }
        changed = settings(fleet, **changes)
        deployed = fleet.deploy(changed)
        assert acted(deployed.actions) == {"db.flstore.mariadb": Action.RESTART}
        assert not [d for d in deployed.mismatches if d.parameter.startswith("db.")]
        for name, value in changes.items():
            assert deployed.effective[name.replace("__", ".")] == value
        pool = ground.sh("flstore", "mariadb -BNe 'SELECT @@innodb_buffer_pool_size'")
        assert int(pool) == 48 * 2**20

        pid = ground.sh("flstore", "systemctl show -P MainPID mariadb")
        for name, value, why in (
            ("innodb_flush_method", "luck", "Error while setting value 'luck'"),
            ("thread_handling", "luck", "Error while setting value 'luck'"),
            ("join_buffer_size", 0, "option 'join_buffer_size': unsigned value 0 adjusted to 128"),
        ):
            with pytest.raises(DeployFailed, match=why):
                fleet.deploy({**changed, f"db.mariadb.{name}": value})
        assert ground.sh("flstore", "systemctl show -P MainPID mariadb") == pid

        # The rules would not let 30 processes share 10 connections.
        starved = {**changed, "db.mariadb.max_connections": 10, "db.mariadb.thread_cache_size": 10}
        fleet.deploy(starved)
        # Twice what ten connections of 0.2 s carry.
        request = Request(fleet.stack.entry, "/db.php", RIGHT[1])
        bottleneck = diagnosed(
            ground,
            fleet,
            LOAD_GENERATORS["httperf"],
            request,
            Slo(limit=0.5),
            100.0,
            "db",
            Resource.CONNECTIONS,
        )
        assert bottleneck.service == "mariadb"
        assert "its limit is 10 clients" in bottleneck.evidence
        assert "raise max_connections" in bottleneck.evidence


def test_debian_s_own_files_are_adopted_and_given_back(ground: Ground) -> None:
    out = ground.directory / "own.yaml"
    written = adopt_hosts([DB, WEB], out, derive_names(ground.lab).ssh_config, "/db.php")
    assert "db: mariadb on flstore, port 3306" in written.tier_summaries
    text = out.read_text()
    assert PASSWORD not in text
    with opened(ground, out) as fleet:
        unchanged = fleet.deploy(fleet.space.build_candidate({}).settings)
        assert set(unchanged.actions.values()) == {Action.NONE}
        assert not [d for d in unchanged.mismatches if d.parameter.startswith("db.mariadb")]
        changed = fleet.space.build_candidate(
            {"db.mariadb.innodb_buffer_pool_size": 64, "db.mariadb.max_connections": 60}
        )
        deployed = fleet.deploy(changed.settings)
        assert acted(deployed.actions) == {"db.flstore.mariadb": Action.RESTART}
        assert deployed.effective["db.mariadb.innodb_buffer_pool_size"] == 64
        assert deployed.effective["db.mariadb.max_connections"] == 60
        assert not ground.sh("flstore", f"ls {OWN} 2>/dev/null")
