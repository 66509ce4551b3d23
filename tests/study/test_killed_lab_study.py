"""A study on lab hosts, killed at random moments: `autotune restore` leaves them as they were found."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.study import journal
from autotune.transports.ssh import SshTransport
from tests import soak
from tests.deploy.lab import TARGET, Ground, autotune, differing
from tests.lab.shared import HOSTS, SharedLab

pytestmark = pytest.mark.lab
KILLS = 3  # AUTOTUNE_KILLS=30 is what the fleet was accepted with; each takes up to twenty seconds
LATEST = 15.0  # seconds after a study has begun: its first deployments, warm-up and readings


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    shared_lab.renew()
    lab = shared_lab.directory
    transports = {host.name: SshTransport(build_ssh_host(lab, host.name)) for host in HOSTS}
    yield Ground(lab, tmp_path, transports)
    for transport in transports.values():
        transport.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("file", "records", "by"),
    [("events.jsonl", 1, "target"), ("readings.jsonl", 1, "study")],
    ids=["it has begun", "it has a reading"],
)
def test_killed_when_on_record(ground: Ground, file: str, records: int, by: str) -> None:
    target = target_of(ground)
    ground.sh("fllb", "systemctl start nginx")
    before = ground.pictures()
    study = ground.directory / "studies" / "fleet"
    tuner = autotune("run", str(target), "--yes", cwd=ground.directory)
    while len(list(journal.read_records(study / file))) < records:
        assert tuner.poll() is None, tuner.communicate()[0]
        time.sleep(0.02)
    tuner.kill()
    tuner.communicate()
    restored = autotune(
        "restore", {"target": str(target), "study": "fleet"}[by], cwd=ground.directory
    )
    said = restored.communicate(timeout=300)[0]
    assert restored.returncode == 0, said
    assert differing(before, ground.pictures()) == [], said


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_restore_after_kills_leaves_hosts_as_found(ground: Ground) -> None:
    target = target_of(ground)
    ground.sh("fllb", "systemctl start nginx")
    before = ground.pictures()
    moments = soak.moments()
    for number in range(soak.kills(KILLS)):
        delay = moments.uniform(0.0, LATEST)
        study = ground.directory / "studies" / "fleet"
        tuner = autotune("run", str(target), "--yes", cwd=ground.directory)
        deadline = time.monotonic() + 120
        while not (study / "events.jsonl").exists():
            assert tuner.poll() is None, tuner.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(delay)  # chance decides how far it gets
        tuner.kill()
        tuner.communicate()
        words = ("restore", "fleet") if number % 2 else ("restore", str(target))
        restored = autotune(*words, cwd=ground.directory)
        said = restored.communicate(timeout=120)[0]
        assert restored.returncode == 0, said
        found = differing(before, ground.pictures())
        assert found == [], f"killed {delay:.3f} s after the study had begun\n{said}"
        if number % 3 == 2:
            # The controller's copy is lost with the study: the hosts' own must do next time.
            shutil.rmtree(study)
        else:
            study.rename(study.with_name(f"killed-{number}"))


def target_of(ground: Ground) -> Path:
    """The stack of the fleet's tests, with a small budget."""
    text = TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config))
    path = ground.directory / "target.yaml"
    path.write_text(f"{text}budget: {{trials: 5, time: 5m}}\n")
    return path
