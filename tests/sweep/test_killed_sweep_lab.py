"""A sweep of host counts whose files are edited, killed: `autotune resume` restores all its hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.lab.plan import derive_names
from autotune.study.directory import EVENTS_FILE
from autotune.sweep.plan import read_finished_measurements, read_plan
from tests.deploy.lab import Ground, autotune, renewed
from tests.lab.shared import NETWORK, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
WEB = ("fllb", "flweb")
TARGET = f"""\
name: counted
slo: {{p99: 50ms, errors: 0.1%}}
hosts: {{fllb: {{address: {NETWORK}.21}}, flweb: {{address: {NETWORK}.22}}}}
ssh: {{config: CONFIG}}
tiers: {{web: {{hosts: [fllb, flweb], service: nginx}}}}
load: {{generator: httperf, path: /, max_rate: 100/s}}
"""
SWEEP = (
    "sweep", "counted.yaml", "--over", "web.nginx.worker_connections=600,700",
    "--hosts", "web=1,2", "--rate", "20", "--repeat", "1", "--yes",
)  # fmt: skip


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        config = str(derive_names(ground.lab).ssh_config)
        (tmp_path / "counted.yaml").write_text(TARGET.replace("CONFIG", config))
        for host in WEB:
            ground.sh(host, "systemctl start nginx")
        yield ground


def count_measured(study: Path, web_hosts: int) -> int:
    """The finished measurements with this number of hosts."""
    if not (study / EVENTS_FILE).exists() or not read_finished_measurements(study):
        return 0
    points = read_plan(study).points
    finished = read_finished_measurements(study)
    return sum(points[one.point].hosts["web"] == web_hosts for one in finished)


def test_a_host_that_the_rest_of_a_sweep_does_not_use_is_restored(ground: Ground) -> None:
    before = ground.pictures()
    study = ground.directory / "studies" / "counted-sweep"
    tuner = autotune(*SWEEP, cwd=ground.directory)
    while count_measured(study, web_hosts=2) < 2:
        assert tuner.poll() is None, tuner.communicate()[0]
        time.sleep(0.005)
    tuner.kill()
    tuner.communicate()
    resumed = autotune("resume", "counted-sweep", "--yes", cwd=ground.directory)
    output = resumed.communicate(timeout=300)[0]
    assert resumed.returncode == 0, output
    assert len(read_finished_measurements(study)) == 4
    assert ground.pictures() == before
