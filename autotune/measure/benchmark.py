"""A user's own benchmark: a command that receives parameters and prints a value.

The command gets ``{"schema": 1, "trial": n, "parameters": {…}}`` on standard input and runs in the
target's directory. Its environment is autotune's own, with ``AUTOTUNE_STUDY`` and ``AUTOTUNE_TRIAL``. It
leads its own process group, and autotune kills the rest of the group when the command exits.

The last line of its output is the answer, one JSON object: ``{"value": 41.2}`` or
``{"infeasible": "why"}`` for an unusable configuration. A command that knows its own standard deviation
adds ``"sd"``. Users may add other keys.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from autotune.services.base import Settings
from autotune.strict import split_lines


@dataclass(frozen=True)
class Value:
    """A measured value; ``sd`` is the standard deviation that the command reported, if any."""

    value: float
    sd: float | None = None


@dataclass(frozen=True)
class Unusable:
    """A configuration that cannot be used; the search learns from this result."""

    why: str


@dataclass(frozen=True)
class Fault:
    """A failure of the command, which proves nothing about the configuration.

    ``said`` are the last lines of its output; journals use this name as a key.
    """

    why: str
    said: str = ""

    def __str__(self) -> str:
        return f"{self.why}\n{self.said}" if self.said else self.why


Answer = Value | Unusable | Fault


def parse(printed: str) -> Answer:
    """Return the answer in the last line, or a Fault if it cannot be read."""
    lines = [line.strip() for line in split_lines(printed) if line.strip()]
    if not lines:
        return Fault("it printed no answer")
    try:
        answer = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return Fault(f"the last line of output is not JSON: {_shortened(lines[-1])}")
    if not isinstance(answer, dict) or ("value" in answer) == ("infeasible" in answer):
        return Fault(
            f'the last line of output must be {{"value": …}} or {{"infeasible": "why"}}: '
            f"{_shortened(lines[-1])}"
        )
    return _unusable(answer["infeasible"]) if "infeasible" in answer else _value(answer)


def _unusable(why: object) -> Answer:
    if why in (None, False):
        return Fault(f'"infeasible" must be a reason in words, not {json.dumps(why)}')
    words = why.encode(errors="replace").decode() if isinstance(why, str) else ""
    return Unusable(words if words.strip() else "no reason given")


def _value(answer: dict[str, Any]) -> Answer:
    value, sd = _number(answer["value"]), _number(answer.get("sd"))
    if value is None:
        return Fault(f'"value" is not a finite number: {_shortened(json.dumps(answer["value"]))}')
    if answer.get("sd") is not None and (sd is None or sd < 0):
        return Fault(f'"sd" is not a number of 0 or more: {_shortened(json.dumps(answer["sd"]))}')
    return Value(value, sd)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


_WATCH = 'while read -r group; do last=$group; done; [ "$last" -eq 0 ] || kill -s KILL -- "-$last"'


class Lifeline:
    """Kills a process group when this process exits, even if this process is killed.

    A shell waits at the other end of a pipe, which the kernel closes when this process is gone. Until
    then, the shell only remembers the last group.
    """

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", f"last=0; {_WATCH}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )

    def hold(self, group: int) -> None:
        """Kill this process group (by its id) when this process exits."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{group}\n".encode())
        self._shell.stdin.flush()

    def let_go(self) -> None:
        self.hold(0)

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


SCHEMA = 1
GRACE = 2.0  # seconds between SIGTERM and SIGKILL
LAST_WORDS = 12  # lines of standard error to keep


class Benchmark:
    """Runs ``argv`` without a shell; a call times out after ``timeout`` seconds."""

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
        """Call the command once; afterwards none of its process group is left."""
        question = {"schema": SCHEMA, "trial": trial, "parameters": dict(parameters)}
        with (
            tempfile.TemporaryFile() as question_file,
            tempfile.TemporaryFile() as printed,
            tempfile.TemporaryFile() as stderr,
        ):
            # Files instead of pipes: unread input and an output that stays open cannot block.
            question_file.write(json.dumps(question).encode() + b"\n")
            question_file.seek(0)
            try:
                code = self._call(trial, question_file, printed, stderr)
            except OSError as error:
                return Fault(f"cannot start {self._argv[0]}: {error.strerror}")
            if code is None:
                return Fault(f"it gave no answer within {self._timeout:g} s", _last_words(stderr))
            if code:
                return Fault(_ending(code), _last_words(stderr))
            answer = parse(_text(printed))
            return Fault(answer.why, _last_words(stderr)) if isinstance(answer, Fault) else answer

    def _call(
        self, trial: int, question_file: IO[bytes], printed: IO[bytes], stderr: IO[bytes]
    ) -> int | None:
        """Return the exit code, or ``None`` after a timeout."""
        process = subprocess.Popen(
            self._argv,
            cwd=self._directory,
            env={**self._environment, "AUTOTUNE_TRIAL": str(trial)},
            stdin=question_file,
            stdout=printed,
            stderr=stderr,
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
            # The process is not reaped yet, so that the kernel cannot reuse the group's id.
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            self._lifeline.let_go()
        return process.returncode if over else None


def _wait(pid: int, seconds: float) -> bool:
    """True if the process exited within ``seconds``; the caller still has to reap it."""
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
        return f"exit status {code}"
    return f"killed by signal {-code} ({signal.strsignal(-code) or 'unknown'})"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _last_words(file: IO[bytes]) -> str:
    return "\n".join(split_lines(_text(file).strip())[-LAST_WORDS:])
