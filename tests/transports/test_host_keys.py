"""Which keys a host is known by, and what is said of the others."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from autotune.transports import host_keys
from autotune.transports.base import HostKeyRejected
from autotune.transports.host_keys import HostKey, find_known_keys


def key(name: str, kind: str = "ssh-ed25519") -> HostKey:
    return HostKey(kind, base64.b64encode(name.encode() * 8).decode())


ONE = key("one")
TWO = key("two")
RSA = key("rsa", "ssh-rsa")


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


@pytest.mark.parametrize(
    ("names", "address", "speaks"),
    [
        ("web1", "web1", True),
        ("WEB1", "web1", True),
        ("web1,10.0.0.1", "10.0.0.1", True),
        ("web1", "web10", False),
        ("web1", "[web1]:2222", False),
        ("[web1]:2222", "[web1]:2222", True),
        ("[web1]:2222", "web1", False),
        ("web*", "web10", True),
        ("web?", "web10", False),
        ("*,!web1", "web1", False),
        ("*,!web1", "web2", True),
        ("[*]:2222", "[web1]:2222", True),
    ],
)
def test_a_line_speaks_of_the_hosts_it_names(
    known_hosts: Path, names: str, address: str, speaks: bool
) -> None:
    known_hosts.write_text(f"# a comment\n\n{names} {ONE.kind} {ONE.data} root@host\n")
    found = find_known_keys(address, [known_hosts])
    assert [(entry.key, entry.line) for entry in found] == ([(ONE, 3)] if speaks else [])


@pytest.mark.stack
@pytest.mark.parametrize("address", ["web1", "[web1]:2222"])
def test_a_name_hashed_by_openssh_is_recognised(known_hosts: Path, address: str) -> None:
    private = known_hosts.with_name("key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", private], check=True)
    (kind, data) = private.with_suffix(".pub").read_text().split()[:2]
    known_hosts.write_text(f"{address} {kind} {data}\nother {ONE.kind} {ONE.data}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known_hosts], check=True, capture_output=True)
    assert address not in known_hosts.read_text()
    assert [entry.key for entry in find_known_keys(address, [known_hosts])] == [HostKey(kind, data)]
    told = subprocess.check_output(["ssh-keygen", "-lf", private], text=True).split()[1]
    assert HostKey(kind, data).fingerprint == told


@pytest.mark.parametrize(
    "line",
    [
        "web1",
        "web1 ssh-ed25519",
        "web1 ssh-ed25519 not*base64",
        "|1|broken ssh-ed25519 AAAA",
        "|1|a|b ssh-ed25519 AAAA",
        "@unknown web1 ssh-ed25519 AAAA",
    ],
)
def test_a_line_that_is_no_key_of_the_host_is_passed_over(known_hosts: Path, line: str) -> None:
    known_hosts.write_text(f"{line}\nweb1 {ONE.kind} {ONE.data}\n")
    assert [entry.key for entry in find_known_keys("web1", [known_hosts])] == [ONE]


def test_a_known_key_is_accepted_among_others(known_hosts: Path) -> None:
    known_hosts.write_text(f"web1 {RSA.kind} {RSA.data}\nweb1 {ONE.kind} {ONE.data}\n")
    known = find_known_keys("web1", [known_hosts.with_name("absent"), known_hosts])
    host_keys.check_host_key("web1", "web1", ONE, known, known_hosts)


@pytest.mark.parametrize("directory", [".", ".ssh"])
def test_an_unknown_key_is_refused_with_fingerprint_and_remedy(
    tmp_path: Path, directory: str
) -> None:
    known_hosts = tmp_path / directory / "known_hosts"
    with pytest.raises(HostKeyRejected) as refused:
        host_keys.check_host_key("web1", "[10.0.0.1]:2222", ONE, [], known_hosts)
    assert ONE.fingerprint.startswith("SHA256:")
    assert f"unknown host key ssh-ed25519 {ONE.fingerprint}" in refused.value.message
    # The remedy does what it says: afterwards the very same key is known.
    command = str(refused.value.hint).rpartition("accept a matching key: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    known = find_known_keys("[10.0.0.1]:2222", [known_hosts])
    host_keys.check_host_key("web1", "[10.0.0.1]:2222", ONE, known, known_hosts)


@pytest.mark.stack
def test_a_changed_key_is_refused_with_both_fingerprints_and_remedy(known_hosts: Path) -> None:
    known_hosts.write_text(f"other {RSA.kind} {RSA.data}\nweb1 {TWO.kind} {TWO.data}\n")
    with pytest.raises(HostKeyRejected, match="has changed") as refused:
        host_keys.check_host_key(
            "web1", "web1", ONE, find_known_keys("web1", [known_hosts]), known_hosts
        )
    for fact in (ONE.fingerprint, TWO.fingerprint, f"{known_hosts}:2"):
        assert fact in refused.value.message
    command = str(refused.value.hint).rpartition("is correct: ")[2]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    known = find_known_keys("web1", [known_hosts])
    assert [entry.key for entry in known] == [ONE]
    assert [entry.key for entry in find_known_keys("other", [known_hosts])] == [RSA]


def test_a_host_known_by_another_kind_of_key_has_changed(known_hosts: Path) -> None:
    known_hosts.write_text(f"web1 {RSA.kind} {RSA.data}\n")
    with pytest.raises(HostKeyRejected, match="has changed"):
        host_keys.check_host_key(
            "web1", "web1", ONE, find_known_keys("web1", [known_hosts]), known_hosts
        )


def test_a_revoked_key_is_refused_even_if_known(known_hosts: Path) -> None:
    known_hosts.write_text(f"web1 {ONE.kind} {ONE.data}\n@revoked * {ONE.kind} {ONE.data}\n")
    with pytest.raises(HostKeyRejected, match=r"is revoked in .*known_hosts, line 2"):
        host_keys.check_host_key(
            "web1", "web1", ONE, find_known_keys("web1", [known_hosts]), known_hosts
        )
