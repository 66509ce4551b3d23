"""Hints fit the command that was typed: none sends load for a command that sends none."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import exit_handling
from autotune.cli import COMMANDS, app
from autotune.hints import LOAD_COMMANDS, find_command_hint

STUDIES = Path(__file__).parent / "report" / "studies"
NAMES = [command.__name__ for command in COMMANDS]
REQUIRED = {"export": "--out x", "apply": "no.yaml", "worker": "--bed all --storage postgresql://x"}
MISTAKES = (
    *(f"{{}} improved {option}" for option in (
        "--yes", "--dry-run", "-n", "--trials 3", "--time 5m", "-q", "-o x", "--output x", "-v",
        "--format x", "--target t.yaml", "-t t.yaml", "--study s", "--nonsense", "--yes=3", "--out",
    )),
    "{}", "{} nothing", "{} improve", "{} no.yaml", "{} /dev/null", "{} improved more than enough",
    "{} damaged", "{} empty", "{} nothing --studies nowhere",
)  # fmt: skip
_SENDS = re.compile(rf"\b(?:autotune )?(?:{'|'.join(LOAD_COMMANDS)}) (?:TARGET|STUDY|\S+\.yaml)")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recorded studies, one that was damaged, and one in which nothing was done."""
    studies = tmp_path / "studies"
    studies.mkdir()
    shutil.copytree(STUDIES / "improved", studies / "improved")
    shutil.copytree(STUDIES / "improved", studies / "damaged")
    (studies / "damaged" / "target.yaml").unlink()
    (studies / "empty").mkdir()
    (studies / "empty" / "events.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed_by(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    exit_handling.run_command(
        lambda: app(line, standalone_mode=False), as_json=False, command=line[0]
    )
    return "".join(capsys.readouterr())


@pytest.mark.parametrize("command", sorted({*NAMES} - LOAD_COMMANDS - {"init", "schema"}))
def test_no_hint_starts_load_unless_the_command_does(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for mistake in MISTAKES:
        line = f"{mistake.format(command)} {REQUIRED.get(command, '')}".split()
        printed = printed_by(line, capsys)
        hints = "\n".join(re.findall("hint: (.*)", printed))
        assert not _SENDS.search(hints), (line, hints)
        others = re.findall(r"`autotune (\w+) ", hints)
        assert not ({*others} & LOAD_COMMANDS), (line, hints)
        assert "bug" not in printed, (line, printed)


@pytest.mark.parametrize(
    "option", ["--yes", "--dry-run", "--trials", "--target", "--study", "--json"]
)
def test_a_hint_on_an_option_names_the_command_that_was_typed(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = printed_by(["restore", "improved", option], capsys)
    assert "autotune restore" in printed.partition("hint: ")[2]


def test_a_host_without_a_study_is_restored_by_its_target(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(directory / "studies")
    assert "`autotune restore TARGET`" in printed_by(["restore", "local"], capsys)


@pytest.mark.parametrize(
    ("word", "group", "suggested"),
    [
        ("my shop.yaml", "", "autotune check 'my shop.yaml'"),
        ("shop.yaml", "", "autotune check shop.yaml"),
        ("my access.log", "workload", "autotune workload from-log 'my access.log'"),
    ],
)
def test_a_suggested_command_can_be_pasted(word: str, group: str, suggested: str) -> None:
    assert f"`{suggested}`" in str(find_command_hint(word, group))


@pytest.mark.parametrize("command", NAMES)
def test_a_full_disk_names_resume_only_where_a_study_was_measured(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "x")

    exit_handling.run_command(fail, as_json=False, command=command)
    assert ("resume" in capsys.readouterr().err) == (command in LOAD_COMMANDS)
