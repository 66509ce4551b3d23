"""A user's own benchmark: a command that is told parameters and answers with a value.

It gets ``{"schema": 1, "trial": n, "parameters": {…}}`` on standard input, runs in the target's
directory with autotune's own environment and ``AUTOTUNE_STUDY`` and ``AUTOTUNE_TRIAL`` beside it,
and leads a process group of its own. Whatever it started in that group ends with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from autotune.measure.answer import Answer, Fault, parse
from autotune.measure.lifeline import Lifeline
from autotune.services.base import Settings

SCHEMA = 1
GRACE = 2.0  # seconds between the polite signal and the other one
LAST_WORDS = 12  # lines of standard error that are kept


class Benchmark:
    """``argv`` as it is, no shell; ``timeout`` (seconds) is when a call is given up."""

    def __init__(self, argv: Sequence[str], directory: Path, timeout: float, study: str) -> None:
        self._argv, self._directory, self._timeout = tuple(argv), directory, timeout
        self._environment: Mapping[str, str] = {**os.environ, "AUTOTUNE_STUDY": study}

    def __enter__(self) -> Self:
        self._lifeline = Lifeline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._lifeline.close()

    def ask(self, trial: int, parameters: Settings) -> Answer:
        """Call the command once. However it ends, nothing of its process group is left."""
        question = {"schema": SCHEMA, "trial": trial, "parameters": dict(parameters)}
        with (
            tempfile.TemporaryFile() as asked,
            tempfile.TemporaryFile() as printed,
            tempfile.TemporaryFile() as said,
        ):
            # Files and not pipes: what the command leaves unread, or a process it leaves behind
            # with its output open, never makes anybody wait.
            asked.write(json.dumps(question).encode() + b"\n")
            asked.seek(0)
            try:
                code = self._call(trial, asked, printed, said)
            except OSError as error:
                return Fault(f"it cannot be started: {error.strerror}: {self._argv[0]}")
            if code is None:
                return Fault(f"it gave no answer within {self._timeout:g} s", _last_words(said))
            if code:
                return Fault(_ending(code), _last_words(said))
            answer = parse(_text(printed))
            return Fault(answer.why, _last_words(said)) if isinstance(answer, Fault) else answer

    def _call(
        self, trial: int, asked: IO[bytes], printed: IO[bytes], said: IO[bytes]
    ) -> int | None:
        """Its exit code; ``None`` when it took too long."""
        process = subprocess.Popen(
            self._argv,
            cwd=self._directory,
            env={**self._environment, "AUTOTUNE_TRIAL": str(trial)},
            stdin=asked,
            stdout=printed,
            stderr=said,
            start_new_session=True,
        )
        self._lifeline.hold(process.pid)
        over = False
        try:
            over = _wait(process.pid, self._timeout)
        finally:
            if not over:
                _signal_group(process.pid, signal.SIGTERM)
                _wait(process.pid, GRACE)
            # Not yet waited for, so that the group's id cannot be anybody else's.
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            self._lifeline.let_go()
        return process.returncode if over else None


def _wait(pid: int, seconds: float) -> bool:
    """Whether the process ended within ``seconds``; it stays to be waited for."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _ending(code: int) -> str:
    if code > 0:
        return f"it ended with exit code {code}"
    return f"it was ended by signal {-code} ({signal.strsignal(-code) or 'unknown'})"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _last_words(file: IO[bytes]) -> str:
    return "\n".join(_text(file).strip().splitlines()[-LAST_WORDS:])
