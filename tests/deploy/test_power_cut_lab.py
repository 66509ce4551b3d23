"""The power of a lab host is cut at any step of a whole deployment, or of its restoring.

A host's `sync`, `mv`, `rm`, `rmdir` and `ln` tell what they are about to do, and wait. What its disk may
hold then is looked at for every step; for some of them the host is booted with it, and restored from its
own copy. ``AUTOTUNE_SEED`` chooses other states, ``AUTOTUNE_KILLS`` says how many hosts are booted.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.backup import HostBackup, decode_backup
from autotune.deploy.host_commands import BACKUP_FILE, STATE_DIRECTORY
from autotune.deploy.managed_hosts import restore_hosts
from autotune.errors import AutotuneError
from autotune.lab import machine
from autotune.lab.lifecycle import build_ssh_host, halt_host, start_lab
from autotune.lab.plan import derive_names
from autotune.runtimes.systemd import SERVICE_MANAGER
from autotune.transports.ssh import SshTransport
from tests import soak
from tests.deploy.lab import Ground, differing, settings
from tests.lab.pictures import picture
from tests.lab.shared import HOSTS
from tests.power_cut import Cut, Disk, Image, following

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(3000)]
HOST = "flweb"
BOOTS = 10
CHANGES = {"web__php_fpm__max_children": 9, "web__limits__nofile": 7000,
           "web__sysctl__net__ipv4__tcp_fin_timeout": 33}  # fmt: skip


class Followed:
    """The directories of a host in which a deployment writes, each with a disk of its own."""

    def __init__(self, ground: Ground, paths: list[str]) -> None:
        self.ground = ground
        ground.sh(HOST, f"mkdir -p {STATE_DIRECTORY} /run/cut; touch {STATE_DIRECTORY}/stays")
        self.tops = sorted({"/".join(path.split("/")[:3]) for path in paths} | {STATE_DIRECTORY})
        self.tops = [top for top in self.tops if self.below(top).is_dir()]
        self.disks = [Disk(self.below(top)) for top in self.tops]
        self.originals = self.now()

    @property
    def root(self) -> Path:
        pid = machine.find_init_pid(derive_names(self.ground.lab), HOST)
        return Path(f"/proc/{pid}/root")

    def below(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def now(self) -> Image:
        """What everybody sees on the host."""
        files = [path for top in self.tops for path in self.below(top).rglob("*")]
        return {f"/{path.relative_to(self.root)}": str(path.readlink()) if path.is_symlink()
                else path.read_bytes() for path in files
                if path.is_symlink() or path.is_file()}  # fmt: skip

    def following(self, what: str):  # type: ignore[no-untyped-def]
        place = self.below(f"/run/cut/{what}")
        place.mkdir()
        return following(self.disks, self.below("/usr/local/sbin"), place, self.root)

    def cuts(self) -> list[tuple[Cut, ...]]:
        """The same instant on every disk, for each step since the last call."""
        instants = list(zip(*(disk.cuts for disk in self.disks), strict=True))
        for disk in self.disks:
            disk.cuts = []
        return instants

    def images(self, instant: tuple[Cut, ...], chance: random.Random, more: int) -> Iterator[Image]:
        for images in zip(*(cut.images(chance, more) for cut in instant), strict=True):
            yield {f"{top}/{path}": node for top, image in zip(self.tops, images, strict=True)
                   for path, node in image.items()}  # fmt: skip

    def put(self, image: Image) -> None:
        """Make the disk of the host what is left of it."""
        now = self.now()
        for path in {*now, *image}:
            place, node = self.below(path), image.get(path)
            if node == now.get(path):
                continue
            if place.is_symlink() or node is None or isinstance(node, str):
                place.unlink(missing_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(node, str):
                place.symlink_to(node)
            elif node is not None:
                place.write_bytes(node)


def lost(image: Image, originals: Image, written: list[str]) -> list[str]:
    """Files that neither are as they were nor have their original in the host's own copy."""
    record = image.get(BACKUP_FILE)
    try:
        backup = HostBackup(HOST, "study") if record is None else decode_backup(
            bytes(record, "utf-8") if isinstance(record, str) else record, BACKUP_FILE)  # fmt: skip
    except AutotuneError as error:
        return [str(error)]
    return [path for path in written if image.get(path) != (original := originals.get(path))
            and (not (kept := backup.state.files.get(path))
                 or original not in (kept.content, kept.link_target))]  # fmt: skip


def pictured(ground: Ground) -> dict[str, list[str]]:
    """The host, without what autotune and this test have there."""
    lines = picture(derive_names(ground.lab), HOST)
    return {HOST: [line for line in lines if not line.startswith("var/lib/autotune")]}


def test_a_host_whose_power_is_cut_at_any_step_loses_nothing(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    before = pictured(ground)
    bed = ground.bed()
    fleet = ground.fleet(bed)
    written = list(fleet.build_desired_state(settings(fleet)).hosts[HOST].files)
    host = Followed(ground, written)
    with host.following("tuned"):
        fleet.lock_hosts()
        fleet.deploy(settings(fleet))
        fleet.deploy(settings(fleet, **CHANGES))
    instants = host.cuts()
    with host.following("restored"):
        fleet.restore()
    instants += host.cuts()
    for disk in host.disks:
        disk.close()
    assert {cut.step.split()[0] for cut, *_ in instants} >= {"sync", "mv", "rm"}
    chance, images = random.Random(soak.SEED), 0
    for instant in instants:
        for image in host.images(instant, chance, 10):
            images += 1
            assert lost(image, host.originals, written) == [], instant[0].step
    booted = chance.sample(instants, min(len(instants), soak.kills(BOOTS)))
    for instant in booted:
        *_, image = host.images(instant, chance, 1)
        halt_host(ground.lab, HOST)
        start_lab(HOSTS, ground.lab)
        host.put(image)
        ended = f's/"pid": {os.getpid()},/"pid": {2**22 + 1},/'  # its tuner is gone, too
        ground.sh(
            HOST, f"[ ! -e {STATE_DIRECTORY}/lock ] || sed -i '{ended}' {STATE_DIRECTORY}/lock"
        )
        transport = SshTransport(build_ssh_host(ground.lab, HOST))
        restore_hosts(
            ground.directory / "lost", {HOST: transport}, SERVICE_MANAGER, prefers_host_copies=True
        )
        transport.run(["sh", "-c", f"rm -rf {STATE_DIRECTORY}"])
        transport.close()
        left = differing(before, pictured(ground))
        assert left == [], (instant[0].step, left)
    with capsys.disabled():
        print(f"\n{images} states of {HOST}'s disk after power cuts at {len(instants)} steps of one "
              f"deployment, {len(booted)} of them booted and restored: 0 violations")  # fmt: skip
