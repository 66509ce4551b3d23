"""Each command that is printed of a study works if it is pasted, wherever the studies are."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.errors import AutotuneError
from autotune.report.explanation import build_explanation, format_explanation
from autotune.report.page import render_page
from autotune.report.status import format_status
from autotune.report.studies import open_study
from autotune.report.text_report import format_brief_lines, format_report_lines
from autotune.report.view import StudyView, build_study_view
from tests.modelled import noisy

RECORDED = Path(__file__).with_name("studies")
PLACES = ("studies", "elsewhere", "my studies")
COMMANDS = "run|resume|status|report|diff|explain|export|apply|restore|measure"
PRINTED = re.compile(rf"autotune (?:{COMMANDS}) .*?(?=`|<|  | \(|$)", re.MULTILINE)
PLACEHOLDER = re.compile(r"\b(TARGET|URL|EXPORT|STUDY)\b|…")
# What a command that asks, opens a browser or measures for long needs in a test.
ADDED = {"autotune resume": " --yes", "autotune explain .*--measure": " --yes --maximum 10"}
# Records of another machine are read-only, so their study is neither continued nor measured again.
FOR_OWN_STUDIES = ("autotune resume", "--measure")
FOR_DEPLOYED_FILES = ("autotune diff", "autotune export")  # only one recorded study contains them


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished study of a model, which this account ran."""
    directory = tmp_path_factory.mktemp("modelled")
    with chdir(directory):
        Path("t.yaml").write_text(noisy("budget: {trials: 6, time: 30m}\n"))
        done = run("autotune run t.yaml --yes --quiet")
        assert done.exit_code == 0, done.output
    return directory / "studies" / "modelled"


def run(command: str) -> Result:
    added = [words for pattern, words in ADDED.items() if re.match(pattern, command)]
    return CliRunner().invoke(app, shlex.split(command + "".join(added))[1:])


def texts(view: StudyView) -> Iterator[str]:
    """Yield every text about a study."""
    for lines in (format_report_lines(view), format_brief_lines(view)):
        yield "\n".join(line for line, _ in lines)
    yield format_status(view)
    yield html.unescape(render_page(view).replace("</code>", "`"))
    try:
        yield format_explanation(view, build_explanation(view))
    except AutotuneError as error:
        yield f"{error.message}\n{error.hint}"


def printed(directory: Path) -> list[str]:
    """Return every command in the texts, those that change the study last."""
    view = build_study_view(open_study(directory))
    found = dict.fromkeys(
        command for text in texts(view) for command in PRINTED.findall(text)
        if not PLACEHOLDER.search(command)
    )  # fmt: skip
    assert found
    return sorted(found, key=lambda command: any(own in command for own in FOR_OWN_STUDIES))


def place(source: Path, studies: str, monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Work in ``home``, with a copy of a study in the directory ``studies``."""
    monkeypatch.chdir(home)
    opened: Callable[..., int] = lambda *_: 0  # noqa: E731 - no browser in tests
    monkeypatch.setattr(typer, "launch", opened)
    return Path(shutil.copytree(source, Path(studies, source.name)))


def stop(directory: Path) -> None:
    """Cut the records in the middle, as if the session had been killed there."""
    events = (directory / "events.jsonl").read_text().splitlines(keepends=True)
    kept = events[: len(events) // 2]
    (directory / "events.jsonl").write_text("".join(kept))
    started = {json.loads(line).get("trial") for line in kept}
    readings = (directory / "readings.jsonl").read_text().splitlines(keepends=True)
    taken = [line for line in readings if json.loads(line).get("trial") in started]
    (directory / "readings.jsonl").write_text("".join(taken))
    (directory / "study.db").unlink()


def check(command: str, studies: str) -> None:
    assert ("--studies" in command) == (studies != "studies"), command
    done = run(command)
    assert done.exit_code == 0, (command, done.output, done.exception)


@pytest.mark.parametrize("studies", PLACES)
@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
def test_commands_of_a_recorded_study(
    name: str, studies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = place(RECORDED / name, studies, monkeypatch, tmp_path)
    has_files = (directory / "configs").exists()
    excluded = (*FOR_OWN_STUDIES, *(() if has_files else FOR_DEPLOYED_FILES))
    for command in printed(directory):
        if not any(part in command for part in excluded):
            check(command, studies)


@pytest.mark.parametrize("studies", PLACES)
def test_commands_of_a_finished_study(
    studies: str, modelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = place(modelled, studies, monkeypatch, tmp_path)
    commands = printed(directory)
    assert any("--measure" in command for command in commands)
    for command in commands:
        check(command, studies)
    later = printed(directory)
    assert any("--minimal" in command for command in later)
    for number, command in enumerate(later):
        check(command.replace("modelled-best", f"best-{number}"), studies)


@pytest.mark.parametrize("studies", PLACES)
def test_commands_of_a_stopped_study(
    studies: str, modelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = place(modelled, studies, monkeypatch, tmp_path)
    stop(directory)
    commands = printed(directory)
    assert commands[-1].startswith("autotune resume modelled")
    for command in commands:
        check(command, studies)
    assert open_study(directory).state.verdict is not None


# What was typed with the studies elsewhere, and the command in the hint.
HINTS = (
    ("resume modelled --yes", "autotune report modelled{option}"),
    (
        "export modelled --minimal --of-a-model --out x",
        "autotune explain modelled{option} --measure",
    ),
    ("explain hollow", "autotune status hollow{option}"),
)


@pytest.mark.parametrize("studies", PLACES)
@pytest.mark.parametrize(("typed", "hint"), HINTS)
def test_the_command_of_a_hint(
    typed: str,
    hint: str,
    studies: str,
    modelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = place(modelled, studies, monkeypatch, tmp_path)
    hollow = Path(shutil.copytree(directory, directory.with_name("hollow")))
    first = (hollow / "events.jsonl").read_text().splitlines(keepends=True)[0]
    (hollow / "events.jsonl").write_text(first)
    done = run(f"autotune {typed} --studies {shlex.quote(studies)}")
    assert isinstance(done.exception, AutotuneError), done.output
    (command,) = PRINTED.findall(done.exception.hint or "")
    option = "" if studies == "studies" else f" --studies {shlex.quote(studies)}"
    assert command == hint.format(option=option)
    check(command, studies)
