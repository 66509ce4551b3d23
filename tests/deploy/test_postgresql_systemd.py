"""PostgreSQL as Debian's own unit on a real host: its files edited, read back, starved and restored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.deploy.deploy_result import DeployFailed, DeployResult
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
from tests.deploy.lab import Ground, News, acted, differing, renewed, settings, shown
from tests.lab.shared import NETWORK, SharedLab

pytestmark = pytest.mark.lab
DB, PART = "flstore", "db.flstore.postgresql"
ROWS = 20_000
BY_SQL = "db.postgresql.effective_io_concurrency"  # ALTER SYSTEM counts more than any file
_CLUSTER = f"""
set -e
version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
rm -rf /etc/postgresql/*
pg_createcluster "$version" main -- --no-sync
cd "/etc/postgresql/$version/main"
cat >conf.d/shop.conf <<'END'
# The shop's own.
listen_addresses = '*'
work_mem = '8MB'   # sorts by price
random_page_cost = 2
END
echo 'host all all {NETWORK}.0/24 trust' >>pg_hba.conf
systemctl daemon-reload
systemctl start "postgresql@$version-main"
cd /
runuser -u postgres -- psql -q -v ON_ERROR_STOP=1 <<'END'
ALTER SYSTEM SET effective_io_concurrency = 7;
SELECT pg_reload_conf();
CREATE TABLE shop AS SELECT i, md5(i::text) AS name FROM generate_series(1, {ROWS}) AS i;
END
"""
_CHECKSUM = "SELECT count(*), md5(string_agg(shop::text, ',' ORDER BY i)) FROM shop"
_FILES = "cd / && sha256sum etc/postgresql/*/main/* etc/postgresql/*/main/conf.d/* 2>/dev/null"
TARGET = f"""\
name: shop
slo: {{p99: 500ms, errors: 0.1%}}
hosts:
  flweb: {{address: {NETWORK}.22}}
  {DB}: {{address: {NETWORK}.24}}
ssh: {{config: CONFIG}}
tiers:
  web: {{hosts: flweb, service: nginx, uses: [db]}}
  db: {{hosts: {DB}, service: postgresql}}
load: {{path: /, max_rate: 200/s}}
"""
# As many clients as are let in, and as many again that knock all through the reading: what a busy host
# says of the first of them may be said before its log is watched.
_CLIENTS = """
import json, subprocess, sys, time
spec = json.load(sys.stdin)
knocks = max(1, round(spec["rate"] * spec["seconds"]))
argv = ["psql", "-XAtqw", "-h", sys.argv[1], "-U", "postgres"]
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
every = [subprocess.Popen(argv, **pipes) for _ in range(int(sys.argv[2]))]
for _ in range(knocks):
    every.append(subprocess.Popen(argv, **pipes))
    time.sleep(1 / spec["rate"])
while sum(client.poll() is None for client in every) > int(sys.argv[2]):
    time.sleep(0.05)
for client in every:
    client.stdin.close()
failed = min(knocks, sum(client.wait() != 0 for client in every))
print(json.dumps({"requests": knocks, "errors": {"refused": failed}, "late": 0}))
"""


@pytest.fixture(scope="module")
def ground(shared_lab: SharedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path_factory.mktemp("targets")) as ground:
        ground.sh("flweb", "systemctl start nginx")
        print(ground.sh(DB, f"exec 2>&1\n{_CLUSTER}"))
        yield ground


def sql(ground: Ground, statement: str) -> str:
    return ground.sh(DB, 'cd / && runuser -u postgres -- psql -XAtc "$1"', statement)


def overridden(deployed: DeployResult) -> set[str]:
    return {difference.parameter for difference in deployed.mismatches}


@contextmanager
def opened(ground: Ground, text: str, study: str) -> Iterator[tuple[StackEnvironment, Deployment]]:
    """A fleet; afterwards files, rows and settings are as before, and so is all else on the hosts."""
    path = ground.directory / f"{study}.yaml"
    path.write_text(text.replace("CONFIG", str(derive_names(ground.lab).ssh_config)))
    asked = "SELECT name, setting, sourcefile FROM pg_settings ORDER BY 1"
    before = (ground.sh(DB, _FILES), sql(ground, _CHECKSUM), sql(ground, asked))
    assert before[1].startswith(f"{ROWS}|")
    pictures = ground.pictures()
    environment = prepare(read_target(path))
    fleet = environment.create_deployment(ground.directory / study, News().note)
    fleet.lock_hosts()
    try:
        yield environment, fleet
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()
    assert (ground.sh(DB, _FILES), sql(ground, _CHECKSUM), sql(ground, asked)) == before
    left = [line for line in differing(pictures, ground.pictures())
            if f"{DB}: var/lib/postgresql/" not in line or "auto.conf" in line]  # fmt: skip
    assert left == []


def test_its_own_files_are_edited_starved_and_put_back(ground: Ground) -> None:
    with opened(ground, TARGET, "own") as (environment, fleet):
        left = fleet.space.build_candidate({}).settings
        assert (left["db.postgresql.work_mem"], left["db.postgresql.shared_buffers"]) == (8192, 128)
        assert "effective_io_concurrency not tuned (postgresql.auto.conf overrides it" in "\n".join(
            environment.excluded
        )
        unchanged = fleet.deploy(left)
        assert set(unchanged.actions.values()) == {Action.NONE}
        assert overridden(unchanged) == {BY_SQL}
        pid = ground.sh(DB, "head -n 1 /run/postgresql/*-main.pid")

        reloaded = fleet.deploy(
            settings(fleet, db__postgresql__work_mem=3000, db__postgresql__checkpoint_timeout=600)
        )
        assert acted(reloaded.actions) == {PART: Action.RELOAD}
        assert overridden(reloaded) == {BY_SQL}
        assert reloaded.effective["db.postgresql.work_mem"] == 3000
        assert ground.sh(DB, "head -n 1 /run/postgresql/*-main.pid") == pid
        assert ground.sh(DB, "cat /etc/postgresql/*/main/conf.d/shop.conf").splitlines()[2:3] == [
            "work_mem = 3000kB   # sorts by price"
        ]

        with pytest.raises(DeployFailed, match="invalid value for parameter"):
            fleet.deploy(settings(fleet) | {"db.postgresql.wal_compression": "hard"})
        assert sql(ground, "SHOW work_mem") == "3000kB"

        few = settings(fleet, db__postgresql__max_connections=20, db__postgresql__wal_buffers=16)
        restarted = fleet.deploy(few)
        assert acted(restarted.actions) == {PART: Action.RESTART}
        assert overridden(restarted) == {BY_SQL}
        assert restarted.effective["db.postgresql.max_connections"] == 20
        assert sql(ground, _CHECKSUM).startswith(f"{ROWS}|")
        starved(ground, environment, fleet)


def starved(ground: Ground, environment: StackEnvironment, fleet: Deployment) -> None:
    """Twenty clients that are let in and stay, and twenty more that are not."""
    script = ground.directory / "clients.py"
    script.write_text(_CLIENTS)
    hosts = build_watched_hosts(
        fleet.stack, dict.fromkeys(ground.transports, 2.0), ground.transports
    )
    meter = LoadMeter(
        CustomGenerator((sys.executable, str(script), f"{NETWORK}.24", "20")),
        Request(fleet.stack.entry, "/", b""), Slo(limit=2.0), (LocalTransport(),), fleet.stack, hosts,
        timeout=60.0, max_rate=20_000.0, read_deployed_settings=lambda: fleet.deployed_settings,
    )  # fmt: skip
    bottleneck = shown(
        lambda: meter.find_bottleneck(fleet.deployed_settings, [meter.take_reading(4.0, 5.0)]),
        "db",
        Resource.CONNECTIONS,
    )
    assert bottleneck.service == "postgresql"
    assert "its limit is 20 clients (it refused " in bottleneck.evidence
    assert "): raise max_connections" in bottleneck.evidence


def test_a_file_of_its_own_comes_and_goes(ground: Ground) -> None:
    with opened(ground, TARGET.replace("postgresql}", "postgresql, replace: true}"), "file") as (
        _,
        fleet,
    ):
        deployed = fleet.deploy(settings(fleet, db__postgresql__shared_buffers=64))
        assert overridden(deployed) == {BY_SQL}
        assert deployed.effective["db.postgresql.shared_buffers"] == 64
        assert sql(ground, "SHOW shared_buffers") == "64MB"
        with pytest.raises(DeployFailed, match="invalid value for parameter"):
            fleet.deploy(settings(fleet) | {"db.postgresql.wal_compression": "hard"})
