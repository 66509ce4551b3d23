"""Many commands in one exchange, with a real shell at the other end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.deploy.host_commands import Command, CommandFailed, run_commands, run_required
from autotune.errors import AutotuneError
from autotune.transports.base import Argv, CommandResult
from tests.deploy.doubles import Here

HERE = Here(Path("/nowhere"))


def test_each_command_has_its_status_and_words() -> None:
    found = run_commands(HERE, [
        Command(("printf", r"one\ntwo\n\n")),
        Command(("sh", "-c", "echo to stderr >&2; exit 7")),
        Command(("true",)),
        Command(("cat",)),  # the script is not its input
    ])  # fmt: skip
    assert [(done.returncode, done.stdout) for done in found] == [
        (0, "one\ntwo"), (7, "to stderr"), (0, ""), (0, ""),
    ]  # fmt: skip


@settings(max_examples=20)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=4))
def test_words_arrive_as_they_are(words: list[str]) -> None:
    (done,) = run_commands(HERE, [Command(("printf", "<%s>", *words))])
    said = "".join(f"<{word}>" for word in words) or "<>"
    assert done.stdout == said


def test_what_is_printed_before_the_commands_is_not_theirs() -> None:
    class Lectured(Here):
        def run(self, argv: Argv, *, input: bytes | None = None, **how: object) -> CommandResult:  # type: ignore[override]
            return super().run(argv, input=b"printf 'a lecture\\nof sudo'\n" + (input or b""))

    found = run_commands(
        Lectured(Path("/nowhere")), [Command(("printf", "one")), Command(("true",))]
    )
    assert [done.stdout for done in found] == ["one", ""]


def test_all_of_them_are_one_exchange() -> None:
    here = Here(Path("/nowhere"))
    run_commands(here, [Command(("true",))] * 50)
    assert here.exchanges == 1


def test_no_commands_need_no_exchange() -> None:
    here = Here(Path("/nowhere"))
    assert run_commands(here, []) == run_required(here, []) == []
    assert here.exchanges == 0


def test_nothing_is_done_after_a_vital_one_that_fails(tmp_path: Path) -> None:
    commands = [
        Command(("true",), required=True),
        Command(("ls", str(tmp_path / "missing")), required=True),
        Command(("touch", str(tmp_path / "done"))),
    ]
    assert [done.ok for done in run_commands(HERE, commands)] == [True, False]
    with pytest.raises(CommandFailed, match=r"here: ls: .*missing"):
        run_required(HERE, commands)
    assert not (tmp_path / "done").exists()


class Severed(Here):
    """A host that gets only the first ``share`` of what is sent to it."""

    share = 0.0

    def run(self, argv: Argv, *, input: bytes | None = None, **how: object) -> CommandResult:  # type: ignore[override]
        whole = input or b""
        return super().run(argv, input=whole[: int(len(whole) * self.share)])


@pytest.mark.parametrize("share", [0.3, 0.9, 0.97, 0.99])
def test_half_a_text_does_nothing(tmp_path: Path, share: float) -> None:
    severed = Severed(tmp_path)
    severed.share = share
    with pytest.raises(AutotuneError, match="stopped early"):
        run_commands(severed, [Command(("touch", str(tmp_path / str(i)))) for i in range(20)])
    assert list(tmp_path.iterdir()) == []


def test_without_sudo_the_way_out_is_told() -> None:
    class Guest(Here):
        def run(self, argv: Argv, **how: object) -> CommandResult:  # type: ignore[override]
            return CommandResult(tuple(argv), 1, "", "sudo: a password is required")

    with pytest.raises(AutotuneError, match="become root") as raised:
        run_commands(Guest(Path("/nowhere")), [Command(("true",))])
    assert "NOPASSWD" in (raised.value.hint or "")


def test_threads_in_the_environment_of_an_account_are_no_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "997")
    (printed,) = run_commands(HERE, [Command(("nproc",))])
    assert int(printed.stdout) == len(os.sched_getaffinity(0))
