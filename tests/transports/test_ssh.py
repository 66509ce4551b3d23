"""Words stay words on their way through a real shell."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import threading
import time
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import AutotuneError
from autotune.transports import ssh
from autotune.transports.remote_shell import OutputMarks, build_shell_script
from autotune.transports.ssh import CommandExchange, to_returncode

PATIENT = 240.0  # seconds; no command of these tests takes this long, on however busy a machine
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NASTY = st.sampled_from(
    [
        "; rm -rf /",
        "$(id)",
        "`id`",
        "a b",
        "",
        "'",
        '"',
        "\\",
        "\n",
        "-n",
        "--",
        "*",
        "~",
        "&",
        "é",
        "!!",
    ]
)
# Prints its words apart by zero bytes, so that nothing a word holds can be mistaken for two.
ECHO = ["sh", "-c", 'for word; do printf "%s\\0" "$word"; done', "sh"]


def through_a_shell(line: str) -> bytes:
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, check=True, stdin=subprocess.DEVNULL
    ).stdout


@settings(max_examples=60)
@given(st.lists(WORDS | NASTY, max_size=5))
def test_every_word_arrives_as_it_is(words: list[str]) -> None:
    said = through_a_shell(build_shell_script([*ECHO, *words], timeout=PATIENT))
    assert said.decode().split("\0")[:-1] == words


@settings(max_examples=30)
@given(WORDS | NASTY)
def test_a_variable_arrives_as_it_is(value: str) -> None:
    argv = ["sh", "-c", 'printf %s "$SAMPLE"']
    assert (
        through_a_shell(build_shell_script(argv, timeout=PATIENT, env={"SAMPLE": value})).decode()
        == value
    )


def test_a_directory_with_a_bad_name_is_gone_to(tmp_path: Path) -> None:
    directory = tmp_path / "$(touch bad); x"
    directory.mkdir()
    said = through_a_shell(build_shell_script(["pwd"], timeout=PATIENT, cwd=str(directory)))
    assert said.decode().strip() == str(directory)
    assert list(tmp_path.glob("**/bad")) == []


@pytest.mark.parametrize("status", [0, 1, 3, 126, 200])
def test_the_status_of_the_command_is_that_of_the_line(status: int) -> None:
    line = build_shell_script(["sh", "-c", f"exit {status}"], timeout=PATIENT)
    done = subprocess.run(["sh", "-c", line], check=False)
    assert to_returncode(done.returncode) == status


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("KILL", 9), ("SEGV", 11)])
def test_a_command_ended_by_a_signal_says_which(name: str, number: int) -> None:
    line = build_shell_script(["sh", "-c", f"kill -{name} $$"], timeout=PATIENT)
    done = subprocess.run(["sh", "-c", line], check=False, stderr=subprocess.DEVNULL)
    assert to_returncode(done.returncode) == -number


def test_the_host_itself_ends_what_takes_too_long() -> None:
    line = build_shell_script(["sh", "-c", "sleep 100 & wait"], timeout=0.2)
    done = subprocess.run(["sh", "-c", line], check=False, stderr=subprocess.DEVNULL, timeout=50)
    assert to_returncode(done.returncode) == -9


def test_sudo_never_asks_and_gets_the_environment_behind_it() -> None:
    words = shlex.split(build_shell_script(["nginx", "-t"], timeout=5, sudo=True, env={"A": "b c"}))
    at = words.index("sudo")
    assert words[at : at + 7] == ["sudo", "-n", "--", "env", "A=b c", "nginx", "-t"]


@pytest.mark.parametrize(
    ("argv", "env"),
    [([], {}), (["a\0b"], {}), (["a"], {"A=B;": "c"}), (["a"], {"": "c"}), (["a"], {"B": "\0"})],
)
def test_what_is_no_command_is_refused(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(AutotuneError):
        build_shell_script(argv, timeout=1, env=env)


MARKS = OutputMarks()


class SlowChannel:
    """A command that has ended, over a connection on which its output takes a while.

    ``pieces`` of a byte come 20 ms apart, then what ends the output: its mark, or, if the shell was
    killed before it, the end of the stream, unless a daemon keeps it ``open``.
    """

    def __init__(self, pieces: int, ending: str = "mark") -> None:
        self.ending = ending
        end = MARKS.end.encode() + b"0 " if ending == "mark" else b""
        self.coming = [MARKS.start.encode(), *[b"x"] * pieces, *([end] if end else [])]
        self.errors = [MARKS.start.encode() + end]
        (self.start, self.taken, self.closed) = (time.monotonic(), 0, False)
        self.status_event = threading.Event()
        self.status_event.set()
        self.pipe = os.pipe()

    def recv_ready(self) -> bool:
        return self.taken < min(len(self.coming), (time.monotonic() - self.start) / 0.02)

    def recv(self, most: int) -> bytes:
        self.taken += 1
        return self.coming[self.taken - 1]

    @property
    def eof_received(self) -> bool:
        return self.taken == len(self.coming) and self.ending == "end"

    def fileno(self) -> int:
        return self.pipe[0]

    def recv_stderr_ready(self) -> bool:
        return bool(self.errors)

    def recv_stderr(self, most: int) -> bytes:
        return self.errors.pop()

    def exit_status_ready(self) -> bool:
        return True

    def recv_exit_status(self) -> int:
        return 0

    def setblocking(self, blocking: bool) -> None: ...

    def shutdown_write(self) -> None: ...


@pytest.mark.parametrize(
    ("pieces", "ending"), [(40, "mark"), (0, "mark"), (40, "end"), (10, "open"), (0, "open")]
)
def test_output_that_is_still_coming_when_a_command_has_ended_is_read(
    pieces: int, ending: str
) -> None:
    channel: Any = SlowChannel(pieces, ending)
    exchange = CommandExchange(channel, b"", math.inf, MARKS)
    assert exchange.finish() == 0
    assert bytes(exchange.stdout.output) == b"x" * pieces


@pytest.mark.parametrize("ending", ["mark", "end"])
def test_output_is_read_that_comes_when_this_machine_goes_on_after_it_stood_still(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    class Late(SlowChannel):
        asked = 0

        def recv_ready(self) -> bool:
            self.asked += 1
            return self.asked > 2 and self.taken < len(self.coming)

    clock = chain((0.0,), repeat(5.0))
    channel: Any = Late(1, ending)
    monkeypatch.setattr(ssh, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    exchange = CommandExchange(channel, b"", 60.0, MARKS)
    assert exchange.finish() == 0
    assert bytes(exchange.stdout.output) == b"x"


def test_a_daemon_that_never_stops_writing_does_not_outlast_the_time() -> None:
    channel: Any = SlowChannel(10**6)
    exchange = CommandExchange(channel, b"", time.monotonic() + 0.5, MARKS)
    assert exchange.finish() == 0
    assert len(exchange.stdout.output) < 10**6


def test_a_host_that_prints_without_end_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ssh, "_MAX_OUTPUT_BYTES", 10)
    channel: Any = SlowChannel(10**6)
    exchange = CommandExchange(channel, b"", time.monotonic() + 60, MARKS)
    with pytest.raises(ssh.OutputTooLong):
        exchange.finish()
    assert len(exchange.stdout.output) == 11
