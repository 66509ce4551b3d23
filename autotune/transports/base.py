"""Interface between autotune and a host, which runs commands, and writes and reads files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.errors import AutotuneError

Argv = Sequence[str]


@dataclass(frozen=True)
class CommandResult:
    """Result of a finished command. ``returncode`` is negative if a signal ended the command."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    @property
    def error_text(self) -> str:
        """Return the command's error text: stderr or, if that is empty, stdout."""
        return (self.stderr.strip() or self.stdout.strip())[:4000]

    @property
    def text(self) -> str:
        """Return stdout or, if that is blank, the error text."""
        return self.stdout if self.stdout.strip() else self.error_text


class Transport(Protocol):
    """Access to one host. Commands are lists of arguments, which no shell interprets.

    Every method raises ``HostUnreachable`` if the host cannot be reached or the time limit expires.
    """

    @property
    def name(self) -> str: ...

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # noqa: A002  # subprocess uses this name
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run ``argv`` for at most ``timeout`` seconds. A nonzero exit status raises no error."""
        ...

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Write ``content`` to ``path`` atomically, with the permissions ``mode``. Parent
        directories must exist.
        """
        ...

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """Return the bytes of ``path``, or ``None`` if the file does not exist."""
        ...

    def close(self) -> None: ...


class HostUnreachable(AutotuneError):
    """A host did not respond, refused the connection or exceeded the time limit."""


class ConnectionLost(HostUnreachable):
    """The connection was lost while a command ran. It is unknown whether the command took effect."""


class HostKeyRejected(HostUnreachable):
    """A host presented a key that does not match the known keys."""


_ADDRESS_PATTERN = re.compile(r"[A-Za-z0-9_\[:][A-Za-z0-9._:%\[\]-]*")
_USER_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]*\$?")


@dataclass(frozen=True)
class SshHost:
    """A host reached over SSH. The SSH configuration, or else OpenSSH's default, replaces fields that
    are ``None``.

    ``name`` appears in messages. ``address`` is a DNS name, an IP address or a ``Host`` in the SSH
    configuration. ``config_file`` is the path for ``ssh -F``; ``None`` means ``~/.ssh/config`` and
    the system-wide file. ``identity_file`` is the path of a private key that is offered before the
    agent's keys. ``known_hosts`` is the path of the only file with known host keys. ``jump_host``
    lists jump hosts as ``[user@]host[:port]``, separated by commas. ``connect_timeout`` is in
    seconds, and applies separately to the connection, the greeting and authentication.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    jump_host: str | None = None
    connect_timeout: float = 10.0
    config_file: str | None = None

    def __post_init__(self) -> None:
        """Raise ``AutotuneError`` for an invalid field, because commands in ssh_config may contain the
        field.
        """
        if not _ADDRESS_PATTERN.fullmatch(self.address):
            raise AutotuneError(f"{self.name}: {self.address!r} is not a valid host address")
        if self.user is not None and not _USER_PATTERN.fullmatch(self.user):
            raise AutotuneError(f"{self.name}: {self.user!r} is not a valid user name")
        if self.port is not None and not 0 < self.port < 65536:
            raise AutotuneError(f"{self.name}: {self.port} is not a port (1 to 65535)")
        if self.connect_timeout <= 0:
            raise AutotuneError(
                f"{self.name}: connect timeout {self.connect_timeout} s is not above 0"
            )
