"""Controllers of two machines on one host: never do both hold it, whatever pauses and clocks do.

The host is this machine or one of a lab, each with the real script, its uptime and boot those of the
test: a pause is a step of its uptime, longer than a lease or not. What a holder does there is on record
with its token.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.host_commands import STATE_DIRECTORY, Command, run_commands
from autotune.deploy.host_lock import LEASE_SECONDS, HostLock
from autotune.errors import LockedError
from autotune.lab.lifecycle import build_ssh_host
from autotune.transports.base import Argv, CommandResult, SshHost, Transport
from autotune.transports.local import LocalTransport
from autotune.transports.ssh import SshTransport
from tests import soak
from tests.deploy.doubles import Here
from tests.deploy.lab import renewed
from tests.lab.shared import HOSTS, SharedLab

ROUNDS = 100  # in a lab
ACTS = ("take", "take", "work", "work", "renew", "release", "pause", "crash", "boot")
WEIGHTS = (4, 4, 6, 6, 2, 1, 3, 1, 0.3)


class Clock:
    """Of a host, as files in ``place`` on it: it stands still, but for steps."""

    def __init__(self, host: Transport, place: str) -> None:
        self.place, self._host, self._stepping = place, host, threading.Lock()
        self.uptime, self.boots = 1000.0, 0
        self.step(0.0)

    def step(self, seconds: float, *, boot: bool = False) -> None:
        with self._stepping:
            self.boots += boot
            self.uptime = 5.0 if boot else self.uptime + seconds
            for name, text in (("uptime", f"{self.uptime:.2f} 1.0"), ("boot", f"b{self.boots}")):
                write = ("sh", "-c", 'echo "$2" >"$1.new" && mv "$1.new" "$1"', "sh")
                assert self._host.run([*write, f"{self.place}/{name}", text]).ok

    def rewritten(self, script: bytes) -> bytes:
        """What is sent, with the files of this clock instead of the kernel's."""
        script = script.replace(b"/proc/uptime", os.fsencode(f"{self.place}/uptime"))
        boot = b"/proc/sys/kernel/random/boot_id"
        return script.replace(boot, os.fsencode(f"{self.place}/boot"))


class Stepped(Here):
    """This machine, by a clock of the test."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.name, self.clock = "host", Clock(LocalTransport(), str(place))

    def rewritten(self, script: bytes) -> bytes:
        return super().rewritten(self.clock.rewritten(script))


class SteppedLab(SshTransport):
    """A connection to a lab host, by a clock of the test."""

    def __init__(self, where: SshHost, clock: Clock) -> None:
        super().__init__(where)
        self.clock = clock

    def run(self, argv: Argv, *, input: bytes | None = None, **more: Any) -> CommandResult:
        return super().run(argv, input=self.clock.rewritten(input or b""), **more)


class Controller(threading.Thread):
    """One of another machine; it does ``acts`` things by chance."""

    def __init__(self, host: Stepped | SteppedLab, name: str, acts: int, seed: str) -> None:
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
            self.host.clock.step(self.chance.uniform(0.0, 1.6 * LEASE_SECONDS))
        elif act == "boot":
            self.host.clock.step(0.0, boot=True)
        elif act == "crash":
            self.lock = self._anew()
        elif act == "take" and not self.lock.is_locked:
            try:
                self.counts["taken over" if self.lock.lock() else "taken"] += 1
            except LockedError:
                self.counts["refused"] += 1
        elif act != "take" and self.lock.is_locked:
            self._as_holder(act)

    def _as_holder(self, act: str) -> None:
        try:
            if act == "work":
                token = self.lock.record.partition('"token": ')[2].strip('"}')
                log = Command(("sh", "-c", 'echo "$1" >>"$2"', "sh", token,
                               f"{self.host.clock.place}/log"), required=True)  # fmt: skip
                done = run_commands(self.host, [self.lock.assert_command, log], exclusive=True)
                self.counts["worked" if done[0].ok else "fenced off"] += 1
            elif act == "renew":
                self.lock.renew()
            elif act == "release":
                self.lock.unlock()
        except LockedError:
            self.counts["lost"] += 1
            self.lock = self._anew()


def contended(hosts: Sequence[Stepped | SteppedLab], number: int, acts: int) -> Counter[str]:
    """One round of a controller on each of these connections to a host; none of their turns mix."""
    controllers = [
        Controller(host, name, acts, f"{soak.SEED}-{number}-{name}")
        for host, name in zip(hosts, "ab", strict=True)
    ]
    for controller in controllers:
        controller.start()
    counts = Counter[str]()
    for controller in controllers:
        controller.join()
        assert controller.failed is None, (number, controller.failed)
        counts.update(controller.counts)
    log = hosts[0].get(f"{hosts[0].clock.place}/log") or b""
    turns = [token for token, _ in groupby(log.splitlines())]
    assert len(turns) == len(set(turns)), f"round {number}: {turns}"
    counts["holders that did something"] += len(turns)
    return counts


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
    counts = Counter[str]()
    for number in range(rounds):
        place = tmp_path / str(number)
        place.mkdir()
        counts += contended([Stepped(place)] * 2, number, 25)
    if rounds > 50:  # fewer may all be alone by chance
        assert min(counts["taken over"], counts["refused"], counts["fenced off"]) > 0
    with capsys.disabled():
        print(f"\n{rounds} rounds, {dict(counts)}: never two at once")


@pytest.mark.soak
@pytest.mark.lab
@pytest.mark.timeout(3000)
def test_never_do_two_hold_a_lab_host(
    shared_lab: SharedLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with renewed(shared_lab, tmp_path) as ground:
        where = build_ssh_host(ground.lab, HOSTS[0].name)
        counts, beside = Counter[str](), SshTransport(where)
        for number in range(ROUNDS):
            place = f"/root/{number}"
            assert beside.run(["mkdir", place]).ok
            clock = Clock(beside, place)
            hosts = [SteppedLab(where, clock) for _ in "ab"]
            counts += contended(hosts, number, 25)
            for host in hosts:
                host.close()
            assert beside.run(["rm", "-rf", place, STATE_DIRECTORY]).ok
        beside.close()
    assert min(counts["taken over"], counts["refused"], counts["fenced off"]) > 0
    with capsys.disabled():
        print(f"\n{ROUNDS} rounds on a lab host, {dict(counts)}: never two at once")
