"""How a host is reached: the whole contract between autotune and a machine it works on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.errors import AutotuneError

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
    def error_text(self) -> str:
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
        """Run ``argv`` to its end within ``timeout`` seconds; a command that fails raises nothing."""
        ...

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Write ``content`` to ``path`` (parents must exist), atomically, with these bits."""
        ...

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """The bytes of ``path``, or ``None`` if there is no such file."""
        ...

    def close(self) -> None: ...


class HostUnreachable(AutotuneError):
    """A host did not answer, refused the connection or did not finish in time."""


class HostKeyRefused(HostUnreachable):
    """A host showed a key that is not known to be its own."""


_ADDRESS = re.compile(r"[A-Za-z0-9_\[:][A-Za-z0-9._:%\[\]-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]*\$?")


@dataclass(frozen=True)
class SshHost:
    """A host reached over SSH. ``None`` means: as the SSH configuration has it, else the default.

    ``name``: what messages call it. ``address``: a DNS name, an IP address or a ``Host`` of the
    SSH configuration. ``config``: path of the configuration, as ``ssh -F`` takes it; ``None``:
    ``~/.ssh/config`` and the system's. ``identity``: path of a private key to offer before
    those of the agent. ``known_hosts``: path of the only file to look host keys up in. ``jump``:
    hosts to go through, ``[user@]host[:port]``, separated by commas. ``connect_timeout``: seconds,
    for each of connection, greeting and authentication.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    jump: str | None = None
    connect_timeout: float = 10.0
    config: str | None = None

    def __post_init__(self) -> None:
        """Raise ``AutotuneError`` for what is no address: ssh_config may hand it to programs."""
        if not _ADDRESS.fullmatch(self.address):
            raise AutotuneError(f"{self.name}: {self.address!r} is not a host's address")
        if self.user is not None and not _USER.fullmatch(self.user):
            raise AutotuneError(f"{self.name}: {self.user!r} is not a user's name")
        if self.port is not None and not 0 < self.port < 65536:
            raise AutotuneError(f"{self.name}: {self.port} is not a port (1 to 65535)")
        if self.connect_timeout <= 0:
            raise AutotuneError(f"{self.name}: a time to connect of {self.connect_timeout} s")
