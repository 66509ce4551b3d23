"""What ~/.ssh/config says of a host is what is done, up to the first packet."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fabric import Config, Connection
from paramiko import RSAKey, SSHConfig

from autotune.transports.base import HostKeyRejected, HostUnreachable, SshHost
from autotune.transports.connection import _build_connection, open_connection

Connect = Callable[[SshHost], Any]

CONFIG = """\
Host front
    HostName 192.0.2.1
    User deploy
    Port 2222
    IdentityFile ~/absent
    IdentitiesOnly yes
    UserKnownHostsFile ~/known_a ~/known_b
Host inner
    HostName 10.1.1.1
    HostKeyAlias inner-alias
    ProxyJump alice@front,second:2200
Host command
    ProxyCommand nc %h %p
Host none
    ProxyJump none
Host keyless
    UserKnownHostsFile none
    GlobalKnownHostsFile none
Host careless
    UserKnownHostsFile /dev/null
    GlobalKnownHostsFile none
Host revoking
    RevokedHostKeys ~/revoked
Host trusting
    RevokedHostKeys none
Host *.looped
    ProxyJump gate.looped
"""


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setenv("HOME", str(tmp_path))
    ssh_config = SSHConfig.from_text(CONFIG)
    return lambda host: _build_connection(host, lambda _: Config(ssh_config=ssh_config), ())


def test_user_port_and_address_come_from_the_configuration(connection: Connect) -> None:
    made = connection(SshHost("lb1", "front"))
    assert (made.host, made.user, made.port) == ("192.0.2.1", "deploy", 2222)
    assert made.connect_kwargs["key_filename"] == []
    assert not made.connect_kwargs["allow_agent"]


def test_what_the_target_says_wins(connection: Connect) -> None:
    made = connection(SshHost("lb1", "front", user="root", port=22))
    assert (made.host, made.user, made.port) == ("192.0.2.1", "root", 22)


def test_known_hosts_files_are_those_of_the_configuration(
    connection: Connect, tmp_path: Path
) -> None:
    policy = connection(SshHost("lb1", "front")).client._policy
    assert policy.files[:2] == (tmp_path / "known_a", tmp_path / "known_b")
    assert policy.name == "[192.0.2.1]:2222"
    assert connection(SshHost("lb1", "front", known_hosts="/k")).client._policy.files == (
        Path("/k"),
    )


@pytest.mark.parametrize("address", ["keyless", "careless"])
def test_a_key_is_refused_if_the_configuration_names_no_file_for_keys(
    connection: Connect, address: str
) -> None:
    client = connection(SshHost("lb1", address)).client
    key = RSAKey.generate(2048)
    with pytest.raises(HostKeyRejected, match="lb1: no file for host keys") as refused:
        client._policy.missing_host_key(client, address, key)
    assert "set `UserKnownHostsFile` for this host" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# of the old host\n\nKEY root@old\n", "is revoked in .*revoked, line 3"),
        ("ssh-ed25519 AAAA\n", "unknown host key"),
        ("SSHKRL\n\0", "revoked is a binary revocation list"),
        (None, "cannot read the revoked host keys in .*No such file"),
    ],
)
def test_keys_that_the_configuration_revokes_are_refused(
    connection: Connect, tmp_path: Path, content: str | None, message: str
) -> None:
    key = RSAKey.generate(2048)
    known = f"{key.get_name()} {key.get_base64()}"
    if content is not None:
        (tmp_path / "revoked").write_text(content.replace("KEY", known))
    (tmp_path / ".ssh").mkdir()
    client = connection(SshHost("lb1", "revoking")).client
    if "unknown" not in message:
        (tmp_path / ".ssh/known_hosts").write_text(f"* {known}\n")
    with pytest.raises(HostKeyRejected, match=message):
        client._policy.missing_host_key(client, "revoking", key)


def test_a_configuration_may_revoke_no_keys(connection: Connect) -> None:
    assert connection(SshHost("lb1", "trusting")).client._policy.revoked_file is None


def test_every_jump_host_checks_keys_too(connection: Connect) -> None:
    made = connection(SshHost("db1", "inner"))
    assert made.client._policy.name == "inner-alias"
    second = made.gateway
    assert (second.host, second.port) == ("second", 2200)
    first = second.gateway
    assert (first.host, first.user, first.port) == ("192.0.2.1", "alice", 2222)
    assert not first.gateway
    assert second.client._policy.host == "db1 (jump host second:2200)"
    assert first.client._policy.name == "[192.0.2.1]:2222"


def test_a_jump_named_in_the_target_replaces_the_configured_one(connection: Connect) -> None:
    made = connection(SshHost("db1", "inner", jump_host="bob@gate"))
    assert (made.gateway.host, made.gateway.user) == ("gate", "bob")
    assert not made.gateway.gateway


@pytest.mark.parametrize("address", ["none", "plain"])
def test_no_jump_is_none(connection: Connect, address: str) -> None:
    assert not connection(SshHost("db1", address)).gateway


def test_a_jump_host_that_its_own_pattern_covers_ends_there(connection: Connect) -> None:
    gateway = connection(SshHost("db1", "a.looped")).gateway
    assert isinstance(gateway, Connection)
    assert gateway.host == "gate.looped"
    assert not gateway.gateway


def test_a_proxy_command_is_used(connection: Connect) -> None:
    assert connection(SshHost("db1", "command")).gateway == "nc command 22"


def test_a_key_asked_for_by_name_must_be_there() -> None:
    with pytest.raises(HostUnreachable, match="key file /nowhere does not exist"):
        open_connection(SshHost("web1", "127.0.0.1", identity_file="/nowhere"))


def test_a_port_nobody_listens_on_is_said_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(HostUnreachable, match=rf"web1: .*127.0.0.1\]?:{port}"):
            open_connection(SshHost("web1", "127.0.0.1", port=port))


@pytest.mark.parametrize("address", ["web1..example.org", "a" * 64])
def test_an_address_that_cannot_be_a_host_name_is_an_error_of_its_host(address: str) -> None:
    with pytest.raises(HostUnreachable, match=f"web1: .*{address}.*invalid host name"):
        open_connection(SshHost("web1", address))


def test_a_host_that_does_not_greet_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = SshHost("web1", "127.0.0.1", port=silent.getsockname()[1], connect_timeout=0.3)
        with pytest.raises(HostUnreachable, match="web1"):
            open_connection(host)
