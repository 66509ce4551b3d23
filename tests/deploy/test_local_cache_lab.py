"""The local cache's unit exists only while the cache is used, or its configuration is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.managed_hosts import restore_hosts
from autotune.runtimes.systemd import SERVICE_MANAGER
from tests.deploy.lab import Ground, News, differing, renewed, settings
from tests.lab.shared import SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
HOST, UNIT = "flweb", "autotune-local-cache"
STATE = (
    f"systemctl is-active {UNIT}; systemctl is-enabled {UNIT} 2>/dev/null; "
    f"ls /etc/systemd/system | grep {UNIT}"
)
CACHED = ("app: reference", "app: reference, local_cache: true")


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


@pytest.mark.parametrize("last", [False, True])
def test_the_unit_comes_and_goes_with_the_cache(ground: Ground, last: bool) -> None:
    with ground.opened(CACHED) as fleet:
        assert ground.sh(HOST, STATE).split() == ["inactive"]
        for enabled in (True, False, True, last):
            fleet.deploy(settings(fleet, web__local_cache__enabled=enabled))
            shown = ["active", "disabled", f"{UNIT}.service"] if enabled else ["inactive"]
            assert ground.sh(HOST, STATE).split() == shown
    assert ground.sh(HOST, STATE).split() == ["inactive"]


def test_a_kept_cache_starts_at_boot_until_it_is_restored(ground: Ground) -> None:
    before, news = ground.pictures(), News()
    fleet = ground.fleet(ground.bed(CACHED), "kept", news)
    fleet.lock_hosts()
    try:
        fleet.deploy(settings(fleet, web__local_cache__enabled=True))
        fleet.keep_deployed()
    finally:
        fleet.restore()
    assert ground.sh(HOST, STATE).split() == ["active", "enabled", f"{UNIT}.service"]
    notes = restore_hosts(
        ground.directory / "kept", ground.transports, SERVICE_MANAGER, prefers_host_copies=False
    )
    assert not [note for note in notes if UNIT in str(note)]
    assert ground.sh(HOST, STATE).split() == ["inactive"]
    assert differing(before, ground.pictures()) == []
