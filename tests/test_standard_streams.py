"""Commands whose standard streams are closed, full, or read by a program that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AUTOTUNE = str(Path(sys.executable).with_name("autotune"))
COMMANDS = {
    "version": "--version",
    "help": "run --help",
    "json": "status --json",
    "report": "report improved",
    "error as json": "report nothing --json",
    "usage": "nothing",
}
FAILING = ("error as json", "usage")
LONG = ("help", "report")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("streams")
    studies = Path(__file__).parent / "report" / "studies"
    (directory / "studies").symlink_to(studies)
    return directory


def run(directory: Path, command: str, redirected: str) -> tuple[int, str, str]:
    """The exit status of a command, and what reached standard output and error."""
    script = f'{{ "$0" {COMMANDS[command]} {redirected}; }}; echo "status $?" >&3'
    done = subprocess.run(
        ["bash", "-c", f"exec 3>status; {script}", AUTOTUNE],
        cwd=directory, capture_output=True, text=True, check=False, timeout=240,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    status = int((directory / "status").read_text().split()[1])
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return status, done.stdout, done.stderr


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "usage"])
@pytest.mark.parametrize(
    ("redirected", "message"),
    [
        (">&-", "standard output is closed"),
        (">/dev/full", "cannot write to standard output: no space left"),
    ],
)
def test_output_that_cannot_be_written_is_one_message(
    directory: Path, command: str, redirected: str, message: str
) -> None:
    status, printed, errors = run(directory, command, redirected)
    assert (status, printed) == (1, "")
    assert errors.count(f"autotune: {message}") == 1
    assert "resume" not in errors


@pytest.mark.parametrize("command", ["report", "usage"])
@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "<&-"])
def test_a_result_needs_neither_input_nor_standard_error(
    directory: Path, command: str, redirected: str
) -> None:
    status, printed, _ = run(directory, command, redirected)
    assert (status == 0) == (command not in FAILING)
    assert bool(printed) == (command != "usage")


@pytest.mark.parametrize("command", LONG)
def test_a_reader_that_ends_early_ends_it_quietly(directory: Path, command: str) -> None:
    status, printed, errors = run(directory, command, "| head -1")
    assert (status, printed.count("\n"), errors) == (0, 1, "")


@pytest.mark.parametrize("redirected", ["2> >(true)", "> >(true)"])
def test_a_reader_that_ends_early_does_not_hide_a_failure(directory: Path, redirected: str) -> None:
    status = run(directory, "error as json", "")[0]
    assert run(directory, "error as json", redirected)[0] == status != 0


def test_no_file_of_a_study_gets_the_number_of_a_closed_stream(directory: Path) -> None:
    script = (
        "import os, sys; from autotune.standard_streams import prepare_streams; prepare_streams(); "
        'open("opened", "w").write(str(os.open("x", os.O_CREAT)))'
    )
    line = '"$0" -c "$1" <&- >&- 2>&-'
    subprocess.run(["bash", "-c", line, sys.executable, script], cwd=directory, check=True)
    assert int((directory / "opened").read_text()) > 2
