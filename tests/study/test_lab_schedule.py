"""Studies on the shipped topology, load host included, under a schedule of what befalls tuners.

Kills of tuners and of restorings, signals, hosts that reboot, connections that are cut for a while,
batches that arrive after their tuner's end, steps of the tuner's clock, packages that are upgraded or
removed, files that an operator edits, and other commands beside a tuner. Each round is drawn from
``AUTOTUNE_SEED`` and its number; ``AUTOTUNE_KILLS`` says how many tuners and restorings are killed in
all, and ``AUTOTUNE_ROUND`` which round is the first.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from autotune.errors import LOCKED_EXIT_CODE
from autotune.lab.lifecycle import build_ssh_host, halt_host, remove_lab, start_lab
from autotune.lab.plan import LabPlan, derive_names
from autotune.lab.target_labs import build_lab_hosts
from autotune.study import journal
from autotune.study.state_replay import replay_records
from autotune.target.read_target import read_target
from autotune.transports.ssh import SshTransport
from tests import soak
from tests.deploy.lab import differing
from tests.lab.pictures import picture

pytestmark = [pytest.mark.lab, pytest.mark.timeout(7200)]
T = TypeVar("T")
STEPPED = Path(__file__).with_name("stepped.py")
SHIPPED = (Path(__file__).parents[2] / "targets" / "lab.yaml").read_text()
CHANGES = (
    ("name: lab", "name: schedule"),
    ("198.18.0.", "198.19.30."),
    ("/var/lib/autotune/labs/lab/ssh_config", "CONFIG"),
    ("pairs: 100000", "pairs: 2000"),
    ("\ntiers:\n", "\nreplace: true\ntiers:\n"),
    ("{trials: 60, time: 40m}", "{trials: 6, time: 10m}"),
)
KILLS = 6
FIRST = int(os.environ.get("AUTOTUNE_ROUND", "0"))
LATEST, RESTORING = 10.0, 2.0  # s after a study, and a restoring, have begun
EDITED = {"lb1": "/etc/nginx/nginx.conf", "cache1": "/etc/memcached.conf",
          "store1": "/etc/redis/redis.conf", "web1": "/etc/nginx/nginx.conf"}  # fmt: skip
CONCURRENT = (("status", "schedule"), ("check", "TARGET"), ("run", "TARGET", "--yes"))
CLOCK_STEPS = (-86_400, -61, 61, 86_400)  # s; hosts share this machine's clock, the tuner need not
UNITS = {"lb1": "nginx", "web1": "php8.2-fpm", "cache1": "memcached", "store1": "redis-server"}
UPGRADES = (
    "unit gone",
    "kernel value gone",
    "record of a later version",
    "lock of a later version",
)
HOME = "/var/lib/autotune"
ASIDE = f"{HOME}/overwritten"
GONE = "net/core"  # below /proc/sys


@dataclass
class Round:
    """What befalls one study, drawn before it begins."""

    number: int

    def __post_init__(self) -> None:
        draw = random.Random(f"{soak.SEED}-{self.number}")

        def sometimes(probability: float, what: Sequence[T]) -> T | None:
            choice = draw.choice(what)
            return choice if draw.random() < probability else None

        self.delays = [draw.uniform(0.0, LATEST) for _ in range(draw.choice((1, 1, 2)))]
        self.by = draw.choice((*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT))
        self.restore_killed = sometimes(0.45, [draw.uniform(0.0, RESTORING)])
        self.edited = sometimes(0.25, sorted(EDITED))
        self.rebooted = sometimes(0.25, ("lb1", "web2", "store1", "load1"))
        self.cut = sometimes(0.3, ("lb1", "web1", "load1", "store1"))
        # A batch is on its way when its tuner is killed, and arrives so long after a restoring began.
        self.late = sometimes(0.5, [draw.uniform(0.0, 2.0)]) if self.cut else None
        self.by = signal.SIGKILL if self.late is not None else self.by
        self.cut_for = draw.uniform(0.1, 2.0)
        self.clock = sometimes(0.2, CLOCK_STEPS)
        self.upgraded = sometimes(0.25, UPGRADES)
        self.upgraded_host = draw.choice(sorted(UNITS))
        self.beside = sometimes(0.2, CONCURRENT)
        self.by_target = draw.random() < 0.5

    def __str__(self) -> str:
        drawn = {k: v for k, v in vars(self).items() if v is not None}
        return f"AUTOTUNE_SEED={soak.SEED} AUTOTUNE_ROUND={self.number}: {drawn}"


class Schedule:
    """A lab of the shipped topology, and the studies on it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.lab = directory, directory / "lab"
        self.target = directory / "schedule.yaml"
        text = SHIPPED
        for change in CHANGES:
            assert change[0] in text
            text = text.replace(*change)
        self.target.write_text(text.replace("CONFIG", str(derive_names(self.lab).ssh_config)))
        self.hosts = build_lab_hosts(read_target(self.target).target)
        self.plan: LabPlan = start_lab(self.hosts, self.lab)
        for host in self.hosts:
            self.sh(host.name, "systemctl is-system-running --wait")
        self.before = self.pictures()
        self.counts: Counter[str] = Counter()

    @property
    def study(self) -> Path:
        return self.directory / "studies" / "schedule"

    @property
    def killed(self) -> int:
        return self.counts["SIGKILL"] + self.counts["restorings killed"]

    def sh(self, host: str, script: str) -> str:
        transport = SshTransport(build_ssh_host(self.lab, host))
        try:
            return transport.run(["sh", "-c", script], timeout=120.0).stdout.strip()
        finally:
            transport.close()

    def pictures(self) -> dict[str, list[str]]:
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            hosts = [host.name for host in self.hosts]
            of_hosts = pool.map(lambda host: picture(derive_names(self.lab), host), hosts)
            return dict(zip(hosts, of_hosts, strict=True))

    def autotune(self, *words: str, stepped: bool = False) -> subprocess.Popen[str]:
        words = tuple(str(self.target) if word == "TARGET" else word for word in words)
        program = (str(STEPPED), str(self.clock)) if stepped else ("-m", "autotune")
        return subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=self.directory, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, drawn: Round) -> None:
        """One study: begun, struck, restored; nothing of it is lost and nothing left changed."""
        readings = b""
        for number, delay in enumerate(drawn.delays):
            tuner = self.begun(drawn, resumed=number > 0)
            self.befall(drawn, tuner, delay, last=number + 1 == len(drawn.delays))
            readings = self.recorded(readings)
        mine = self.edit(drawn)
        if drawn.rebooted and drawn.late is None:
            self.counts["reboots"] += 1
            halt_host(self.lab, drawn.rebooted)
            start_lab(self.hosts, self.lab)
        with self.upgraded(drawn):
            told = self.restored(drawn)
        self.recorded(readings)
        replay_records(journal.read_records(self.study / "events.jsonl"))
        self.check_edit(drawn, mine, told)
        assert differing(self.before, self.pictures()) == [], told
        shutil.rmtree(self.study.parent)

    def begun(self, drawn: Round, *, resumed: bool) -> subprocess.Popen[str]:
        known = (self.study / "events.jsonl").stat().st_size if resumed else 0
        words = ("resume", "schedule", "--yes") if resumed else ("run", "TARGET", "--yes")
        self.step_clock(0)
        tuner = self.autotune(*words, stepped=bool(drawn.clock))
        deadline = time.monotonic() + 240
        events = self.study / "events.jsonl"
        while not events.exists() or events.stat().st_size <= known:
            assert tuner.poll() is None, tuner.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return tuner

    @property
    def clock(self) -> Path:
        return self.directory / "clock"

    def step_clock(self, seconds: int) -> None:
        self.clock.with_suffix(".new").write_text(f"{seconds}")
        self.clock.with_suffix(".new").rename(self.clock)

    def befall(
        self, drawn: Round, tuner: subprocess.Popen[str], delay: float, *, last: bool
    ) -> None:
        ends = time.monotonic() + delay
        other = self.autotune(*drawn.beside) if drawn.beside else None
        if drawn.clock:
            self.counts["steps of the clock"] += 1
            time.sleep(delay / 2)
            self.step_clock(drawn.clock)
        if drawn.cut and drawn.late is None:
            self.cable(drawn.cut, "down")
            time.sleep(drawn.cut_for)
            self.cable(drawn.cut, "up")
        if other and drawn.beside:
            self.counts["commands beside a tuner"] += 1
            words = other.communicate(timeout=240)[0]
            right = (LOCKED_EXIT_CODE,) if drawn.beside[0] == "run" else (0,)
            assert drawn.cut or tuner.poll() is not None or other.returncode in right, words
        time.sleep(max(0.0, ends - time.monotonic()))
        if drawn.cut and drawn.late is not None and last:
            self.cable(drawn.cut, "down")
            time.sleep(drawn.cut_for)
        tuner.send_signal(drawn.by)
        self.counts[signal.Signals(drawn.by).name] += 1
        words = tuner.communicate(timeout=240)[0]
        assert "Traceback" not in words, words
        assert "this is a bug" not in words, words

    def cable(self, host: str, state: str) -> None:
        self.counts["connections cut"] += state == "down"
        number = [other.name for other in self.plan.hosts].index(host)
        subprocess.run(
            ["ip", "link", "set", self.plan.names.format_link_name(number), state], check=True
        )

    def recorded(self, before: bytes) -> bytes:
        """Whole readings on record; those there were are there still."""
        path = self.study / "readings.jsonl"
        content = path.read_bytes() if path.exists() else b""
        assert content.startswith(before)
        return content[: content.rfind(b"\n") + 1]

    # -- what others do to hosts before they are restored ---------------------------------------------

    def edit(self, drawn: Round) -> str:
        """What the operator adds to a file."""
        if drawn.edited is None or (drawn.edited == drawn.cut and drawn.late is not None):
            return ""
        self.counts["edits"] += 1
        line = f"# mine {drawn.number}"
        path = EDITED[drawn.edited]
        self.sh(drawn.edited, f"cp -a {path} /root/before; echo '{line}' >>{path}")
        return line

    def check_edit(self, drawn: Round, line: str, told: str) -> None:
        """It is where it was made, or kept aside and named."""
        if not line or drawn.edited is None:
            return
        path = EDITED[drawn.edited]
        places = self.sh(drawn.edited, f"grep -rlxF '{line}' {path} {ASIDE} 2>/dev/null")
        assert places, f"the edit of {path} is lost: {told}"
        assert path in places.split() or ASIDE in told, told
        # The way back from the edit itself is not autotune's: the operator's line goes again.
        if path in places.split():
            self.sh(drawn.edited, f"cp -a /root/before {path}")
            self.counts["edits left in place"] += 1
        self.sh(drawn.edited, f"rm -rf /root/before {ASIDE}; rmdir {HOME} 2>/dev/null")

    @contextmanager
    def upgraded(self, drawn: Round) -> Iterator[None]:
        """A package goes, or a later autotune has been there; afterwards the operator mends that."""
        host, unit = drawn.upgraded_host, UNITS[drawn.upgraded_host]
        if drawn.upgraded is None or drawn.late is not None:
            yield
            return
        self.counts[drawn.upgraded] += 1
        if drawn.upgraded == "unit gone":
            place = f"/lib/systemd/system/{unit}.service"
            self.sh(host, f"systemctl stop {unit}; mv {place} /root/; systemctl daemon-reload")
            yield
            active = any(f"Id={unit}.service " in line and " ActiveState=active" in line
                         for line in self.before[host])  # fmt: skip
            start = f"systemctl start {unit}" if active else ":"
            self.sh(host, f"mv /root/{unit}.service {place}; systemctl daemon-reload; {start}")
        elif drawn.upgraded == "kernel value gone":
            self.sh(host, f"mount -t tmpfs none /proc/sys/{GONE}")
            yield
            values = [line.split(" ", 2)[1:] for line in self.before[host]
                      if line.startswith(f"kernel {GONE.replace('/', '.')}.")]  # fmt: skip
            again = "; ".join(f"sysctl -q -w {name}='{value}'" for name, value in values)
            self.sh(host, f"umount /proc/sys/{GONE}; {again}")
        elif drawn.upgraded == "lock of a later version":
            self.sh(host, f"sed -i 's/^{{/{{\"later\": [1], /' {HOME}/lock")
            yield
        else:
            self.of_a_later_version(host, but={host, drawn.edited})
            yield

    def of_a_later_version(self, host: str, but: set[str | None]) -> None:
        """The study is lost and a host's own copy cannot be read: it is named, and stops no other."""
        copy = f"{HOME}/originals.json"
        there = self.sh(host, f'sed -i \'s/^ "schema": 1,/ "schema": 2,/\' {copy} && echo there')
        self.study.parent.rename(lost := self.directory / "lost")
        restoring = self.autotune("restore", "TARGET")
        told = restoring.communicate(timeout=240)[0]
        if there:
            assert restoring.returncode != 0, told
            assert f"{host}:{copy} was written by another version" in told, told
            others = {name: lines for name, lines in self.before.items() if name not in but}
            assert differing(others, self.pictures()) == [], told
            self.sh(host, f'sed -i \'s/^ "schema": 2,/ "schema": 1,/\' {copy}')
        lost.rename(self.study.parent)

    def restored(self, drawn: Round) -> str:
        what = "TARGET" if drawn.by_target else "schedule"
        arrival = threading.Timer(drawn.late or 0.0, self.cable, (drawn.cut, "up"))
        if drawn.late is not None:
            self.counts["late batches"] += self.on_their_way(drawn) > 0
            arrival.start()
        told = ""
        if drawn.restore_killed is not None:
            restoring = self.autotune("restore", what)
            try:
                restoring.wait(drawn.restore_killed)
            except subprocess.TimeoutExpired:
                self.counts["restorings killed"] += 1
                restoring.kill()
            told = restoring.communicate()[0]
        restoring = self.autotune("restore", what)
        told += restoring.communicate(timeout=240)[0]
        assert restoring.returncode == 0, told
        if drawn.late is not None:
            arrival.join()
            while self.on_their_way(drawn):
                time.sleep(0.02)
        return told

    def on_their_way(self, drawn: Round) -> int:
        """Connections of tuners that have ended, with something that has not arrived yet."""
        address = self.plan.find_host(str(drawn.cut)).address
        argv = ["ss", "-tnH", "state", "fin-wait-1", "dst", address]
        return len(subprocess.check_output(argv, text=True).splitlines())


@pytest.fixture
def schedule(tmp_path: Path) -> Iterator[Schedule]:
    try:
        yield Schedule(tmp_path)
    finally:
        remove_lab(tmp_path / "lab")


@pytest.mark.soak
def test_nothing_is_lost_or_left_changed(
    schedule: Schedule, capsys: pytest.CaptureFixture[str]
) -> None:
    number, kills = FIRST, soak.kills(KILLS)
    began = time.monotonic()
    while schedule.killed < kills:
        drawn = Round(number)
        try:
            schedule.run(drawn)
        except BaseException:
            print(drawn)
            raise
        schedule.counts["rounds"] += 1
        number += 1
        with capsys.disabled():
            seconds = (time.monotonic() - began) / schedule.counts["rounds"]
            print(f"\n{drawn}\n{seconds:.1f} s a round, {schedule.killed} kills: "
                  f"{dict(schedule.counts)}", end="", flush=True)  # fmt: skip
