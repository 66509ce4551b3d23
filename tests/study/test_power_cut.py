"""The controller's power is cut at any step of a study: no reading is lost, no trial counted twice.

The study is real and so are its files; the stack is a formula. ``AUTOTUNE_SEED`` chooses other states
that a disk may be left in.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from autotune.study import journal
from autotune.study.state_replay import replay_records
from tests import soak
from tests.power_cut import Cut, Disk, Image, restored_from
from tests.study import simulated
from tests.study.test_study_loop import _check_integrity

JOURNALS = ("events.jsonl", "readings.jsonl")
CHANGES = ("write", "replace", "unlink", "mkdir", "rmdir", "truncate", "ftruncate")


class Cutting(Disk):
    """Also knows at each step what the study has been told is on disk."""

    def __post_init__(self) -> None:
        self.promised: list[dict[str, bytes]] = []
        self._told: dict[str, bytes] = {}
        super().__post_init__()

    def step(self, what: str) -> None:
        super().step(what)
        self.promised.append(dict(self._told))

    def synced(self, path: Path) -> None:
        super().synced(path)
        if path.name in JOURNALS:
            self._told[path.name] = path.read_bytes()


@contextmanager
def following(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every change of a file by this process tells of itself before it happens."""

    def told(name: str) -> Callable[..., Any]:
        change = getattr(os, name)

        def tell(*words: Any, **more: Any) -> Any:
            disk.step(f"{name} {words[:1]}")
            return change(*words, **more)

        return tell

    def fsync(handle: int) -> None:
        disk.step("fsync")
        sync(handle)
        disk.synced(Path(f"/proc/self/fd/{handle}").readlink())

    sync = os.fsync
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        for name in CHANGES:
            patched.setattr(os, name, told(name))
        yield
    disk.step("the end")


def lost(image: Image, promised: dict[str, bytes]) -> list[str]:
    """What a study was told is on disk, and is not."""
    missing = []
    for name, content in promised.items():
        left = image.get(f"study/{name}", b"")
        if not (isinstance(left, bytes) and left.startswith(content)):
            missing.append(f"{name}: {len(content)} bytes were synced, {len(left)} are left")
    events = image.get("study/events.jsonl", b"")
    assert isinstance(events, bytes)
    whole = [json.loads(line) for line in events.splitlines(keepends=True) if line.endswith(b"\n")]
    replay_records(whole)
    for record in whole:
        if record["event"] == "study" and not image.get("study/target.yaml"):
            missing.append("target.yaml, whose study is on record")
        files = record["files"].items() if record["event"] == "deployed" else ()
        for path, digest in files:
            content = image.get(f"study/configs/{record['trial']}/{path}")
            if not isinstance(content, bytes) or sha256(content).hexdigest() != digest:
                missing.append(f"{path} of trial {record['trial']}, whose digest is on record")
    return missing


def whole_study(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Cutting:
    directory.mkdir()
    disk = Cutting(directory)
    with following(disk, monkeypatch):
        simulated.study(directory / "study")
    disk.close()
    return disk


def _images(cut: Cut, chance: random.Random) -> Iterator[Image]:
    yield from cut.images(chance, 2)


@pytest.mark.parametrize(
    "every",
    [
        pytest.param(9, marks=pytest.mark.long),
        pytest.param(1, marks=[pytest.mark.soak, pytest.mark.long]),
    ],
)
@pytest.mark.timeout(600)
def test_a_power_cut_at_any_step_loses_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    every: int,
) -> None:
    disk, chance, images = whole_study(tmp_path / "disk", monkeypatch), random.Random(soak.SEED), 0
    steps = list(zip(disk.cuts, disk.promised, strict=True))[soak.SEED % every :: every]
    for cut, promised in steps:
        for image in _images(cut, chance):
            images += 1
            missing = lost(image, promised)
            assert not missing, (cut.step, missing)
    with capsys.disabled():
        print(f"\n{images} states of a study after power cuts at {len(steps)} steps: "
              "0 violations")  # fmt: skip


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_study_is_resumed_after_power_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice over: what a cut has left is resumed, its power cut as well, and resumed to the end."""
    chance = random.Random(soak.SEED)
    disk = whole_study(tmp_path / "disk", monkeypatch)
    resumed = 0
    for number in range(soak.kills(20)):
        again = tmp_path / f"{number}"
        restored_from(_chosen(disk, chance), again)
        (again / "study").mkdir(parents=True, exist_ok=True)
        second = Cutting(again)
        with following(second, monkeypatch):
            simulated.study(again / "study", seed=number)
        second.close()
        _check_integrity(again / "study")
        last = tmp_path / f"{number}-again"
        at = chance.randrange(len(second.cuts))
        for image in _images(second.cuts[at], chance):
            assert not lost(image, second.promised[at])
        restored_from(image, last)
        (last / "study").mkdir(parents=True, exist_ok=True)
        readings = len(list(journal.read_records(last / "study" / "readings.jsonl")))
        simulated.study(last / "study", seed=number + 1000)
        _check_integrity(last / "study")
        assert len(list(journal.read_records(last / "study" / "readings.jsonl"))) >= readings
        resumed += 2
        shutil.rmtree(again)
        shutil.rmtree(last)
    with capsys.disabled():
        print(f"\n{resumed} studies resumed after power cuts: 0 violations")


def _chosen(disk: Cutting, chance: random.Random) -> Image:
    cut = chance.choice(disk.cuts)
    return chance.choice(list(_images(cut, chance)))
