"""Words stay words on their way through a real shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import AutotuneError
from autotune.transports.ssh import returncode, shell_line

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


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS | NASTY, max_size=5))
def test_every_word_arrives_as_it_is(words: list[str]) -> None:
    said = through_a_shell(shell_line([*ECHO, *words], timeout=10))
    assert said.decode().split("\0")[:-1] == words


@settings(max_examples=30, deadline=None)
@given(WORDS | NASTY)
def test_a_variable_arrives_as_it_is(value: str) -> None:
    argv = ["sh", "-c", 'printf %s "$SAMPLE"']
    assert through_a_shell(shell_line(argv, timeout=10, env={"SAMPLE": value})).decode() == value


def test_a_directory_with_a_bad_name_is_gone_to(tmp_path: Path) -> None:
    directory = tmp_path / "$(touch bad); x"
    directory.mkdir()
    said = through_a_shell(shell_line(["pwd"], timeout=10, cwd=str(directory)))
    assert said.decode().strip() == str(directory)
    assert list(tmp_path.glob("**/bad")) == []


@pytest.mark.parametrize("status", [0, 1, 3, 126, 200])
def test_the_status_of_the_command_is_that_of_the_line(status: int) -> None:
    line = shell_line(["sh", "-c", f"exit {status}"], timeout=10)
    done = subprocess.run(["sh", "-c", line], check=False)
    assert returncode(done.returncode) == status


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("KILL", 9), ("SEGV", 11)])
def test_a_command_ended_by_a_signal_says_which(name: str, number: int) -> None:
    line = shell_line(["sh", "-c", f"kill -{name} $$"], timeout=10)
    done = subprocess.run(["sh", "-c", line], check=False, stderr=subprocess.DEVNULL)
    assert returncode(done.returncode) == -number


def test_the_host_itself_ends_what_takes_too_long() -> None:
    line = shell_line(["sh", "-c", "sleep 100 & wait"], timeout=0.2)
    done = subprocess.run(["sh", "-c", line], check=False, stderr=subprocess.DEVNULL, timeout=50)
    assert returncode(done.returncode) == -9


def test_sudo_never_asks_and_gets_the_environment_behind_it() -> None:
    words = shlex.split(shell_line(["nginx", "-t"], timeout=5, sudo=True, env={"A": "b c"}))
    at = words.index("sudo")
    assert words[at : at + 7] == ["sudo", "-n", "--", "env", "A=b c", "nginx", "-t;"]


@pytest.mark.parametrize(
    ("argv", "env"),
    [([], {}), (["a\0b"], {}), (["a"], {"A=B;": "c"}), (["a"], {"": "c"}), (["a"], {"B": "\0"})],
)
def test_what_is_no_command_is_refused(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(AutotuneError):
        shell_line(argv, timeout=1, env=env)
