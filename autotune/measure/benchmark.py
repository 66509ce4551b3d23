"""A user's own benchmark: a command that receives parameters and prints a value.

The command gets ``{"schema": 1, "trial": n, "parameters": {…}}`` on standard input and runs in the
target's directory. The command inherits autotune's environment variables; autotune adds
``AUTOTUNE_STUDY`` and ``AUTOTUNE_TRIAL``. The command leads its own process group. When the command
exits, autotune kills the rest of the group.

The last line of the output is the result as one JSON object: ``{"value": 41.2}``, or ``{"infeasible":
"why"}`` for an unusable configuration. The command may add the standard deviation of the value as
``"sd"``. Other keys are ignored.
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

from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.strict_parsing import split_lines


@dataclass(frozen=True)
class BenchmarkValue:
    """A measured value; ``sd`` is the standard deviation that the command reported, if any."""

    value: float
    sd: float | None = None


@dataclass(frozen=True)
class UnusableConfiguration:
    """The command reported that the configuration cannot be used."""

    why: str


@dataclass(frozen=True)
class BenchmarkFault:
    """A failure of the command, which reveals nothing about the configuration.

    ``said`` contains the last lines of the command's standard error.
    """

    why: str
    said: str = ""

    def __str__(self) -> str:
        return f"{self.why}\n{self.said}" if self.said else self.why


BenchmarkAnswer = BenchmarkValue | UnusableConfiguration | BenchmarkFault


def parse_answer(output: str) -> BenchmarkAnswer:
    """Return the result in the last line, or a `BenchmarkFault` if the line cannot be read."""
    output_lines = [line.strip() for line in split_lines(output) if line.strip()]
    if not output_lines:
        return BenchmarkFault("it printed no result")
    try:
        result_object = json.loads(output_lines[-1])
    except (ValueError, RecursionError):
        return BenchmarkFault(
            f"the last line of output is not JSON: {_shorten_text(output_lines[-1])}"
        )
    if not isinstance(result_object, dict) or ("value" in result_object) == (
        "infeasible" in result_object
    ):
        return BenchmarkFault(
            f'the last line of output must be {{"value": …}} or {{"infeasible": "why"}}: '
            f"{_shorten_text(output_lines[-1])}"
        )
    return (
        _build_unusable(result_object["infeasible"])
        if "infeasible" in result_object
        else _build_value(result_object)
    )


def _build_unusable(reason: object) -> BenchmarkAnswer:
    if reason in (None, False):
        return BenchmarkFault(f'"infeasible" must be a reason in words, not {json.dumps(reason)}')
    reason_text = reason.encode(errors="replace").decode() if isinstance(reason, str) else ""
    return UnusableConfiguration(reason_text if reason_text.strip() else "no reason given")


def _build_value(result_object: dict[str, Any]) -> BenchmarkAnswer:
    value, value_sd = _parse_number(result_object["value"]), _parse_number(result_object.get("sd"))
    if value is None:
        return BenchmarkFault(
            f'"value" is not a finite number: {_shorten_text(json.dumps(result_object["value"]))}'
        )
    if result_object.get("sd") is not None and (value_sd is None or value_sd < 0):
        return BenchmarkFault(
            f'"sd" is negative or not a number: {_shorten_text(json.dumps(result_object["sd"]))}'
        )
    return BenchmarkValue(value, value_sd)


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _shorten_text(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


_WATCHDOG_SCRIPT = (
    'while read -r group; do last=$group; done; [ "$last" -eq 0 ] || kill -s KILL -- "-$last"'
)


class ProcessGroupWatchdog:
    """A watchdog that kills a process group when this process exits, even if this process is
    killed.

    A shell reads group IDs from a pipe, which the kernel closes when this process exits. The shell then
    kills the last group.
    """

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", f"last=0; {_WATCHDOG_SCRIPT}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not stop the shell
        )

    def watch_group(self, group: int) -> None:
        """Let the watchdog kill the process group with the ID ``group`` when this process exits."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{group}\n".encode())
        self._shell.stdin.flush()

    def release_group(self) -> None:
        self.watch_group(0)

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


SCHEMA_VERSION = 1
GRACE_SECONDS = 2.0  # time between SIGTERM and SIGKILL
MAX_STDERR_LINES = 12  # number of lines of standard error to keep
# numbers of bytes that are read at the end of standard output and of standard error
MAX_OUTPUT_BYTES, MAX_STDERR_BYTES = 1 << 20, 1 << 13
MAX_POLL_MILLISECONDS = 2**31 - 1  # limit of poll(2), almost 25 days


class Benchmark:
    """A user's benchmark command: ``argv`` runs without a shell, for at most ``timeout`` seconds per
    call.
    """

    def __init__(self, argv: Sequence[str], directory: Path, timeout: float, study: str) -> None:
        self._argv, self._directory, self._timeout = tuple(argv), directory, timeout
        self._environment: Mapping[str, str] = {**os.environ, "AUTOTUNE_STUDY": study}

    def __enter__(self) -> Self:
        self._watchdog = ProcessGroupWatchdog()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.close()

    def call_program(self, trial: int, parameters: Settings) -> BenchmarkAnswer:
        """Call the command once. All processes of its group have exited when the method returns.

        Raises AutotuneError if the command takes too long, and this account may not stop it.
        """
        request = {"schema": SCHEMA_VERSION, "trial": trial, "parameters": dict(parameters)}
        with (
            tempfile.TemporaryFile() as request_file,
            tempfile.TemporaryFile() as output_file,
            tempfile.TemporaryFile() as error_file,
        ):
            # Use files. A pipe would block if the command does not read its input, or if another
            # process keeps the output open.
            request_file.write(json.dumps(request).encode() + b"\n")
            request_file.seek(0)
            try:
                exit_code = self._run_command(trial, request_file, output_file, error_file)
            except OSError as error:
                return BenchmarkFault(f"cannot start {self._argv[0]}: {error.strerror}")
            if exit_code is None:
                return BenchmarkFault(
                    f"it printed no result within {self._timeout:g} s", _read_tail(error_file)
                )
            if exit_code:
                return BenchmarkFault(_describe_exit(exit_code), _read_tail(error_file))
            benchmark_answer = parse_answer(_read_end(output_file, MAX_OUTPUT_BYTES))
            return (
                BenchmarkFault(benchmark_answer.why, _read_tail(error_file))
                if isinstance(benchmark_answer, BenchmarkFault)
                else benchmark_answer
            )

    def _run_command(
        self, trial: int, request_file: IO[bytes], output_file: IO[bytes], error_file: IO[bytes]
    ) -> int | None:
        """Return the command's exit code, or ``None`` after a timeout."""
        process = subprocess.Popen(
            self._argv,
            cwd=self._directory,
            env={**self._environment, "AUTOTUNE_TRIAL": str(trial)},
            stdin=request_file,
            stdout=output_file,
            stderr=error_file,
            start_new_session=True,
        )
        self._watchdog.watch_group(process.pid)
        has_ended = False
        try:
            has_ended = _wait_until_ended(process.pid, self._timeout)
        finally:
            if not has_ended:
                _signal_group(process.pid, signal.SIGTERM)
                _wait_until_ended(process.pid, GRACE_SECONDS)
            # The process is not reaped yet, so the kernel cannot reuse the ID of its group.
            is_permitted = _signal_group(process.pid, signal.SIGKILL)
            if not is_permitted and not _wait_until_ended(process.pid, 0.0):
                raise _build_unstoppable_error(self._argv[0])
            process.wait()
            self._watchdog.release_group()
        return process.returncode if has_ended else None


def _wait_until_ended(pid: int, seconds: float) -> bool:
    """True if the process exited within ``seconds``. The caller must reap the process."""
    process_handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(process_handle, select.POLLIN)
        return bool(poll.poll(min(seconds * 1000, MAX_POLL_MILLISECONDS)))
    finally:
        os.close(process_handle)


def _signal_group(process_group: int, sent_signal: signal.Signals) -> bool:
    """Send a signal to a group. Return false if this account may signal none of its processes.

    Programs such as ``sudo`` run under another account, and belong to it even after their end.
    """
    try:
        os.killpg(process_group, sent_signal)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _build_unstoppable_error(program: str) -> AutotuneError:
    return AutotuneError(
        f"{program} runs under another account, and this account cannot stop it",
        hint="stop it yourself, and run autotune under the account of the command",
    )


def _describe_exit(exit_code: int) -> str:
    if exit_code > 0:
        return f"exit status {exit_code}"
    return f"killed by signal {-exit_code} ({signal.strsignal(-exit_code) or 'unknown'})"


def _read_end(file: IO[bytes], max_bytes: int) -> str:
    """Return the last ``max_bytes`` bytes of a file as text."""
    file_size = file.seek(0, os.SEEK_END)
    file.seek(max(0, file_size - max_bytes))
    return file.read(max_bytes).decode(errors="replace")


def _read_tail(file: IO[bytes]) -> str:
    return "\n".join(split_lines(_read_end(file, MAX_STDERR_BYTES).strip())[-MAX_STDERR_LINES:])
