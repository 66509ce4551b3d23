"""What is said of commands that take long."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from autotune.deploy.host_commands import Command, _name_command
from autotune.loads.load_commands import LoadCommand, run_together
from autotune.transports import wait_notices
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport
from autotune.transports.wait_notices import Watcher, name_command


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def watcher(clock: Time, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """A watcher whose thread never wakes up: the test looks."""
    watcher = Watcher(clock)
    monkeypatch.setattr(watcher, "_run_watch", lambda: None)
    return watcher


def test_a_late_command_is_named_with_its_host_and_its_limit(watcher: Watcher, clock: Time) -> None:
    said: list[str] = []
    with (
        watcher.listen(said.append),
        watcher.watch_command("web1", ("systemctl", "restart"), 150.0),
    ):
        for clock.now in (0.0, 7.9):
            watcher.notify_due()
        assert said == []
        for clock.now in (8.0, 9.0, 29.9, 30.0, 89.0, 90.0):
            watcher.notify_due()
        clock.now = 95.0
    assert said == [
        "waiting for web1: systemctl (8 s so far, 150 s at most)",
        "waiting for web1: systemctl (30 s so far, 150 s at most)",
        "waiting for web1: systemctl (90 s so far, 150 s at most)",
        "web1: systemctl took 95 s",
    ]


def test_a_command_that_is_known_to_take_long_has_its_time(watcher: Watcher, clock: Time) -> None:
    said: list[str] = []
    with watcher.listen(said.append):
        with watcher.describe("the load", usual=30.0), watcher.watch_command("load1", ("x",), 60.0):
            for clock.now in (8.0, 37.9):
                watcher.notify_due()
            assert said == []
            clock.now = 38.0
            watcher.notify_due()
        clock.now = 100.0
        with watcher.watch_command("load1", ("/usr/bin/x",), 60.0):
            clock.now = 108.0
            watcher.notify_due()
    assert said[0] == "waiting for load1: the load (38 s so far, 60 s at most)"
    assert said[2] == "waiting for load1: x (8 s so far, 60 s at most)"


def test_only_the_latest_listener_is_told(watcher: Watcher, clock: Time) -> None:
    first, second = list[str](), list[str]()

    def failing(line: str) -> None:
        second.append(line)
        raise BrokenPipeError

    with watcher.listen(first.append), watcher.watch_command("web1", ("a",), 10.0):
        with watcher.listen(failing):
            clock.now = 8.0
            watcher.notify_due()
        clock.now = 30.0
        watcher.notify_due()
    assert len(second) == 1
    assert len(first) == 2


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("systemctl", "restart", "x"), "systemctl"),
        (("/usr/bin/env", "LC_ALL=C", "timeout", "--signal=KILL", "9.0", "nginx", "-t"), "nginx"),
        (("sh", "-c", "exec \"$@\"", "sh", "/opt/k6"), "k6"),
        (("sudo", "-n", "--", "sh"), "sh"),
        (("sh", "-c", "true"), "sh"),
        ((), "a command"),
    ],
)  # fmt: skip
def test_a_command_has_the_name_of_its_program(argv: Sequence[str], name: str) -> None:
    assert name_command(argv) == name


@pytest.mark.parametrize(
    ("commands", "name"),
    [
        ([("fence",), ("stop", "a.service"), ("swap", "/x"), ("restart", "b.service"), ("up", "b")],
         "stop a.service, restart b.service"),
        ([("look", "/etc/x")], "reading the state of files and units"),
        ([("stage", "/etc/x"), ("nginx", "-t")], "writing and checking new files"),
        ([("cat", "/x")], "running commands"),
    ],
)  # fmt: skip
def test_an_exchange_is_named_after_what_it_does(
    commands: list[tuple[str, ...]], name: str
) -> None:
    assert _name_command(map(Command, commands)) == name


def test_a_real_command_that_hangs_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread, while the command runs: it ends only once it has been named."""
    watcher, named = Watcher(unnoticed=0.05), threading.Event()
    monkeypatch.setattr(wait_notices, "command", watcher.watch_command)
    monkeypatch.setattr(wait_notices, "about", watcher.describe)
    said: list[str] = []

    def listen(line: str) -> None:
        said.append(line)
        named.set()

    class Hanging(LocalTransport):
        def run(self, argv: Sequence[str], **more: object) -> CommandResult:
            with wait_notices.command(self.name, argv, 60.0):
                assert named.wait(60.0)
            return CommandResult(tuple(argv), 0, "", "")

    with watcher.listen(listen):
        (done,) = run_together([LoadCommand(Hanging("load1"), ("k6",), 1, 0, 0, 60)], 10.0)
    assert done.ok
    assert said[0].startswith("waiting for load1: the load (0 s so far, 60 s at most)")
    with watcher.listen(said.append):
        assert LocalTransport("here").run(("sh", "-c", "exit 3")).returncode == 3
