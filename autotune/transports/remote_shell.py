"""Build command lines that every login shell parses in the same way, with markers around the
output.

sshd passes one line of text to the account's login shell (RFC 4254, 6.5). The shell may be csh or fish,
and its profile may print any text. The line therefore contains one single-quoted word for `sh`, without
characters that login shells interpret. `sh` prints random markers before and after the command. The
markers separate the command's output from the output of banners and profiles.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.transports.base import Argv

_VARIABLE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Within single quotes, csh expands `!` and stops at a newline; fish interprets `\'` and `\\`.
_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\!")
_MAX_PREAMBLE_BYTES = 4096  # maximum number of bytes that are kept outside of the markers
_STATUS_PATTERN = re.compile(rb"(\d{1,3}) ")
# Do not use `exec`, because restricted shells refuse it.
_LOGIN_SHELL_LINE = """sh -c 'eval "$(printf %b "$1")"' sh '{}'"""


def build_shell_script(
    argv: Argv,
    *,
    timeout: float,
    sudo: bool = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Return a line for `sh` that runs ``argv`` without interpreting any argument.

    After ``timeout`` seconds, the host kills the command and its children, even after a disconnect.
    Commands that run as another user (``sudo``) are not killed. ``sudo`` never asks for a password.
    ``env`` is set in the command after sudo, because sudo clears the environment. Raises
    ``AutotuneError`` for invalid arguments.
    """
    for name in env or {}:
        if not _VARIABLE_PATTERN.fullmatch(name):
            raise AutotuneError(f"{name!r} is not a valid environment variable name")
    variables = [f"{name}={value}" for name, value in (env or {}).items()]
    environment_words = ["env", *variables] if variables else []
    command_words = [*(["sudo", "-n", "--"] if sudo else []), *environment_words, *argv]
    if not argv or any("\0" in word for word in (*command_words, cwd or "")):
        raise AutotuneError(f"invalid command: {list(argv)!r}")
    timeout_words = ["timeout", "-s", "KILL", "--", f"{max(timeout, 0.001):.3f}", *command_words]
    directory_command = f"cd -- {shlex.quote(cwd)} && " if cwd is not None else ""
    return directory_command + " ".join(map(shlex.quote, timeout_words))


def encode_word(text: str) -> str:
    """Return ``text`` with `printf %b` octal escapes for characters that a login shell interprets."""
    return "".join(
        chr(byte) if byte in _PLAIN_BYTES else f"\\0{byte:03o}"
        for byte in text.encode(errors="surrogateescape")
    )


@dataclass(frozen=True)
class OutputMarks:
    """Markers that are printed before and after a command's output, on standard output and standard
    error. Each command has unique markers.
    """

    start: str = field(default_factory=lambda: secrets.token_hex(16))
    end: str = field(default_factory=lambda: secrets.token_hex(16))

    def build_line(self, script: str) -> str:
        """Return the line for the login shell that prints the markers before and after running
        ``script``.
        """
        framed_script = (
            f"printf {self.start}; printf {self.start} >&2\n"
            f"{script}\n"
            f"set -- $?; printf '{self.end}%s ' $1; printf {self.end} >&2; exit $1\n"
        )
        return _LOGIN_SHELL_LINE.format(encode_word(framed_script))


class MarkedStream:
    """An output stream of a login shell, split into the bytes before, between and after the markers."""

    def __init__(self, marks: OutputMarks) -> None:
        self._start, self._end = marks.start.encode(), marks.end.encode()
        self.before, self.output, self.after = bytearray(), bytearray(), bytearray()
        self.started = self.ended = False

    def add_output(self, piece: bytes) -> None:
        """Append the next bytes of the stream, and split them at the markers."""
        if not self.started:
            piece = self._find_start_mark(piece)
        if self.ended:
            self.after += piece[: max(0, _MAX_PREAMBLE_BYTES - len(self.after))]
        elif self.started:
            self._find_end_mark(piece)

    def _find_start_mark(self, output_piece: bytes) -> bytes:
        before, mark, output_after_mark = (bytes(self.before) + output_piece).partition(self._start)
        self.started = bool(mark)
        # Limit memory use, because a profile may print endlessly.
        self.before[:] = before[-_MAX_PREAMBLE_BYTES:]
        return output_after_mark

    def _find_end_mark(self, output_piece: bytes) -> None:
        search_start = max(0, len(self.output) - len(self._end))
        self.output += output_piece
        end_position = self.output.find(self._end, search_start)
        if end_position >= 0:
            self.ended = True
            self.after += self.output[end_position + len(self._end) :]
            del self.output[end_position:]

    @property
    def exit_status(self) -> int | None:
        """Return the command's exit status, which follows the end marker on standard output."""
        match = _STATUS_PATTERN.match(self.after) if self.ended else None
        return int(match[1]) if match else None
