"""Where a host is and how to get in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SshHost:
    """A host reached over SSH. What is ``None`` is taken from ``~/.ssh/config``, then from defaults.

    ``name``: what messages call it. ``address``: a DNS name, an IP address or a ``Host`` of
    ``~/.ssh/config``. ``identity``: path of a private key to offer before the agent's.
    ``known_hosts``: path of the only file to look host keys up in. ``jump``: hosts to go through,
    ``[user@]host[:port]``, separated by commas. ``connect_timeout``: seconds, for each of
    connection, greeting and authentication.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    jump: str | None = None
    connect_timeout: float = 10.0
