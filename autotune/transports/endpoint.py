"""Where a host is and how to get in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotune.errors import AutotuneError

_ADDRESS = re.compile(r"[A-Za-z0-9_\[:][A-Za-z0-9._:%\[\]-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]*\$?")


@dataclass(frozen=True)
class SshHost:
    """A host reached over SSH. ``None`` means: as the SSH configuration has it, else the default.

    ``name``: what messages call it. ``address``: a DNS name, an IP address or a ``Host`` of the
    SSH configuration. ``config``: path of that, as ``ssh -F`` takes it; ``None``:
    ``~/.ssh/config`` and that of the system. ``identity``: path of a private key to offer before
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
