"""SSH connections through Fabric, with strict host key checks and time limits."""

from __future__ import annotations

import contextlib
import logging
import math
import os
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
from autotune.home_directory import expand_home
from autotune.strict_parsing import is_uint
from autotune.transports import host_keys
from autotune.transports.base import HostKeyRejected, HostUnreachable, SshHost
from autotune.transports.host_keys import CERTIFICATE_SUFFIX, HostKey, KnownKey, parse_certificate
from autotune.transports.ssh_settings import read_ssh_settings

_KEEPALIVE_SECONDS = 10  # time between keep-alive messages on an idle connection
_DEAD_PEER_SECONDS = 20.0  # without an acknowledgement for this time, a connection counts as lost
_GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")

# paramiko logs exceptions with tracebacks to standard error, but autotune reports exceptions itself.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def open_connection(host: SshHost) -> Connection:
    """Open a connection to ``host``. Raises ``HostUnreachable`` or ``HostKeyRejected``."""
    connection = _build_connection(host, read_ssh_settings, ())
    try:
        with translate_errors(host, connection):
            connection.open()
            # Send small messages immediately, and detect a dead peer within 30 s.
            connection.transport.set_keepalive(_KEEPALIVE_SECONDS)
            transport_socket = connection.transport.sock
            if isinstance(transport_socket, socket.socket):
                transport_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                transport_socket.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_DEAD_PEER_SECONDS * 1000)
                )
    except BaseException:
        close_connection(connection)
        raise
    return connection


def close_connection(connection: Connection) -> None:
    """Close the connection and the connections to its jump hosts, even if they are dead."""
    connection.client.close()
    if isinstance(connection.gateway, Connection):
        close_connection(connection.gateway)


@contextlib.contextmanager
def translate_errors(host: SshHost, connection: Connection) -> Iterator[None]:
    """Translate the SSH library's errors during connection setup into errors with hints."""
    try:
        yield
    except AutotuneError:
        raise
    # A host name with an empty or long label raises UnicodeError.
    except (SSHException, OSError, EOFError, UnicodeError) as error:
        raise _translate_error(host, connection, error) from None


def _translate_error(
    host: SshHost, connection: Connection, error: SSHException | OSError | EOFError | UnicodeError
) -> HostUnreachable:
    """Return an error with the cause in its message and the fix in its hint."""
    address = (
        f"{connection.user}@{host_keys.format_known_hosts_name(connection.host, connection.port)}"
    )
    port_option = "" if connection.port in (None, 22) else f"-p {connection.port} "
    ssh_command = f"`ssh {port_option}{connection.user}@{connection.host}`"
    match error:
        case PasswordRequiredException():
            return HostUnreachable(
                f"{host.name}: the key for {address} is protected by a passphrase",
                hint="add the key to an SSH agent first: ssh-add " + (host.identity_file or "KEY"),
            )
        case AuthenticationException():
            return HostUnreachable(
                f"{host.name}: {address} refused the login",
                hint=f"{ssh_command} must work without a password; "
                "set up a key, an agent or ~/.ssh/config",
            )
        case TimeoutError():
            return HostUnreachable(
                f"{host.name}: {address} did not respond within {host.connect_timeout:g} s",
                hint="check that the host is up and that its firewall accepts this machine",
            )
        case ChannelException():
            return HostUnreachable(
                f"{host.name}: {address} refused to open a session ({error.text})",
                hint="MaxSessions in sshd_config on that host must be 1 or more",
            )
    return HostUnreachable(
        f"{host.name}: cannot connect to {address} ({_find_reason(error)})",
        hint=f"{ssh_command} must work from this machine; check the host name, the port and sshd",
    )


def _find_reason(error: SSHException | OSError | EOFError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror | NoValidConnectionsError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeError):
        return "invalid host name"
    reason = str(error) or "the connection was closed"
    # paramiko uses the word banner for the SSH greeting.
    return "no SSH server responded in time" if "banner" in reason else reason


def _build_connection(
    host: SshHost, read_settings: Callable[[SshHost], Config], visited_hosts: tuple[str, ...]
) -> Connection:
    config = read_settings(host)
    options = config.base_ssh_config.lookup(host.address)
    if host.identity_file and not expand_home(host.identity_file).exists():
        raise HostUnreachable(f"{host.name}: key file {host.identity_file} does not exist")
    allows_agent = options.get("identitiesonly", "no") != "yes"
    connection = Connection(
        host.address,
        user=host.user,
        port=host.port,
        config=config,
        gateway=_build_gateway(host, options, read_settings, visited_hosts),
        forward_agent=False,
        connect_timeout=math.ceil(host.connect_timeout),
        connect_kwargs={
            "key_filename": [host.identity_file] if host.identity_file else [],
            "allow_agent": allows_agent,
            "look_for_keys": allows_agent and host.identity_file is None,
            "banner_timeout": host.connect_timeout,
            "auth_timeout": host.connect_timeout,
            "channel_timeout": host.connect_timeout,
        },
    )
    policy = _build_policy(host, connection, options)
    connection.client = SSHClient()
    connection.client.set_missing_host_key_policy(policy)
    connection.connect_kwargs["transport_factory"] = policy.create_transport
    # ~/.ssh/config may list keys that do not exist, unlike ``identity_file``, which was checked above.
    keys = [expand_home(key) for key in connection.connect_kwargs.get("key_filename", [])]
    connection.connect_kwargs["key_filename"] = [str(key) for key in keys if key.exists()]
    return connection


def _build_policy(
    host: SshHost, connection: Connection, options: Mapping[str, Any]
) -> _HostKeyPolicy:
    """Return the policy that checks the host's key as ssh does with these ``options``."""
    alias = options.get("hostkeyalias")
    revoked_name = options.get("revokedhostkeys", "none")
    return _HostKeyPolicy(
        host.name,
        alias or host_keys.format_known_hosts_name(connection.host, connection.port),
        alias or connection.host,
        find_known_hosts(host, options),
        None if revoked_name == "none" else expand_home(revoked_name),
    )


def _build_gateway(
    host: SshHost,
    options: Mapping[str, Any],
    read_settings: Callable[[SshHost], Config],
    visited_hosts: tuple[str, ...],
) -> Connection | str | bool:
    """Return a connection to the last jump host or, without jump hosts, the proxy command. Return
    ``False`` if the settings contain no jump host and no proxy command.
    """
    jump_hosts = host.jump_host or options.get("proxyjump", "none")
    if jump_hosts == "none":
        proxy_command = options.get("proxycommand", "none")
        return False if proxy_command == "none" else str(proxy_command)
    (*previous_jumps, last_jump) = jump_hosts.split(",")
    (jump_user, _, last_address) = last_jump.strip().rpartition("@")
    (jump_address, colon, port) = last_address.rpartition(":")
    if not (colon and is_uint(port) and (jump_address.endswith("]") or ":" not in jump_address)):
        (jump_address, port) = (
            last_address,
            "",
        )  # an IPv6 address, in which a colon does not separate a port
    jump_address = jump_address.strip("[]")
    if host.jump_host is None and jump_address in (*visited_hosts, host.address):
        # The ``Host`` pattern that sets this jump host also matches the jump host itself.
        return False
    jump_host = replace(
        host,
        name=f"{host.name} (jump host {last_jump.strip()})",
        address=jump_address,
        user=jump_user or None,
        port=int(port) if port else None,
        jump_host=",".join(previous_jumps) or None,
    )
    return _build_connection(jump_host, read_settings, (*visited_hosts, host.address))


def find_known_hosts(host: SshHost, options: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the known_hosts files to search for the host's key. New keys are added to the first
    file.

    ``options`` are the host's options from the SSH configuration.
    """
    if host.known_hosts is not None:
        return (expand_home(host.known_hosts),)
    user_files = str(options.get("userknownhostsfile", "")).split() or _USER_KNOWN_HOSTS
    global_files = str(options.get("globalknownhostsfile", "")).split() or _GLOBAL_KNOWN_HOSTS
    return tuple(expand_home(name) for name in (*user_files, *global_files) if name != "none")


class _HostKeyPolicy:
    """Policy that checks every host key. The SSH library gets no known keys, so it always calls this
    policy.

    ``name`` identifies the host in known_hosts, and ``principal`` identifies it in a certificate.
    ``revoked_file`` lists revoked keys, as `RevokedHostKeys` in the SSH configuration.
    """

    def __init__(
        self,
        host: str,
        name: str,
        principal: str,
        files: tuple[Path, ...],
        revoked_file: Path | None,
    ) -> None:
        (self.host, self.name, self.principal, self.files) = (host, name, principal, files)
        self.revoked_file = revoked_file

    @property
    def new_key_file(self) -> Path | None:
        """Return the file for new keys, or ``None`` if the configuration disables all files."""
        return next((file for file in self.files if file != Path(os.devnull)), None)

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        """Accept a host certificate from a known authority. Otherwise, check the host key as ssh does."""
        offered_key, known_keys = HostKey(key.get_name(), key.get_base64()), self.find_known_keys()
        if self.revoked_file is not None:
            known_keys += host_keys.read_revoked_keys(self.host, self.revoked_file)
        certificate = parse_certificate(key.public_blob.key_blob) if key.public_blob else None
        reason = ""
        if certificate is not None:
            host_keys.reject_revoked(self.host, certificate.authority, known_keys)
            refusal = certificate.find_rejection(self.principal, self.find_authorities())
            if refusal is None:
                host_keys.reject_revoked(self.host, offered_key, known_keys)
                return
            reason = f"; its certificate {certificate.name!r} was not accepted ({refusal})"
        try:
            host_keys.check_host_key(
                self.host, self.name, offered_key, known_keys, self.new_key_file
            )
        except HostKeyRejected as error:
            raise HostKeyRejected(error.message + reason, hint=error.hint) from None

    def create_transport(self, sock: socket.socket, **options: Any) -> Transport:
        """Return an SSH transport that prefers the key types in the host's known_hosts entries.

        Certificates come first if known_hosts contains an authority for the host.
        """
        transport = Transport(sock, **options)
        security = transport.get_security_options()
        known_kinds = {entry.key.kind for entry in self.find_known_keys() if not entry.is_authority}
        if "ssh-rsa" in known_kinds:  # the same key, signed with SHA-2 (RFC 8332)
            known_kinds |= {"rsa-sha2-512", "rsa-sha2-256"}
        key_types = security.key_types
        ordered_kinds = sorted(key_types, key=lambda kind: kind not in known_kinds)
        certificate_kinds = (
            [kind + CERTIFICATE_SUFFIX for kind in key_types] if self.find_authorities() else []
        )
        security.key_types = [*certificate_kinds, *ordered_kinds]
        return transport

    def find_known_keys(self) -> list[KnownKey]:
        return host_keys.find_known_keys(self.name, self.files)

    def find_authorities(self) -> list[KnownKey]:
        """Return the certificate authorities for the host, on this port or on any port."""
        all_keys = [*self.find_known_keys(), *host_keys.find_known_keys(self.principal, self.files)]
        return [known_key for known_key in all_keys if known_key.is_authority]
