"""How a command ends when it is told to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

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
