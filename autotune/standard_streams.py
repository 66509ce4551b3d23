"""Standard input, output and error, whatever the caller left of them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from autotune.errors import AutotuneError


class OutputError(AutotuneError):
    """Standard output is closed, or its file system is full: the result cannot be printed."""


@contextlib.contextmanager
def convert_output_errors() -> Iterator[None]:
    """Raise OutputFailed for what the system says of standard output, but for a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.EBADF:
            raise OutputError(
                "standard output is closed", hint="`> FILE` or `> /dev/null` opens it"
            ) from None
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"standard output cannot be written: {reason}") from None


class _CheckedOutput(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with convert_output_errors():
            return super().write(text)

    def flush(self) -> None:
        with convert_output_errors():
            super().flush()


class _LenientErrorOutput(io.TextIOWrapper):
    """Standard error. If it cannot be written, no one can be told, and the command goes on."""

    def write(self, text: str, /) -> int:
        with _ignore_write_errors():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with _ignore_write_errors():
            super().flush()


@contextlib.contextmanager
def _ignore_write_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def prepare_streams() -> None:
    """Open what is closed, so that no file of a study gets its number; say what fails, and how.

    Input that was closed has nothing in it, errors go nowhere, and output fails when it is used.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # until the end
    sys.stdout = _wrap_stream(sys.stdout, sys.__stdout__, 1, _CheckedOutput)
    sys.stderr = _wrap_stream(sys.stderr, sys.__stderr__, 2, _LenientErrorOutput)


def _wrap_stream(
    stream: TextIO | None, original: TextIO | None, descriptor: int, kind: type[io.TextIOWrapper]
) -> TextIO:
    if stream is not None and (stream is not original or isinstance(stream, kind)):
        return stream  # a test's
    encoding = getattr(stream, "encoding", "utf-8")
    buffer = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    # Latin-1 has no `→`.
    return kind(buffer, encoding=encoding, errors="replace", line_buffering=True)


def discard_output() -> None:
    """Drop what could not be printed, which Python would try again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
