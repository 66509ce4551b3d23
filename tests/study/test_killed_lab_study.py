"""A study on lab hosts, killed at random moments: `autotune restore` leaves them as they were found."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.lab.hosts import LabHost
from autotune.lab.lifecycle import down, up
from autotune.lab.plan import names
from autotune.lab.status import access
from autotune.transports.ssh import SshTransport
from tests.deploy.lab import NETWORK, TARGET, Ground, differing, marks

pytestmark = marks
# AUTOTUNE_KILLS=30 is what the fleet was accepted with; each takes up to twenty seconds.
MOMENTS = int(os.environ.get("AUTOTUNE_KILLS", "3"))
LATEST = 15.0  # seconds after a study has begun: its first deployments, warm-up and readings
HOSTS = [LabHost(f"kl{name}", f"198.19.24.{21 + number}")
         for number, name in enumerate(("lb", "web", "cache", "store"))]  # fmt: skip


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    directory = tmp_path / "lab"
    try:
        up(HOSTS, directory)
        ways = {host.name: SshTransport(access(directory, host.name)) for host in HOSTS}
        yield Ground(directory, tmp_path, ways)
        for way in ways.values():
            way.close()
    finally:
        down(directory)


def autotune(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "autotune", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(1800)
def test_restore_after_kills_leaves_hosts_as_found(ground: Ground) -> None:
    target = target_of(ground)
    ground.sh("kllb", "systemctl start nginx")
    before = ground.pictures()
    moments = random.Random(4)
    for number in range(MOMENTS):
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
    """The stack of the fleet's tests on hosts of this test's own, with a small budget."""
    text = TARGET.replace(NETWORK, "198.19.24").replace("CONFIG", str(names(ground.lab).ssh_config))
    for host in ("lb", "web", "cache", "store"):
        text = text.replace(f"fl{host}", f"kl{host}")
    path = ground.directory / "target.yaml"
    path.write_text(f"{text}budget: {{trials: 5, time: 5m}}\n")
    return path
