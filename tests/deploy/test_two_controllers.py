"""Controllers of two machines on one host: never do both hold it, whatever pauses and clocks do.

The host is this machine with the real script, its uptime and boot those of a script: a pause is a step
of its uptime, longer than a lease or not. What a holder does there is on record with its token.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from autotune.deploy.host_commands import Command, ask
from autotune.deploy.host_lock import LEASE, HostLock
from autotune.errors import LockedError
from tests import soak
from tests.deploy.doubles import Here

ACTS = ("take", "take", "work", "work", "renew", "release", "pause", "crash", "boot")
WEIGHTS = (4, 4, 6, 6, 2, 1, 3, 1, 0.3)


class Stepped(Here):
    """Its clock stands still, but for steps."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.name, self._stepping = "host", threading.Lock()
        self.uptime, self.boots = 1000.0, 0
        self.step(0.0)

    def step(self, seconds: float, *, boot: bool = False) -> None:
        with self._stepping:
            self.boots += boot
            self.uptime = 5.0 if boot else self.uptime + seconds
            for name, text in (("uptime", f"{self.uptime:.2f} 1.0"), ("boot", f"b{self.boots}")):
                (self.place / f"{name}.new").write_text(f"{text}\n")
                (self.place / f"{name}.new").replace(self.place / name)

    def rewritten(self, script: bytes) -> bytes:
        script = script.replace(b"/proc/uptime", os.fsencode(self.place / "uptime"))
        boot = b"/proc/sys/kernel/random/boot_id"
        return super().rewritten(script.replace(boot, os.fsencode(self.place / "boot")))


class Controller(threading.Thread):
    """One of another machine; it does ``acts`` things by chance."""

    def __init__(self, host: Stepped, name: str, acts: int, seed: str) -> None:
        super().__init__()
        self.host, self.machine, self.acts = host, name, acts
        self.chance, self.counts = random.Random(seed), Counter[str]()
        self.lock = self._anew()
        self.failed: BaseException | None = None

    def _anew(self) -> HostLock:
        lock = HostLock(self.host, f"study of {self.machine}")
        lock._me = replace(lock._me, place=f"machine {self.machine}")
        return lock

    def run(self) -> None:
        try:
            for _ in range(self.acts):
                (act,) = self.chance.choices(ACTS, WEIGHTS)
                self._act(act)
        except BaseException as error:  # noqa: BLE001  # told by the test
            self.failed = error

    def _act(self, act: str) -> None:
        self.counts[act] += 1
        if act == "pause":
            self.host.step(self.chance.uniform(0.0, 1.6 * LEASE))
        elif act == "boot":
            self.host.step(0.0, boot=True)
        elif act == "crash":
            self.lock = self._anew()
        elif act == "take" and not self.lock.held:
            try:
                self.counts["taken over" if self.lock.take() else "taken"] += 1
            except LockedError:
                self.counts["refused"] += 1
        elif act != "take" and self.lock.held:
            self._as_holder(act)

    def _as_holder(self, act: str) -> None:
        try:
            if act == "work":
                token = self.lock.record.partition('"token": ')[2].strip('"}')
                log = Command(("sh", "-c", 'echo "$1" >>"$2"', "sh", token,
                               str(self.host.place / "log")), vital=True)  # fmt: skip
                done = ask(self.host, [self.lock.fence, log], alone=True)
                self.counts["worked" if done[0].ok else "fenced off"] += 1
            elif act == "renew":
                self.lock.renew()
            elif act == "release":
                self.lock.release()
        except LockedError:
            self.counts["lost"] += 1
            self.lock = self._anew()


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, marks=pytest.mark.long),
        pytest.param(100, marks=[pytest.mark.soak, pytest.mark.long]),
    ],
)
@pytest.mark.timeout(3000)
def test_never_do_two_hold_a_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rounds: int
) -> None:
    counts, holdings = Counter[str](), 0
    for number in range(rounds):
        place = tmp_path / str(number)
        place.mkdir()
        host = Stepped(place)
        controllers = [Controller(host, name, 25, f"{soak.SEED}-{number}-{name}") for name in "ab"]
        for controller in controllers:
            controller.start()
        for controller in controllers:
            controller.join()
            assert controller.failed is None, (number, controller.failed)
            counts.update(controller.counts)
        log = (place / "log").read_text().splitlines() if (place / "log").exists() else []
        turns = [token for token, _ in groupby(log)]
        assert len(turns) == len(set(turns)), f"round {number}: {turns}"
        holdings += len(turns)
    if rounds > 50:  # fewer may all be alone by chance
        assert min(counts["taken over"], counts["refused"], counts["fenced off"]) > 0
    with capsys.disabled():
        print(f"\n{rounds} rounds, {holdings} holders that did something, {dict(counts)}: "
              "never two at once")  # fmt: skip
