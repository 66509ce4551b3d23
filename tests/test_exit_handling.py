"""How a command ends when it is told to."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import errors
from autotune.cli import main
from autotune.exit_handling import run_command

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_command_as_an_interrupt_does(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    assert (
        run_command(lambda: os.kill(os.getpid(), number), as_json=False)
        == errors.INTERRUPTED_EXIT_CODE
    )


def test_a_command_started_by_nohup_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert run_command(lambda: os.kill(os.getpid(), signal.SIGHUP), as_json=False) == 0


def test_a_command_computes_in_one_thread_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["autotune", "--version"])
    for threads, used in ((None, "1"), ("4", "4")):
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
        if threads:
            monkeypatch.setenv("OPENBLAS_NUM_THREADS", threads)
        with pytest.raises(SystemExit):
            main()
        assert os.environ["OPENBLAS_NUM_THREADS"] == used


def raise_bug(text: str) -> None:
    raise RuntimeError(text)


def test_a_bug_is_reported_even_if_its_log_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", fail)
    assert run_command(lambda: raise_bug("unforeseen"), as_json=False) == errors.BUG_EXIT_CODE
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert printed.endswith(
        "RuntimeError: unforeseen\nautotune: this is a bug in autotune: RuntimeError: unforeseen\n"
        "  hint: report it, and attach the lines above\n"
    )


def test_a_bug_with_the_name_of_a_file_that_is_not_utf8_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run_command(lambda: raise_bug("caf\udce9"), as_json=False) == errors.BUG_EXIT_CODE
    (log,) = tmp_path.iterdir()
    assert f"attach {log}" in capsys.readouterr().err
    assert "RuntimeError: caf\\udce9" in log.read_text(encoding="utf-8")
