"""Deployments and restores while the account that owns the file's directory replaces names in it.

The host is this machine with the real script. ``AUTOTUNE_SEED`` chooses other acts of the adversaries and
``AUTOTUNE_RACES`` how many deployments and restores there are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.backup import BackupStore
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_state import FileState, HostState
from autotune.deploy.runtime import ConfigurationCheck
from autotune.errors import AutotuneError
from autotune.lab.machine import find_init_pid
from autotune.lab.plan import derive_names
from autotune.transports.base import Transport
from tests import soak
from tests.deploy import adversary
from tests.deploy.doubles import Here, restore_host
from tests.deploy.lab import Ground

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ACCOUNT = 65534
SECRET = b"a secret that only root can read\n"
# What validates a file, by the name that the software knows it by.
READS = '[ "$(cat "$1")" = "$2" ] || { echo "validation reads $(cat "$1")"; exit 1; }'


def image(directory: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Every file below a directory: content, owner, mode and time."""
    return {str(path): (path.read_bytes(), (now := path.stat()).st_uid, now.st_mode, now.st_mtime_ns)
            for path in directory.rglob("*")}  # fmt: skip


def leaks(top: Path) -> list[str]:
    """Files that others can read and that hold the secret."""
    paths = []
    for directory, _, files in os.walk(top):
        for path in (Path(directory, name) for name in files):
            with suppress(OSError):
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with os.fdopen(handle, "rb") as file:
                    readable = (
                        os.fstat(handle).st_mode & 0o044 or os.fstat(handle).st_uid == ACCOUNT
                    )
                    if readable and file.read() == SECRET:
                        paths.append(str(path))
    return paths


@contextmanager
def adversaries(seeds: Sequence[int], inside: Sequence[str], *places: str) -> Iterator[None]:
    """Adversaries that know the places by these names; ``inside`` is what runs them on the host."""
    source = Path(adversary.__file__).read_text(encoding="utf-8")
    argv = [*inside, "/usr/bin/python3" if inside else sys.executable, "-c", source, str(ACCOUNT)]
    running = [
        subprocess.Popen([*argv, str(seed), *places], stdout=subprocess.PIPE) for seed in seeds
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield
        assert [process.poll() for process in running] == [None] * len(running)
    finally:
        for process in running:
            process.kill()
            process.communicate()


def laid_out(place: Path) -> tuple[Path, Path]:
    """The directories that the account owns, and one that only root can enter."""
    top, outside = place / "srv", place / "outside"
    (top / "app" / "config").mkdir(parents=True)
    (top / "app" / "roots").mkdir()
    (top / "app" / "roots" / ".of-root").touch()
    outside.mkdir(mode=0o700)
    conf = top / "app" / "config" / "puma.rb"
    conf.write_bytes(b"original\n")
    secrets = [outside / "secret", outside / "puma.rb", top / "app" / "of-root",
               top / "app" / "roots" / "puma.rb"]  # fmt: skip
    for secret in secrets:
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
    for path in (top / "app", conf.parent, conf):
        os.chown(path, ACCOUNT, ACCOUNT)
    return top, outside


def deploy(host: ManagedHost, conf: str, number: int) -> str:
    """How a deployment ended: it is good, or the reason why not."""
    content = f"tuned {number}"
    desired = HostState({conf: FileState(f"{content}\n".encode())})
    part: Any = SimpleNamespace(name="app", placement=SimpleNamespace(directory="/nowhere"))
    check = ConfigurationCheck(part, ("sh", "-c", READS, "sh", conf, content), {conf: b""}, (conf,))
    try:
        host.back_up(desired)
        plan = plan_host(desired, host.observe(desired), {})
        host.stage(desired, plan, [check])
        host.apply(desired, plan)
        now = host.observe(desired).files[conf]
    except AutotuneError as error:
        return str(error)
    return "good" if now.matches(desired.files[conf]) else "others changed it"


def restore(host: ManagedHost) -> str:
    try:
        restore_host(host)
    except AutotuneError as error:
        return str(error)
    return "restored"


def race(
    place: Path, study: Path, rounds: int, transport: Transport, root: str = "", *inside: str
) -> Counter[str]:
    """How deployments and restores ended, with the directories' names left out. ``place`` is a directory
    of the host, which has ``root`` as its root; ``inside`` are the words that run a program there."""
    top, outside = laid_out(place)
    before = image(outside)
    places = [str(path).removeprefix(root) for path in (top, outside)]
    conf = f"{places[0]}/app/config/puma.rb"
    ends: Counter[str] = Counter()
    with adversaries([soak.SEED, soak.SEED + 1], inside, *places):
        host = ManagedHost(transport.name, transport, BackupStore(study), "study")
        host.lock.lock()
        for number in range(rounds):
            end = restore(host) if number % 3 == 2 else deploy(host, conf, number)
            assert end, number
            assert "validation reads" not in end, end
            ends[end.replace(str(place).removeprefix(root), "")] += 1
            assert image(outside) == before, number
            assert not leaks(top), number
    host.notes.clear()
    host.lock.unlock()
    return ends


def shown(ends: Counter[str]) -> str:
    good, restored = ends.pop("good", 0), ends.pop("restored", 0)
    total = good + restored + ends.total()
    summary = (
        f"{total} deployments and restores: {good} good, {restored} restored, {ends.total()} refused "
        "or changed by others; 0 files changed outside, 0 leaks"
    )
    reasons = (f"{n:5} {end.splitlines()[0]}" for end, n in ends.most_common(12))
    return "\n".join([summary, *reasons])


@pytest.mark.parametrize(
    "rounds",
    [
        12,
        pytest.param(
            soak.races(2000), marks=[pytest.mark.soak, pytest.mark.long, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_no_race_changes_anything_outside(rounds: int, capsys: pytest.CaptureFixture[str]) -> None:
    # Other accounts can pass through this directory, unlike through pytest's own.
    with tempfile.TemporaryDirectory(prefix="autotune-race-") as name:
        place = Path(name) / "host"
        place.mkdir()
        Path(name).chmod(0o755)
        here = Here(place)
        here.name = "here"
        ends = race(place, Path(name) / "study", rounds, here)
    with capsys.disabled():
        print(f"\n{shown(ends)}")


@pytest.mark.lab
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_race_changes_anything_outside_on_a_lab_host(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    first = find_init_pid(derive_names(ground.lab), "flweb")
    root = f"/proc/{first}/root"
    place = Path(root, "srv", "race")
    place.mkdir()
    inside = ("nsenter", f"--target={first}", "--mount", "--root")
    study = ground.directory / "study"
    ends = race(place, study, soak.races(300), ground.transports["flweb"], root, *inside)
    with capsys.disabled():
        print(f"\non a lab host: {shown(ends)}")
