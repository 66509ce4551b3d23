"""Every path that a command writes to is checked first, by one rule: its directory exists."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from autotune.cli import app, output_files
from autotune.errors import UsageError
from scripts.cli_reference import commands

INTO = SimpleNamespace(opts=["--into"])
WRITING = {"--log-file", "--metrics-file", "--html", "--out", "--studies", "--dir"}


def test_every_option_that_names_an_output_is_checked() -> None:
    group = typer.main.get_command(app)
    checked = set()
    for words in commands():
        command = group
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        for parameter in command.params:
            for option in WRITING & {*parameter.opts}:
                assert parameter.callback is not None, (words, option)
                checked.add(option)
    assert checked == WRITING


@pytest.mark.parametrize(
    ("check", "path", "said"),
    [
        (output_files.check_log_file, "nowhere/run.log", "directory {tmp}/nowhere does not exist"),
        (output_files.check_log_file, "file/run.log", "{tmp}/file is a file, not a directory"),
        (output_files.check_log_file, "file/deep/run.log", "{tmp}/file is a file, not a directory"),
        (output_files.check_log_file, ".", "is a directory"),
        (output_files.check_page_file, "file", "is not an HTML page"),
        (output_files.check_page_file, "metrics", "is not an HTML page"),
        (output_files.check_metrics_file, "page", "is not a file of metrics"),
        (output_files.check_page_file, "/dev/stdout", "is not a regular file"),
        (output_files.check_metrics_file, "/dev/new", "is not a regular file"),
        (output_files.check_new_file, "file", "already exists"),
        (output_files.check_target_file, "file", "already exists"),
        (output_files.check_new_directory, "file", "is a file"),
        (output_files.check_new_directory, ".", "is not empty"),
        (output_files.check_studies_directory, "file", "is a file"),
        (output_files.check_studies_directory, "study", "is a study"),
        (output_files.check_lab_directory, "file", "is a file"),
    ],
)
def test_what_cannot_be_written_is_refused(
    check: output_files.PathCheck, path: str, said: str, tmp_path: Path
) -> None:
    _write_files(tmp_path)
    with pytest.raises(UsageError) as caught:
        check(INTO, tmp_path / path)
    assert caught.value.message.startswith(f"--into {tmp_path / path}: ")
    assert said.format(tmp=tmp_path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("check", "path"),
    [
        (output_files.check_log_file, "file"),
        (output_files.check_log_file, "new.log"),
        (output_files.check_page_file, "page"),
        (output_files.check_page_file, "empty"),
        (output_files.check_metrics_file, "metrics"),
        (output_files.check_metrics_file, "new.prom"),
        (output_files.check_new_file, "new.yaml"),
        (output_files.check_new_directory, "new"),
        (output_files.check_studies_directory, "studies"),
        (output_files.check_lab_directory, "lab"),
    ],
)
def test_what_can_be_written_is_accepted(
    check: output_files.PathCheck, path: str, tmp_path: Path
) -> None:
    _write_files(tmp_path)
    assert check(INTO, tmp_path / path) == tmp_path / path


@pytest.mark.parametrize(
    ("path", "said", "example"),
    [
        ("full", "is not empty", "full-2"),
        ("deep/full", "is not empty", "deep/full-2"),
        (".", "is not empty", "winner"),
        ("deep/winner.zip", "is the name of a file", "deep/winner"),
        (".winner.json", "is the name of a file", "winner"),
    ],
)
def test_an_example_of_a_directory_is_next_to_the_given_one(
    path: str, said: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("full", "deep/full"):
        (tmp_path / directory / "content").mkdir(parents=True)
    with pytest.raises(UsageError, match=said) as caught:
        output_files.check_new_directory(INTO, Path(path))
    assert f"such as `--into {example}`" in str(caught.value.hint)


def test_the_current_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is the current directory"):
        output_files.check_new_directory(INTO, Path())


def test_init_creates_its_default_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("targets/shop.yaml")
    assert output_files.check_target_file(INTO, path) == path


def _write_files(directory: Path) -> None:
    (directory / "file").write_text("precious")
    (directory / "empty").touch()
    (directory / "page").write_text("\n<!DOCTYPE html>\n<html></html>")
    (directory / "metrics").write_text("# HELP autotune_running 1\n")
    (directory / "study").mkdir()
    (directory / "study" / "events.jsonl").touch()
