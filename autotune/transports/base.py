"""How a host is reached: the whole contract between autotune and a machine it works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Argv = Sequence[str]


@dataclass(frozen=True)
class Completed:
    """What a finished command left: its exit status (negative: ended by that signal) and output."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    @property
    def said(self) -> str:
        """Its own words, for an error message: stderr if any, else stdout."""
        return (self.stderr.strip() or self.stdout.strip())[:4000]


class Transport(Protocol):
    """One host. Commands are argv lists: no value ever passes through a shell.

    Every method raises ``HostUnreachable`` when the host cannot be reached or the time is up.
    """

    @property
    def name(self) -> str: ...

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # noqa: A002  # as subprocess calls it
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run ``argv`` to its end within ``timeout`` seconds; failing is no exception."""
        ...

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Write ``content`` to ``path`` (parents must exist), atomically, with these bits."""
        ...

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """The bytes of ``path``, or ``None`` if there is no such file."""
        ...

    def close(self) -> None: ...
