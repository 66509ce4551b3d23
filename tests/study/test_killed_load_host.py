"""A study with a load host of its own, killed: `autotune restore` leaves that host as it was, too."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.host_lock import read_lock
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.preparation import prepare
from autotune.environments.stack import StackEnvironment
from autotune.errors import LockedError
from autotune.lab.plan import derive_names
from autotune.target.read_target import read_target
from tests.deploy.lab import Ground, autotune, renewed
from tests.lab.shared import NETWORK, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
LOAD, LB = "flstore", "fllb"
TARGET = f"""\
name: loaded
slo: {{p99: 50ms, errors: 0.1%}}
hosts: {{{LOAD}: {{address: {NETWORK}.24}}, {LB}: {{address: {NETWORK}.21}}}}
ssh: {{config: CONFIG}}
replace: true
tiers: {{lb: {{hosts: {LB}, service: nginx}}}}
load: {{generator: httperf, hosts: {LOAD}, path: /}}
budget: {{trials: 5, time: 5m}}
"""
STATE = """\
sysctl net.ipv4.ip_local_port_range net.ipv4.tcp_tw_reuse net.core.somaxconn
find /etc/nginx /etc/systemd/system -type f -exec sha256sum {} + | sort
systemctl is-active nginx
ls /var/lib/autotune 2>&1
"""


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        config = str(derive_names(ground.lab).ssh_config)
        (tmp_path / "loaded.yaml").write_text(TARGET.replace("CONFIG", config))
        yield ground


def state(ground: Ground) -> dict[str, str]:
    """What a study may change on each host."""
    return {host: ground.sh(host, STATE) for host in (LOAD, LB)}


def killed(ground: Ground) -> Path:
    """A study whose tuner is killed as soon as both hosts are changed."""
    study = ground.directory / "studies" / "loaded"
    tuner = autotune("run", "loaded.yaml", "--yes", cwd=ground.directory)
    while len(list((study / "originals").glob("*.json"))) < 2:
        assert tuner.poll() is None, tuner.communicate()[0]
        time.sleep(0.05)
    tuner.kill()
    tuner.communicate()
    return study


def test_a_load_host_that_was_taken_over_ends_the_trial(ground: Ground) -> None:
    environment = prepare(read_target(ground.directory / "loaded.yaml"))
    assert isinstance(environment, StackEnvironment)
    before = state(ground)
    with environment.open_session(
        ground.directory / "study", print, MeasurementHistory()
    ) as session:
        session.fleet.check_load_hosts()
        host = environment.transports[LOAD]
        record = read_lock(host).record
        run_commands(host, [Command(("claim", record, '{"pid": 1}'))])
        with pytest.raises(LockedError, match=rf"{LOAD}.*no longer holds"):
            session.fleet.verify()
        run_commands(host, [Command(("claim", '{"pid": 1}', record))])
    assert state(ground) == before


def test_the_load_host_is_left_as_it_was(ground: Ground) -> None:
    before = state(ground)
    for lost in (False, True):  # the study's directory, and with it the controller's copies
        study = killed(ground)
        changed = state(ground)
        assert all(changed[host] != before[host] for host in before)
        if lost:
            shutil.rmtree(study)
        restored = autotune("restore", "loaded.yaml", cwd=ground.directory)
        output = restored.communicate(timeout=300)[0]
        assert restored.returncode == 0, output
        assert f"{LOAD}: restored" in output
        assert state(ground) == before
        if not lost:
            study.rename(study.with_name("restored"))
