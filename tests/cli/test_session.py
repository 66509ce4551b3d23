from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import typer

from autotune import errors, exit_handling
from autotune.cli.options import ProgressOptions
from autotune.cli.session import (
    confirm,
    open_progress,
    prepare_search,
    prepare_target,
    run_session,
    run_sweep_session,
)
from autotune.cli.target_commands import plan
from autotune.environments.base import Environment
from autotune.errors import AutotuneError
from autotune.report.studies import open_study
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.trial_context import open_locked_store

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "tests" / "report" / "studies" / "improved"
PAPER = ROOT / "targets" / "paper.yaml"
COMMAND = ROOT / "targets" / "command.yaml"


def test_nobody_to_ask_is_a_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(AutotuneError, match="without confirmation") as caught:
        confirm("Load goes to lb1.", yes=False)
    assert caught.value.hint == "pass --yes"
    assert capsys.readouterr().err == "Load goes to lb1.\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_no_is_an_error_even_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    status = exit_handling.run_command(lambda: confirm("Load.", yes=False), as_json=True)
    printed = capsys.readouterr()
    assert status == errors.OPERATIONAL_EXIT_CODE
    assert json.loads(printed.out)["error"]["message"] == "not confirmed, so nothing was started"
    assert "not confirmed, so nothing was started" in printed.err


def test_yes_is_given_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    confirm("Load goes to \x1b[2Jlb1.", yes=True)
    assert capsys.readouterr().err == "Load goes to lb1.\n"


def test_a_search_prints_the_warnings_of_its_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "paper.yaml"
    unused_host = "hosts:\n  web9: {address: 198.18.2.9}\n"
    target.write_text(PAPER.read_text().replace("hosts:\n", unused_host, 1))
    prepare_search(target)
    plan(target)
    assert capsys.readouterr().err.count("no tier uses host 'web9'") == 2


def test_quiet_progress_is_in_the_log_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = Path(shutil.copytree(STUDY, tmp_path / "improved"))
    environment, log = prepare_target(PAPER), tmp_path / "run.log"
    trials = open_study(directory).state.trials
    for detail in (ProgressOptions(quiet=True, log_file=log), ProgressOptions(quiet=True)):
        with open_progress(environment, directory, detail, with_page=False) as progress:
            progress.note("loading data")
            for trial in trials:
                progress.on_trial_end(trial)
    assert capsys.readouterr().err == ""
    lines = log.read_text().splitlines()
    assert lines[0] == "loading data"
    assert len(lines) == 1 + len(trials)


@pytest.mark.parametrize(
    ("directory", "keeps_winner", "arguments"),
    [
        ("studies/paper", False, "paper"),
        ("elsewhere/paper", False, "paper --studies elsewhere"),
        ("my studies/paper", True, "paper --studies 'my studies' --keep"),
    ],
)
def test_an_interrupted_study_names_the_command_that_continues_it(
    directory: str,
    keeps_winner: bool,
    arguments: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(_: object, directory: Path, __: object) -> None:
        shutil.copytree(STUDY, directory)
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    environment, options = prepare_target(PAPER), ProgressOptions(quiet=True)
    with pytest.raises(typer.Exit):
        run_session(
            interrupt, environment, Path(directory), json_=False, options=options,
            keeps_winner=keeps_winner,
        )  # fmt: skip
    assert f"`autotune resume {arguments}`" in capsys.readouterr().err


def test_an_interrupted_command_restores_no_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object, directory: Path, __: object) -> None:
        shutil.copytree(STUDY, directory)
        raise KeyboardInterrupt

    environment, options = prepare_target(COMMAND), ProgressOptions(quiet=True)
    directory = tmp_path / "studies" / "command"
    with pytest.raises(typer.Exit):
        run_session(interrupt, environment, directory, json_=False, options=options)
    assert capsys.readouterr().err.startswith("stopped. Continue with `autotune resume command")


@pytest.mark.parametrize("json_", [False, True])
def test_a_study_interrupted_before_its_first_record_leaves_nothing_to_resume(
    json_: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while hosts are locked: their restore has succeeded when the lock is released."""

    def interrupt(environment: Environment, directory: Path, progress: ProgressReporter) -> None:
        with open_locked_store(environment, directory, progress):
            raise KeyboardInterrupt

    environment, directory = prepare_target(PAPER), tmp_path / "studies" / "paper"
    options = ProgressOptions(quiet=True)
    status = exit_handling.run_command(
        lambda: run_session(interrupt, environment, directory, json_=json_, options=options),
        as_json=json_,
    )
    assert status == errors.INTERRUPTED_EXIT_CODE
    output, messages = capsys.readouterr()
    assert "autotune resume" not in messages
    assert not directory.exists()
    if json_:
        assert json.loads(output)["error"]["code"] == errors.INTERRUPTED_EXIT_CODE


def test_an_interrupted_sweep_prints_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object, __: object, directory: Path, ___: object) -> None:
        shutil.copytree(STUDY, directory)
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.sweep.runner.run_sweep", interrupt)
    environment, directory = prepare_target(PAPER), tmp_path / "studies" / "paper"
    options = ProgressOptions(quiet=True)
    status = exit_handling.run_command(
        lambda: run_sweep_session(environment, None, directory, None, json_=True, options=options),
        as_json=True,
    )
    assert status == errors.INTERRUPTED_EXIT_CODE
    output, messages = capsys.readouterr()
    assert "autotune resume paper --studies" in messages
    assert json.loads(output)["error"]["code"] == errors.INTERRUPTED_EXIT_CODE


def test_a_full_disk_of_the_log_does_not_hide_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ProgressOptions(quiet=True, log_file=Path("/dev/full"))
    directory = tmp_path / "studies" / "paper"
    with open_progress(prepare_target(PAPER), directory, options, with_page=False) as progress:
        progress.note("one line")
    printed = capsys.readouterr().err
    assert "warning: /dev/full is incomplete: no space left on device\n" in printed
    assert "the directory of the study contains every reading" in printed
