"""What hosts and files say reaches the terminal as text, never as commands to it."""

from __future__ import annotations

import ast
import io
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from autotune import exit_handling, terminal
from autotune.cli import app
from autotune.errors import AutotuneError
from autotune.report.live_progress import LiveProgress
from autotune.report.progress import PlainProgress
from autotune.report.status import watch_status
from autotune.report.studies import open_study
from autotune.strict_parsing import parse_json
from autotune.study.study_state import Phase, State, Trial
from tests.sources import nodes

STUDIES = Path(__file__).parent / "report" / "studies"
CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
CLEAR = "\x1b[2J\x1b[H"
HOSTILE = f"nginx: {CLIPBOARD}[emerg]{CLEAR} no\x9b31m such\x08 file\x1bc\r"
PRINTING = {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"}
HARMLESS = "nginx: [emerg] no such file"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (HOSTILE, HARMLESS),
        ("a\tb\nc", "a\tb\nc"),
        ("a\u061c\u200e\u200fb\u2028c\u2029\u202ed\u2066\U000e0041e", "abcde"),
        ("cafe\u0301 \u4e2d \u200d \U0001f600", "cafe\u0301 \u4e2d \u200d \U0001f600"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x9d52;c;ZXZpbA==\x9cafter", "after"),
        ("trial 3: \x1b]0;hidden\n! a warning\n", "trial 3: \n! a warning\n"),
        ("trial 3: \x90hidden\n! a warning\x07\n", "trial 3: \n! a warning\n"),
        ("cut \x1b[", "cut "),
        ("cut \x1b", "cut "),
        ("user\u202egpj.exe", "usergpj.exe"),
        ("byte \udcff", "byte \ufffd"),
        ("±5 % → 10 µs ✓", "±5 % → 10 µs ✓"),
    ],
)
def test_nothing_a_terminal_obeys_is_left(text: str, left: str) -> None:
    assert terminal.make_printable(text) == left


@given(st.text(st.sampled_from("\x1b[]()P;0m\x07\x9b\x9c\\ab\n\t\r\x00")))
def test_whatever_is_put_together(text: str) -> None:
    left = terminal.make_printable(text)
    assert not set(left) & set("\x1b\x9b\x9c\x07\r\x00")
    assert terminal.make_printable(left) == left


WORD = st.text(st.sampled_from("\x1b[]P'\" ;#$(\x07\x9b\x9c\x9d\\ab\n"))


@given(st.lists(WORD))
@example(["name\x1b[", "; echo evil #"])
@example(["name\x1b", "; echo evil #"])
@example(["name\x1b]", "; echo evil #"])
def test_a_printed_command_keeps_its_words(words: list[str]) -> None:
    printed = terminal.make_printable(shlex.join(["autotune", *words]))
    assert shlex.split(printed) == ["autotune", *map(terminal.make_printable, words)]


def test_errors_are_stripped(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise AutotuneError(HOSTILE, hint=HOSTILE)

    exit_handling.run_command(fail, as_json=False)
    assert capsys.readouterr().err == f"autotune: {HARMLESS}\n  hint: {HARMLESS}\n"


def test_json_is_ascii_without_halves_of_characters(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"a": "→ \x7f\x9b\u202e \U0001f600 \udcff"})
    text = capsys.readouterr().out
    assert text.isascii()
    assert parse_json(text) == {"a": "→ \x7f\x9b\u202e \U0001f600 \ufffd"}


def test_an_error_that_names_a_file_is_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise AutotuneError("\udcff.yaml: no such file")

    exit_handling.run_command(fail, as_json=True)
    assert parse_json(capsys.readouterr().out)["error"]["message"] == "\ufffd.yaml: no such file"


TRIAL = Trial(1, Phase.BASELINE, {}, failure=HOSTILE)


def test_lines_of_progress_are_stripped() -> None:
    target, stream = open_study(STUDIES / "improved").target, io.StringIO()
    with PlainProgress(target, lambda: State(trials=(TRIAL,)), stream, verbose=True) as progress:
        progress.note(HOSTILE)
        progress.on_trial_end(TRIAL)
    assert HARMLESS in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_panel_is_stripped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    target, stream = open_study(STUDIES / "improved").target, Terminal()
    with LiveProgress(target, lambda: State(trials=(TRIAL,)), stream) as progress:
        progress.note(HOSTILE)
        progress.on_trial_end(TRIAL)
    shown = stream.getvalue()
    assert f"failed: {HARMLESS}" in shown  # a row of the table
    for sequence in (CLIPBOARD, CLEAR, "52;c", "\x9b", "\x1bc", "\x08"):
        assert sequence not in shown


@pytest.mark.parametrize("command", ["report", "status"])
def test_results_are_stripped(command: str, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(STUDIES / "infeasible", tmp_path / "infeasible"))
    events = directory / "events.jsonl"
    escaped = HOSTILE.encode("unicode_escape").decode().replace("\\x", "\\u00")
    text = events.read_text().replace("php-fpm did not start", escaped)
    assert "]52" in text
    events.write_text(text)
    done = CliRunner().invoke(app, [command, "infeasible", "--studies", str(directory.parent)])
    assert done.exit_code == 0
    assert not set(done.stdout) & set("\x1b\x9b\x07\x08")
    if command == "report":
        assert HARMLESS in done.stdout


def test_a_patch_for_another_program_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", piped)
    terminal.print_patch([("+\tlog \x1b[31m\udcff", "green")])
    assert piped.buffer.getvalue() == b"+\tlog \x1b[31m\xff\n"  # type: ignore[attr-defined]


def test_a_study_that_is_watched_is_stripped(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(STUDIES / "improved", tmp_path / "improved"))
    renamed, screen = directory.with_name("impr\x1boved"), Terminal()
    directory.rename(renamed)
    watch_status(lambda: renamed, screen)
    assert screen.getvalue().startswith("\x1b[H\x1b[2Jimpr")
    assert screen.getvalue().count("\x1b") == 2


def test_nothing_else_prints() -> None:
    package = Path(terminal.__file__).parent
    others = [path for path in package.rglob("*.py") if path.name != "terminal.py"]
    assert len(others) > 100
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in others
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING
    ]
    assert found == []


def test_styles_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for environment, expected in ((None, "\x1b[32m✓ good\x1b[0m\n"), ("1", "✓ good\n")):
        if environment:
            monkeypatch.setenv("NO_COLOR", environment)
        else:
            monkeypatch.delenv("NO_COLOR", raising=False)
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        terminal.print_lines([(f"✓ {CLIPBOARD}good", "green")])
        assert screen.getvalue() == expected
