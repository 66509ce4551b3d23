"""The host's power is cut at any step of a deployment or of a restoring: nothing is lost.

The host is this machine with the real script. Its `sync`, `mv`, `rm`, `rmdir` and `ln` tell what they
are about to do, and wait; ``AUTOTUNE_SEED`` chooses other states that a disk may be left in.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.deploy.backup import BackupStore, HostBackup, decode_backup
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import BACKUP_FILE
from autotune.deploy.host_state import FileState, HostState
from autotune.deploy.managed_hosts import restore_hosts
from autotune.errors import AutotuneError
from autotune.runtimes.systemd import SERVICE_MANAGER
from tests import soak
from tests.deploy.doubles import Here, restore_host
from tests.power_cut import Cut, Disk, Image, following, restored_from

FILES = {"etc/conf": b"original\n", "etc/more": b"more\n"}
NEW = "etc/server.d/drop-in"
MINE = b"repaired by hand\n"


class Followed(Here):
    """A host below ``place``, whose disk is followed while ``following``."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.name = "here"


@contextmanager
def shown(disk: Disk, shims: Path) -> Iterator[None]:
    """What programs change that are run from here meanwhile is followed."""
    shims.mkdir()
    with pytest.MonkeyPatch.context() as patch, following([disk], shims, shims):
        patch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
        yield


def managed(place: Path, controller: Path) -> ManagedHost:
    store = BackupStore(controller / "study")
    return ManagedHost("here", Followed(place), store, "study", SERVICE_MANAGER)


def deploy(host: ManagedHost, place: Path, content: bytes) -> None:
    files = {str(place / name): FileState(content) for name in (*FILES, NEW)}
    desired = HostState(files)
    host.back_up(desired)
    plan = plan_host(desired, host.observe(desired), {})
    host.stage(desired, plan)
    host.apply(desired, plan)


def one_study(place: Path, controller: Path) -> dict[str, list[Cut]]:
    """The cuts while it is tuned, and while it is restored: in between somebody repairs a file."""
    (place / "etc").mkdir(parents=True)
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    disk = Disk(place)
    cuts = {}
    host = managed(place, controller)
    with shown(disk, controller / "tuned"):
        host.lock.lock()
        for content in (b"tuned\n", b"better\n"):
            deploy(host, place, content)
    cuts["tuned"], disk.cuts = disk.cuts, []
    (place / "etc/conf").write_bytes(MINE)
    disk.synced(place / "etc/conf")
    with shown(disk, controller / "restored"):
        restore_host(host)
        host.lock.unlock()
    cuts["restored"] = disk.cuts
    disk.close()
    return cuts


def wrong(image: Image, place: Path, *, repaired: bool) -> list[str]:
    """Files of the host that nothing could bring back, going by its own copy; a repair that is lost."""
    record = image.get("autotune/originals.json")
    try:
        backup = HostBackup("here", "study") if record is None else decode_backup(bytes(record, "utf-8")
            if isinstance(record, str) else record, BACKUP_FILE)  # fmt: skip
    except AutotuneError as error:
        return [str(error)]
    lost = []
    for name in (*FILES, NEW):
        original, kept = FILES.get(name), backup.state.files.get(str(place / name))
        if image.get(name) != original and (kept is None or kept.content != original):
            lost.append(f"{name} is {image.get(name)!r} and nothing has its original")
    if repaired and MINE not in image.values():
        lost.append("what was repaired by hand is lost")
    return lost


@pytest.mark.long
def test_a_power_cut_at_any_step_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, controller = tmp_path / "host", tmp_path / "controller"
    place.mkdir()
    controller.mkdir()
    cuts, chance, images = one_study(place, controller), random.Random(soak.SEED), 0
    assert {cut.step.split()[0] for cut in cuts["tuned"]} >= {"sync", "mv", "rm"}
    for during, of_phase in cuts.items():
        for number, cut in enumerate(of_phase):
            for image in cut.images(chance, 20):
                images += 1
                lost = wrong(image, place, repaired=during == "restored")
                assert not lost, (during, number, cut.step, lost)
    with capsys.disabled():
        steps = sum(map(len, cuts.values()))
        print(f"\n{images} states of a host's disk after power cuts at {steps} steps: 0 violations")


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_host_is_restored_after_a_power_cut_at_any_step(tmp_path: Path) -> None:
    place, controller = tmp_path / "host", tmp_path / "controller"
    place.mkdir()
    controller.mkdir()
    cuts, chance = one_study(place, controller), random.Random(soak.SEED)
    for during, of_phase in cuts.items():
        for cut in of_phase:
            for image in cut.images(chance, 2):
                shutil.rmtree(place)
                restored_from(image, place)
                lock = place / "autotune" / "lock"
                if lock.exists():  # its tuner has ended, too
                    lock.write_text(lock.read_text().replace(f'"pid": {os.getpid()}', '"pid": 0'))
                restore_hosts(
                    controller / "lost",
                    {"here": Followed(place)},
                    SERVICE_MANAGER,
                    prefers_host_copies=True,
                )
                now = {name: (place / name).read_bytes() for name in FILES}
                assert now == FILES, (during, cut.step)
                assert not (place / NEW).exists(), (during, cut.step)


@pytest.mark.parametrize(
    ("finish", "record"),
    [(restore_host, set[str]()), (ManagedHost.commit, {"kept.json"})],
    ids=["restored", "kept"],
)
def test_no_power_cut_brings_back_the_record_of_a_host_that_is_done(
    tmp_path: Path, finish: Callable[[ManagedHost], object], record: set[str]
) -> None:
    """The next study would otherwise revert what was kept, or what was changed since the restore."""
    place, controller = tmp_path / "host", tmp_path / "controller"
    (place / "etc").mkdir(parents=True)
    controller.mkdir()
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    disk, host = Disk(place), managed(place, controller)
    with shown(disk, controller / "done"):
        host.lock.lock()
        deploy(host, place, b"tuned\n")
        finish(host)
    images = [*disk.cuts[-1].images(random.Random(soak.SEED), 20)]
    disk.close()
    host.lock.unlock()
    for image in images:
        records = {path.partition("/")[2] for path in image if path.endswith(".json")}
        assert records == record
