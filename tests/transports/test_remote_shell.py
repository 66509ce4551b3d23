"""A command line arrives as it is through any login shell, and its output without the profile's."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paramiko import Channel

from autotune.transports.base import HostUnreachable
from autotune.transports.remote_shell import MarkedStream, OutputMarks, build_shell_script
from autotune.transports.ssh import LoginShellFailed, SshTransport
from tests.transports.server import ssh_server

SHELLS = ("sh", "bash", "rbash", "tcsh", "csh", "fish", "zsh")
WORDS = (
    "; rm -rf /", "$(id)", "`id`", "a b", "", "'", '"', "\\", "\\n", "\n", "-n", "*", "~", "é", "!!",
    "it's !$ %s \\' \\\\", "a\\\nb", "{x,y}", "^a^b", "\t\x01\x7f", "x" * 50_000,
)  # fmt: skip
ECHO = ["sh", "-c", 'for word; do printf "%s\\0" "$word"; done; exit 7', "sh"]
PROFILES = {
    "a line": b"echo WELCOME\n",
    "no final newline": b"printf 'last login: never'; printf 'still no newline' >&2\n",
    "standard error": b"echo 'warning: setlocale' >&2\n",
    "binary": b"printf '\\377\\000\\001\\n\\033[31m'; printf '\\377\\000' >&2\n",
    "much": b"head -c 300000 /dev/zero | tr '\\0' x\n",
    "a question": b'read answer; echo "you typed $answer"\n',
    "an eager reader": b"head -c 10 >/dev/null\n",
    "a trap": b"trap 'echo goodbye; echo goodbye >&2' EXIT\n",
}


def run_through(shell: list[str], words: list[str]) -> tuple[int | None, bytes]:
    """The exit status and the output of a command whose line a login shell gets."""
    marks = OutputMarks()
    line = marks.build_line(build_shell_script([*ECHO, *words], timeout=60))
    done = subprocess.run(
        [*shell, "-c", line], capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    stream = MarkedStream(marks)
    for at in range(0, len(done.stdout), 1000):
        stream.add_output(done.stdout[at : at + 1000])
    assert done.stderr == f"{marks.start}{marks.end}".encode()
    return stream.exit_status, bytes(stream.output)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=5))
def test_every_word_arrives_between_the_marks(words: list[str]) -> None:
    status, output = run_through(["sh"], words)
    assert (status, output.decode().split("\0")[:-1]) == (7, words)


@pytest.mark.stack
@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_reads_a_line_alike(shell: str) -> None:
    status, output = run_through([shell], list(WORDS))
    assert (status, output.decode().split("\0")[:-1]) == (7, list(WORDS))


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=9), st.integers(1, 50))
def test_a_stream_is_cut_at_its_marks_however_it_comes(
    before: bytes, output: bytes, after: bytes, size: int
) -> None:
    marks = OutputMarks()
    (start, end) = (marks.start.encode(), marks.end.encode())
    stream, whole = MarkedStream(marks), before + start + output + end + b"3 " + after
    for at in range(0, len(whole), size):
        stream.add_output(whole[at : at + size])
    assert (stream.before, stream.output, stream.exit_status) == (before, output, 3)


def test_marks_are_of_one_command_alone() -> None:
    assert (
        len({mark for marks in (OutputMarks(), OutputMarks()) for mark in (marks.start, marks.end)})
        == 4
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


def greet(home: Path, profile: bytes) -> None:
    (home / ".bashrc").write_bytes(profile)


@pytest.mark.stack
@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_that_a_profile_prints_is_output(tmp_path: Path, home: Path, profile: str) -> None:
    greet(home, PROFILES[profile])
    content = os.urandom(200_000)
    with ssh_server(tmp_path, f"SetEnv HOME={home}", "Banner /etc/hostname") as host:
        transport = SshTransport(host)
        done = transport.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
        if profile not in ("a question", "an eager reader"):
            assert transport.run(["cat"], input=b"given").stdout == "given"
            transport.put(content, str(tmp_path / "put"))
            assert (tmp_path / "put").read_bytes() == content
        assert transport.get(str(tmp_path / "host.pub")) == (tmp_path / "host.pub").read_bytes()
        assert transport.get("/nowhere") is None
        transport.close()


@pytest.mark.stack
@pytest.mark.parametrize("profile", ["a question", "an eager reader"])
def test_a_profile_that_reads_the_input_is_named_and_gets_none(
    tmp_path: Path, home: Path, profile: str
) -> None:
    greet(home, PROFILES[profile])
    with ssh_server(tmp_path, f"SetEnv HOME={home}") as host:
        transport = SshTransport(host)
        with pytest.raises(HostUnreachable, match=r"web1: the login shell of .* did not run cat"):
            transport.run(["cat"], input=b"not for a profile", timeout=1)
        transport.close()


@pytest.mark.stack
@pytest.mark.parametrize(
    ("profile", "words"),
    [(b"exit 0\n", ""), (b"echo closed for repairs >&2; exit 1\n", "closed for repairs"),
     (b"exec /usr/sbin/nologin\n", "currently not available")],
)  # fmt: skip
def test_a_login_shell_that_ends_is_named_with_its_words(
    tmp_path: Path, home: Path, profile: bytes, words: str
) -> None:
    greet(home, profile)
    with ssh_server(tmp_path, f"SetEnv HOME={home}") as host:
        transport = SshTransport(host)
        with pytest.raises(LoginShellFailed, match=f"did not run sh.*{words}") as raised:
            transport.run(["sh", "-c", "echo out"])
        assert "echo ok" in str(raised.value.hint)
        transport.close()


@pytest.mark.stack
@pytest.mark.parametrize("shell", ["rbash", "tcsh", "fish", "zsh"])
def test_any_login_shell_does(tmp_path: Path, home: Path, shell: str) -> None:
    (home / ".config/fish").mkdir(parents=True)
    for name in (".bashrc", ".tcshrc", ".config/fish/config.fish", ".zshenv"):
        (home / name).write_text("echo WELCOME\n")
    force = f'ForceCommand {shutil.which(shell)} -c "$SSH_ORIGINAL_COMMAND"'
    with ssh_server(tmp_path, f"SetEnv HOME={home}", force) as host:
        transport = SshTransport(host)
        done = transport.run([*ECHO, *WORDS])
        assert (done.returncode, done.stdout.split("\0")[:-1]) == (7, list(WORDS))
        assert transport.run(["cat"], input=b"given").stdout == "given"
        transport.close()


@pytest.mark.stack
def test_one_session_at_a_time_is_enough(tmp_path: Path) -> None:
    """Commands that need each other run together, over further connections."""
    meet = "touch $1; until [ -e $2 ]; do sleep 0.02; done; rm $2; echo met"
    (one, other) = (str(tmp_path / name) for name in ("one", "other"))
    with ssh_server(tmp_path, "MaxSessions 1") as host:
        transport = SshTransport(host)
        for _ in range(3):
            with ThreadPoolExecutor(2) as pool:
                ends = [pool.submit(transport.run, ["sh", "-c", meet, "sh", *pair], timeout=240)
                        for pair in ((one, other), (other, one))]  # fmt: skip
            assert [end.result().stdout for end in ends] == ["met\n", "met\n"]
        for number in range(10):  # one after the other, as fast as it goes
            assert transport.run(["echo", str(number)]).stdout == f"{number}\n"
        transport.close()
        assert not transport._extra_connections


@pytest.mark.stack
def test_no_command_waits_for_the_end_of_others(tmp_path: Path) -> None:
    """The processes that send load start together, however many there are."""
    meet = 'touch "$1/$2"; until [ "$(ls "$1" | wc -l)" = "$3" ]; do sleep 0.1; done; echo met'
    (tmp_path / "started").mkdir()
    with ssh_server(tmp_path) as host, ThreadPoolExecutor(20) as pool:
        transport = SshTransport(host)
        commands = [["sh", "-c", meet, "sh", str(tmp_path / "started"), str(number), "20"]
                    for number in range(20)]  # fmt: skip
        ends = [pool.submit(transport.run, command, timeout=240) for command in commands]
        assert [end.result().stdout for end in ends] == ["met\n"] * 20
        transport.close()


@pytest.mark.stack
def test_a_host_without_any_session_has_a_hint(tmp_path: Path) -> None:
    with ssh_server(tmp_path, "MaxSessions 0") as host:
        transport = SshTransport(host)
        with pytest.raises(HostUnreachable, match="refused to open a session") as raised:
            transport.run(["true"])
        assert "MaxSessions" in str(raised.value.hint)
        transport.close()


@pytest.mark.stack
def test_a_connection_that_is_lost_as_a_command_ends_replaces_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """paramiko raises an EOFError if the message that closes the channel cannot be sent."""
    close = Channel.close

    def close_and_fail(channel: Channel) -> None:
        close(channel)
        raise EOFError

    with ssh_server(tmp_path) as host:
        transport = SshTransport(host)
        monkeypatch.setattr(Channel, "close", close_and_fail)
        assert transport.run(["echo", "out"]).stdout == "out\n"
        with pytest.raises(HostUnreachable, match=r"sleep( did not finish)? within 1 s"):
            transport.run(["sleep", "60"], timeout=1.0)
        monkeypatch.undo()
        transport.close()
