"""A study with a load host of its own, killed: `autotune restore` leaves that host as it was, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.host_commands import Command, ask
from autotune.deploy.host_lock import look
from autotune.environments.base import prepare
from autotune.environments.evaluation import History
from autotune.environments.stack import StackEnvironment
from autotune.errors import LockedError
from autotune.lab import prerequisites
from autotune.lab.lifecycle import access, down, up
from autotune.lab.plan import LabHost, names
from autotune.target.read import read
from autotune.transports.ssh import SshTransport

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
    pytest.mark.skipif(bool(prerequisites.missing_packages()), reason="a lab needs its packages"),
    pytest.mark.timeout(600),
]
HOSTS = [LabHost("khload", "198.19.25.21"), LabHost("khlb", "198.19.25.22")]
TARGET = """\
name: loaded
slo: {p99: 50ms, errors: 0.1%}
hosts: {khload: {address: 198.19.25.21}, khlb: {address: 198.19.25.22}}
ssh: {config: CONFIG}
replace: true
tiers: {lb: {hosts: khlb, service: nginx}}
load: {generator: httperf, hosts: khload, path: /}
budget: {trials: 5, time: 5m}
"""
STATE = """\
sysctl net.ipv4.ip_local_port_range net.ipv4.tcp_tw_reuse net.core.somaxconn
find /etc/nginx /etc/systemd/system -type f -exec sha256sum {} + | sort
systemctl is-active nginx
ls /var/lib/autotune 2>&1
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "lab"
    try:
        up(HOSTS, directory)
        yield directory
    finally:
        down(directory)


def state(lab: Path) -> dict[str, str]:
    """What a study may change on each host."""
    said = {}
    for host in HOSTS:
        transport = SshTransport(access(lab, host.name))
        said[host.name] = transport.run(["sh", "-c", STATE]).stdout
        transport.close()
    return said


def killed(target: Path) -> Path:
    """A study whose tuner is killed as soon as both hosts are changed."""
    study = target.parent / "studies" / "loaded"
    tuner = autotune("run", target, "--yes")
    deadline = time.monotonic() + 200
    while len(list((study / "originals").glob("*.json"))) < len(HOSTS):
        assert tuner.poll() is None, tuner.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tuner.kill()
    tuner.communicate()
    return study


def autotune(command: str, target: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "autotune", command, str(target), *options],
        cwd=target.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_load_host_that_was_taken_over_ends_the_trial(lab: Path, tmp_path: Path) -> None:
    target = tmp_path / "loaded.yaml"
    target.write_text(TARGET.replace("CONFIG", str(names(lab).ssh_config)))
    environment = prepare(read(target))
    assert isinstance(environment, StackEnvironment)
    before = state(lab)
    with environment.session(tmp_path / "study", print, History()) as session:
        session.fleet.check_load_hosts()
        host = environment.transports["khload"]
        record = look(host).record
        ask(host, [Command(("claim", record, '{"pid": 1}'))])
        with pytest.raises(LockedError, match=r"khload.*no longer ours"):
            session.fleet.verify()
        ask(host, [Command(("claim", '{"pid": 1}', record))])
    assert state(lab) == before


def test_the_load_host_is_left_as_it_was(lab: Path, tmp_path: Path) -> None:
    target = tmp_path / "loaded.yaml"
    target.write_text(TARGET.replace("CONFIG", str(names(lab).ssh_config)))
    before = state(lab)
    for lost in (False, True):  # the study's directory, and with it the controller's copies
        study = killed(target)
        changed = state(lab)
        assert all(changed[host.name] != before[host.name] for host in HOSTS)
        if lost:
            shutil.rmtree(study)
        restored = autotune("restore", target)
        said = restored.communicate(timeout=120)[0]
        assert restored.returncode == 0, said
        assert "khload: restored" in said
        assert state(lab) == before
        if not lost:
            study.rename(study.with_name("restored"))
