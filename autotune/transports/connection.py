"""A Fabric connection that checks whom it talks to and gives up in time."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabric import Config, Connection
from paramiko import PKey, SSHClient, Transport
from paramiko.ssh_exception import (
    AuthenticationException,
    ChannelException,
    NoValidConnectionsError,
    PasswordRequiredException,
    SSHException,
)

from autotune.errors import AutotuneError
from autotune.strict import is_whole
from autotune.transports import hostkeys
from autotune.transports.base import HostKeyRefused, HostUnreachable, SshHost
from autotune.transports.hostkeys import SUFFIX, HostKey, KnownKey, certificate_of
from autotune.transports.ssh_settings import read_settings

_KEEP_ALIVE = 10  # s between signs of life on an idle connection
_DEAD = 20.0  # s without an answer to one until the connection counts as lost
_GLOBAL = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_USER = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")

# Its threads log what is raised here anyway, tracebacks included, to standard error.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def opened(host: SshHost) -> Connection:
    """An open connection to ``host``; raises ``HostUnreachable`` or ``HostKeyRefused``."""
    connection = _connection(host, read_settings, ())
    try:
        with explained(host, connection):
            connection.open()
            # Send small messages at once, and notice a dead peer within half a minute.
            connection.transport.set_keepalive(_KEEP_ALIVE)
            sock = connection.transport.sock
            if isinstance(sock, socket.socket):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_DEAD * 1000))
    except BaseException:
        close(connection)
        raise
    return connection


def close(connection: Connection) -> None:
    """Close it, whatever state it is in, and the connections it goes through."""
    connection.client.close()
    if isinstance(connection.gateway, Connection):
        close(connection.gateway)


@contextlib.contextmanager
def explained(host: SshHost, connection: Connection) -> Iterator[None]:
    """Say in the user's words what the libraries raise while connecting."""
    where = f"{connection.user}@{hostkeys.name_in_file(connection.host, connection.port)}"
    port = "" if connection.port in (None, 22) else f"-p {connection.port} "
    by_hand = f"`ssh {port}{connection.user}@{connection.host}`"
    try:
        yield
    except AutotuneError:
        raise
    except PasswordRequiredException:
        raise HostUnreachable(
            f"{host.name}: the key for {where} is locked with a passphrase",
            hint="unlock it in an agent first: ssh-add " + (host.identity or "KEY"),
        ) from None
    except AuthenticationException:
        raise HostUnreachable(
            f"{host.name}: {where} does not let us in",
            hint=f"{by_hand} must work without a password: by agent, key or ~/.ssh/config",
        ) from None
    except (socket.gaierror, NoValidConnectionsError) as error:
        raise HostUnreachable(
            f"{host.name}: {where}: {error.strerror}",
            hint=f"{by_hand} must work from this machine: check the name, the port and sshd there",
        ) from None
    except TimeoutError:
        raise HostUnreachable(
            f"{host.name}: {where} did not answer within {host.connect_timeout:g} s",
            hint="is it up, and does a firewall let this machine in?",
        ) from None
    except ChannelException as error:
        raise HostUnreachable(
            f"{host.name}: {where} allows no session: {error.text}",
            hint="MaxSessions in sshd_config on that host must be 1 or more",
        ) from None
    except (SSHException, OSError, EOFError) as error:
        reason = str(error) or "the connection was closed"
        no_ssh = "banner" in reason  # the library's word for it
        raise HostUnreachable(
            f"{host.name}: {where}: {'no SSH server answers there, or too late' if no_ssh else reason}",
            hint=f"{by_hand} must work from this machine: check the name, the port and sshd there",
        ) from None


def _connection(
    host: SshHost, read: Callable[[SshHost], Config], through: tuple[str, ...]
) -> Connection:
    config = read(host)
    options = config.base_ssh_config.lookup(host.address)
    if host.identity and not Path(host.identity).expanduser().exists():
        raise HostUnreachable(f"{host.name}: there is no key {host.identity}")
    agent = options.get("identitiesonly", "no") != "yes"
    connection = Connection(
        host.address,
        user=host.user,
        port=host.port,
        config=config,
        gateway=_gateway(host, options, read, through),
        forward_agent=False,
        connect_timeout=math.ceil(host.connect_timeout),
        connect_kwargs={
            "key_filename": [host.identity] if host.identity else [],
            "allow_agent": agent,
            "look_for_keys": agent and host.identity is None,
            "banner_timeout": host.connect_timeout,
            "auth_timeout": host.connect_timeout,
            "channel_timeout": host.connect_timeout,
        },
    )
    files = known_hosts_files(host, options)
    alias = options.get("hostkeyalias")
    name = alias or hostkeys.name_in_file(connection.host, connection.port)
    policy = _HostKeyPolicy(host.name, name, alias or connection.host, files)
    connection.client = SSHClient()
    connection.client.set_missing_host_key_policy(policy)
    connection.connect_kwargs["transport_factory"] = policy.transport
    # ~/.ssh/config may name keys that are not here; the target's own was checked above.
    keys = [Path(key).expanduser() for key in connection.connect_kwargs.get("key_filename", [])]
    connection.connect_kwargs["key_filename"] = [str(key) for key in keys if key.exists()]
    return connection


def _gateway(
    host: SshHost,
    options: Mapping[str, Any],
    read: Callable[[SshHost], Config],
    through: tuple[str, ...],
) -> Connection | str | bool:
    """What the connection goes through: the last of the jump hosts, a command, or nothing."""
    jumps = host.jump or options.get("proxyjump", "none")
    if jumps == "none":
        command = options.get("proxycommand", "none")
        return False if command == "none" else str(command)
    (*before, last) = jumps.split(",")
    (user, _, address) = last.strip().rpartition("@")
    (name, colon, port) = address.rpartition(":")
    if not (colon and is_whole(port) and (name.endswith("]") or ":" not in name)):
        (name, port) = (address, "")  # a colon of IPv6, if any
    name = name.strip("[]")
    if host.jump is None and name in (*through, host.address):
        return False  # a pattern that gives every host this jump gives it to the jump host too
    hop = replace(
        host,
        name=f"{host.name} (jump host {last.strip()})",
        address=name,
        user=user or None,
        port=int(port) if port else None,
        jump=",".join(before) or None,
    )
    return _connection(hop, read, (*through, host.address))


def known_hosts_files(host: SshHost, options: Mapping[str, Any]) -> tuple[Path, ...]:
    """Where the host's key is looked up, the file a new one belongs in first.

    ``options``: what the SSH configuration says of the host.
    """
    if host.known_hosts is not None:
        return (Path(host.known_hosts).expanduser(),)
    user = str(options.get("userknownhostsfile", "")).split() or _USER
    everybody = str(options.get("globalknownhostsfile", "")).split() or _GLOBAL
    return tuple(Path(name).expanduser() for name in (*user, *everybody) if name != "none")


class _HostKeyPolicy:
    """Checks every host key: the library is given no known keys, so it asks about each.

    ``name`` is what known_hosts calls the host, ``principal`` what a certificate calls it.
    """

    def __init__(self, host: str, name: str, principal: str, files: tuple[Path, ...]) -> None:
        (self.host, self.name, self.principal, self.files) = (host, name, principal, files)

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        """Accept a certificate of a known authority; else check the key itself, as ssh does."""
        offered, entries = HostKey(key.get_name(), key.get_base64()), self.entries()
        certificate = certificate_of(key.public_blob.key_blob) if key.public_blob else None
        reason = ""
        if certificate is not None:
            hostkeys.refuse_revoked(self.host, certificate.authority, entries)
            refusal = certificate.refusal(self.principal, self.authorities())
            if refusal is None:
                hostkeys.refuse_revoked(self.host, offered, entries)
                return
            reason = f"; its certificate {certificate.name!r} does not do: {refusal}"
        try:
            hostkeys.check(self.host, self.name, offered, entries, self.files[0])
        except HostKeyRefused as error:
            raise HostKeyRefused(error.message + reason, hint=error.hint) from None

    def transport(self, sock: socket.socket, **options: Any) -> Transport:
        """A transport that first asks for the kinds of key that the host is known by, and before
        those for a certificate where an authority is known for the host."""
        transport = Transport(sock, **options)
        security = transport.get_security_options()
        entries = {entry.key.kind for entry in self.entries() if not entry.authority}
        if "ssh-rsa" in entries:  # the same key, signed with SHA-2 (RFC 8332)
            entries |= {"rsa-sha2-512", "rsa-sha2-256"}
        kinds = security.key_types
        ordered = sorted(kinds, key=lambda kind: kind not in entries)
        certified = [kind + SUFFIX for kind in kinds] if self.authorities() else []
        security.key_types = [*certified, *ordered]
        return transport

    def entries(self) -> list[KnownKey]:
        return hostkeys.known_keys(self.name, self.files)

    def authorities(self) -> list[KnownKey]:
        """The authorities for the host on this port or on any."""
        every = [*self.entries(), *hostkeys.known_keys(self.principal, self.files)]
        return [entry for entry in every if entry.authority]
