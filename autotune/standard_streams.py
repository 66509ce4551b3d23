"""Make standard input, output and error usable, even if the caller closed them."""

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
    """Raise OutputError if standard output fails for any reason except a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.EBADF:
            raise OutputError(
                "standard output is closed", hint="redirect it with `> FILE` or `> /dev/null`"
            ) from None
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write to standard output: {reason}") from None


class _CheckedOutput(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with convert_output_errors():
            return super().write(text)

    def flush(self) -> None:
        with convert_output_errors():
            super().flush()


class _LenientErrorOutput(io.TextIOWrapper):
    """Standard error. If text cannot be written to it, the command continues. A closed pipe must not
    change the exit status either.
    """

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """Open closed standard streams, so that no file of a study gets their descriptor numbers.

    A closed standard input is empty, closed standard error discards text, and closed standard output
    fails on use.
    """
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # open until exit
    sys.stdout = _wrap_stream(sys.stdout, sys.__stdout__, 1, _CheckedOutput)
    sys.stderr = _wrap_stream(sys.stderr, sys.__stderr__, 2, _LenientErrorOutput)


def _wrap_stream(
    stream: TextIO | None,
    original_stream: TextIO | None,
    descriptor: int,
    wrapper_class: type[io.TextIOWrapper],
) -> TextIO:
    if stream is not None and (stream is not original_stream or isinstance(stream, wrapper_class)):
        return stream  # a test has replaced the stream
    encoding = getattr(stream, "encoding", "utf-8")
    buffer = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    # Replace characters that the encoding lacks, such as `→` in Latin-1.
    return wrapper_class(buffer, encoding=encoding, errors="replace", line_buffering=True)


def discard_output() -> None:
    """Discard unprinted output, which Python would otherwise try to write again at exit."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 1)
    os.close(null_device)
