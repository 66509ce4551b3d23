"""Command lines that any login shell reads alike, with marks around what the command prints.

sshd hands one line of text to the login shell of the account (RFC 4254, 6.5), which may be csh or
fish, and whose profile may print anything. The line holds one word for `sh`, in characters that all
these shells leave as they are between single quotes. `sh` prints unpredictable marks before and after
the command, so that neither banners nor the words of a profile become part of its output.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.transports.base import Argv

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Within single quotes, csh expands `!` and ends at a newline; fish reads `\'` and `\\`.
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\!")
_KEPT = 4096  # bytes of what comes before the mark, for a message
_STATUS = re.compile(rb"(\d{1,3}) ")
# Without `exec`: a restricted shell refuses it.
_LINE = """sh -c 'eval "$(printf %b "$1")"' sh '{}'"""


def shell_script(
    argv: Argv,
    *,
    timeout: float,
    sudo: bool = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """A line for `sh` that runs exactly ``argv``; raises ``AutotuneError`` if none can.

    After ``timeout`` seconds the host itself kills it and what it started, also if nobody is
    connected any more, unless it runs as another user (``sudo``). ``sudo`` never asks for a
    password. It clears the environment, so ``env`` is set behind it.
    """
    for name in env or {}:
        if not _VARIABLE.fullmatch(name):
            raise AutotuneError(f"{name!r} is not the name of an environment variable")
    variables = [f"{name}={value}" for name, value in (env or {}).items()]
    environment = ["env", *variables] if variables else []
    words = [*(["sudo", "-n", "--"] if sudo else []), *environment, *argv]
    if not argv or any("\0" in word for word in (*words, cwd or "")):
        raise AutotuneError(f"not a command: {list(argv)!r}")
    limited = ["timeout", "-s", "KILL", "--", f"{max(timeout, 0.001):.3f}", *words]
    directory = f"cd -- {shlex.quote(cwd)} && " if cwd is not None else ""
    return directory + " ".join(map(shlex.quote, limited))


def encode_word(text: str) -> str:
    """``text`` with octal escapes of `printf %b` for what a login shell could take for its own."""
    return "".join(
        chr(byte) if byte in _PLAIN else f"\\0{byte:03o}"
        for byte in text.encode(errors="surrogateescape")
    )


@dataclass(frozen=True)
class Marks:
    """What is printed before and after a command, on both streams; no other command has the same."""

    start: str = field(default_factory=lambda: secrets.token_hex(16))
    end: str = field(default_factory=lambda: secrets.token_hex(16))

    def line(self, script: str) -> str:
        """The line for a login shell that runs ``script`` between these marks."""
        framed = (
            f"printf {self.start}; printf {self.start} >&2\n"
            f"{script}\n"
            f"set -- $?; printf '{self.end}%s ' $1; printf {self.end} >&2; exit $1\n"
        )
        return _LINE.format(encode_word(framed))


class MarkedStream:
    """One stream of a login shell: what comes before the start mark, the output, what comes after."""

    def __init__(self, marks: Marks) -> None:
        self._start, self._end = marks.start.encode(), marks.end.encode()
        self.before, self.output, self.after = bytearray(), bytearray(), bytearray()
        self.started = self.ended = False

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        if not self.started:
            piece = self._find_start(piece)
        if self.ended:
            self.after += piece[: max(0, _KEPT - len(self.after))]
        elif self.started:
            self._find_end(piece)

    def _find_start(self, piece: bytes) -> bytes:
        before, mark, rest = (bytes(self.before) + piece).partition(self._start)
        self.started = bool(mark)
        self.before[:] = before[-_KEPT:]  # a profile may print without end
        return rest

    def _find_end(self, piece: bytes) -> None:
        searched = max(0, len(self.output) - len(self._end))
        self.output += piece
        at = self.output.find(self._end, searched)
        if at >= 0:
            self.ended = True
            self.after += self.output[at + len(self._end) :]
            del self.output[at:]

    @property
    def status(self) -> int | None:
        """The exit status of the command, which follows the end mark on standard output."""
        match = _STATUS.match(self.after) if self.ended else None
        return int(match[1]) if match else None
