"""Each host is reached as `ssh` would reach it, whatever its configuration is made of."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from autotune.transports.base import HostUnreachable, SshHost
from autotune.transports.connection import _build_connection
from autotune.transports.ssh_settings import read_ssh_settings

pytestmark = pytest.mark.stack
ADDRESS = "web1.example"
CONFIGS = {
    "nothing": "",
    "include": "Include DIR/conf.d/*.conf\n",
    "included first": "Include DIR/conf.d/*.conf\nHost *\n  User last\n  Port 99\n",
    "include in a block": "Host web1*\n  Include DIR/conf.d/b.conf\nHost *\n  User other\n",
    "match host": "Match host web1.example\n  User matched\n  Port 2201\n",
    "match originalhost": "Match originalhost web1.example\n  HostName 192.0.2.9\n",
    "match exec": 'Match exec "test -d /"\n  User root-there\n',
    "match final": "Host web1.example\n  HostName 192.0.2.7\nMatch final host 192.0.2.7\n  Port 2207\n",
    "not this one": "Host * !web1.example\n  User wrong\nHost web*\n  User right\n",
    "tokens": "Host web1.example\n  HostName %h.internal\n  IdentityFile DIR/%h.key\n",
    "quotes and equals": 'Host=web1.example\n  User = "quoted"\n  Port=2202\n',
    "first wins": "Host web1.example\n  User first\nHost *\n  User second\n  Port 2203\n",
    "jump": "Host web1.example\n  ProxyJump gate:2204\nHost gate\n  User keeper\n",
    "command": "Host web1.example\n  ProxyCommand nc %h %p\n",
    "identity": "Host web1.example\n  IdentityFile DIR/own.key\n  IdentitiesOnly yes\n",
    "canonical": "CanonicalizeHostname yes\nCanonicalDomains example\nCanonicalizeFallbackLocal yes\n",
    "brackets": f"Host {'[' * 200}\n  User nobody\nHost *\n  Port 2205\n",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.conf").write_text("Host web1.example\n  User included\n  Port 2222\n")
    (tmp_path / "conf.d" / "b.conf").write_text("User of-b\nPort 2223\n")
    for name in ("own.key", f"{ADDRESS}.key", f"{ADDRESS}.internal.key"):
        (tmp_path / name).touch()
    return tmp_path


def made(directory: Path, config: str) -> tuple[Any, dict[str, str]]:
    """The connection, and what `ssh -G` prints."""
    path = directory / "config"
    path.write_text(config.replace("DIR", str(directory)))
    printed = subprocess.run(
        ["ssh", "-F", path, "-G", ADDRESS], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    return _build_connection(
        SshHost("web1", ADDRESS, config_file=str(path)), read_ssh_settings, ()
    ), settings


@pytest.mark.parametrize("name", CONFIGS)
def test_user_port_and_host_are_those_of_ssh(directory: Path, name: str) -> None:
    connection, settings = made(directory, CONFIGS[name])
    assert connection.host == settings["hostname"]
    assert connection.user == settings["user"]
    assert connection.port == int(settings["port"])
    keys = connection.connect_kwargs["key_filename"]
    assert [Path(key).name for key in keys] == (
        [Path(settings["identityfile"]).name.replace("%h", settings["hostname"])]
        if "IdentityFile" in CONFIGS[name] else []
    )  # fmt: skip


def test_the_file_of_revoked_keys_is_that_of_ssh(directory: Path) -> None:
    config = "Host web1.example\n  RevokedHostKeys DIR/own.key\n"
    connection, settings = made(directory, config)
    assert settings["revokedhostkeys"] == str(directory / "own.key")
    assert connection.client._policy.revoked_file == directory / "own.key"


def test_what_is_included_and_matched_is_in_effect(directory: Path) -> None:
    connection, _ = made(directory, CONFIGS["include"])
    assert (connection.user, connection.port) == ("included", 2222)
    connection, _ = made(directory, CONFIGS["jump"])
    gateway = connection.gateway
    assert (gateway.host, gateway.user, gateway.port) == ("gate", "keeper", 2204)
    connection, _ = made(directory, CONFIGS["command"])
    assert connection.gateway == "nc web1.example 22"


def test_a_configuration_that_ssh_refuses_is_refused_in_its_words(directory: Path) -> None:
    path = directory / "config"
    path.write_text("Host *\n  Nonsense 3\n")
    with pytest.raises(HostUnreachable, match=r"(?s)invalid SSH configuration .*nonsense"):
        read_ssh_settings(SshHost("web1", ADDRESS, config_file=str(path)))
    with pytest.raises(HostUnreachable, match="none does not exist"):
        read_ssh_settings(SshHost("web1", ADDRESS, config_file=str(directory / "none")))


@pytest.mark.parametrize("name", ["include", "match host", "brackets", "canonical"])
def test_without_ssh_what_only_ssh_can_read_is_refused(
    directory: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    path = directory / "config"
    path.write_text(CONFIGS[name])
    with pytest.raises(HostUnreachable, match="requires the program ssh"):
        read_ssh_settings(SshHost("web1", ADDRESS, config_file=str(path)))
    path.write_text("Host web1.example\n  User plain\n")
    assert (
        read_ssh_settings(SshHost("web1", ADDRESS, config_file=str(path))).base_ssh_config.lookup(
            ADDRESS
        )["user"]
        == "plain"
    )
