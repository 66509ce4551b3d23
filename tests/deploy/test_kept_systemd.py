"""A configuration that is kept is there after a reboot, and `restore` takes all of it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.backup import SYSCTL_FILE
from autotune.deploy.managed_hosts import restore_hosts
from autotune.lab.lifecycle import halt_host, start_lab
from autotune.runtimes.systemd import SERVICE_MANAGER
from tests.deploy.lab import Ground, News, differing, renewed, settings
from tests.lab.shared import HOSTS, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
HOST = "fllb"
STATE = """
sysctl -n net.ipv4.tcp_fin_timeout
systemctl is-active nginx; systemctl is-enabled nginx
grep -hs fin_timeout /etc/sysctl.d/zz-autotune.conf
"""


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    """nginx neither runs nor starts at boot, as nobody has set it up."""
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


def kept(ground: Ground, study: str, **changed: int) -> list[str]:
    """What is told of a configuration that was deployed and stays."""
    news = News()
    fleet = ground.fleet(ground.bed(), study, news)
    fleet.lock_hosts()
    try:
        fleet.deploy(settings(fleet, **changed))
        fleet.keep_deployed()
    finally:
        fleet.restore()
    return news.notes


def rebooted(ground: Ground) -> None:
    halt_host(ground.lab, HOST)
    start_lab(HOSTS, ground.lab)
    ground.transports[HOST].close()
    assert ground.sh(HOST, "systemctl is-system-running --wait") in ("running", "degraded")


def test_kernel_values_and_units_outlive_a_reboot(ground: Ground) -> None:
    before = ground.pictures()
    stock = ground.sh(HOST, STATE).splitlines()
    assert stock[1:] == ["inactive", "disabled"]
    (line, *_) = [note for note in kept(
        ground, "first", lb__sysctl__net__ipv4__tcp_fin_timeout=31
    ) if f"settings on {HOST} that survive" in note]  # fmt: skip
    assert SYSCTL_FILE in line
    assert "nginx.service enabled" in line
    rebooted(ground)
    lasting = ["31", "active", "enabled", "net.ipv4.tcp_fin_timeout = 31"]
    assert ground.sh(HOST, STATE).splitlines() == lasting
    restore_hosts(
        ground.directory / "first", ground.transports, SERVICE_MANAGER, prefers_host_copies=False
    )
    assert ground.sh(HOST, STATE).splitlines() == stock
    rebooted(ground)
    assert ground.sh(HOST, STATE).splitlines() == stock
    assert differing(before, ground.pictures()) == []


def test_what_a_second_one_leaves_out_is_as_it_was_before_both(ground: Ground) -> None:
    before = ground.pictures()
    kept(ground, "first", lb__sysctl__net__ipv4__tcp_fin_timeout=31)
    kept(ground, "second", lb__sysctl__net__core__somaxconn=1999)
    file = ground.sh(HOST, "cat /etc/sysctl.d/zz-autotune.conf")
    assert "somaxconn = 1999" in file
    restore_hosts(
        ground.directory / "lost", ground.transports, SERVICE_MANAGER, prefers_host_copies=True
    )
    assert differing(before, ground.pictures()) == []
