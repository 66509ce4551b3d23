"""Host certificates as ssh-keygen makes them, and `@cert-authority` lines as ssh honours them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.transports.base import HostKeyRejected, SshHost
from autotune.transports.host_keys import (
    HostCertificate,
    HostKey,
    find_known_keys,
    parse_certificate,
)
from autotune.transports.ssh import SshTransport
from tests.transports import server as servers
from tests.transports.server import ssh_server

pytestmark = pytest.mark.stack
VALID, PAST, FUTURE = "-5m:+1h", "20200101:20200102", "20990101:20990102"


def keygen(*words: str | Path) -> None:
    subprocess.run(["ssh-keygen", "-q", *words], check=True, capture_output=True)


def new_key(path: Path, kind: str = "ed25519") -> HostKey:
    servers.new_key(path, kind)
    return public(path)


def public(path: Path) -> HostKey:
    kind, data = path.with_name(f"{path.name}.pub").read_text().split()[:2]
    return HostKey(kind, data)


def sign(authority: Path, key: Path, *how: str) -> bytes:
    """The certificate of ``key``, valid and a host's unless ``how`` says otherwise."""
    keygen("-s", authority, "-I", "web one", *(how or ("-h", "-V", VALID)), f"{key}.pub")
    kind, data = key.with_name(f"{key.name}-cert.pub").read_text().split()[:2]
    return HostKey(kind, data).blob


def certificate(blob: bytes) -> HostCertificate:
    parsed = parse_certificate(blob)
    assert parsed is not None
    return parsed


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    authority = new_key(tmp_path / "ca")
    path = tmp_path / "known_hosts"
    path.write_text(f"@cert-authority *.example {authority.kind} {authority.data} ours\n")
    return path


@pytest.mark.parametrize("authority", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_certificate_of_a_known_authority_vouches(
    tmp_path: Path, authority: str, kind: str
) -> None:
    key = new_key(tmp_path / "ca", authority)
    path = tmp_path / "known_hosts"
    path.write_text(f"@cert-authority web1.example {key.kind} {key.data}\n")
    new_key(tmp_path / "host", kind)
    made = certificate(sign(tmp_path / "ca", tmp_path / "host"))
    assert made.authority == key
    assert made.find_rejection("web1.example", find_known_keys("web1.example", [path])) is None


@pytest.mark.parametrize(
    ("how", "refusal"),
    [
        (("-h", "-V", VALID, "-n", "web1.example,web2.example"), None),
        (
            ("-h", "-V", VALID, "-n", "web2.example"),
            "it is valid for web2.example, not for web1.example",
        ),
        (("-V", VALID, "-n", "web1.example"), "it is not a host certificate"),
        (("-h", "-V", PAST), "it is not valid at this time"),
        (("-h", "-V", FUTURE), "it is not valid at this time"),
        (("-h", "-V", "always:forever"), None),
        (("-h", "-V", VALID, "-O", "critical:x@y=z"), "it contains critical options"),
    ],
)
def test_what_a_certificate_says_is_heeded(
    tmp_path: Path, known_hosts: Path, how: tuple[str, ...], refusal: str | None
) -> None:
    new_key(tmp_path / "host")
    made = certificate(sign(tmp_path / "ca", tmp_path / "host", *how))
    assert (
        made.find_rejection("web1.example", find_known_keys("web1.example", [known_hosts]))
        == refusal
    )


def test_an_authority_is_one_for_the_hosts_of_its_line(tmp_path: Path, known_hosts: Path) -> None:
    new_key(tmp_path / "host")
    made = certificate(sign(tmp_path / "ca", tmp_path / "host"))
    refusal = made.find_rejection("web1.other", find_known_keys("web1.other", [known_hosts]))
    assert refusal is not None
    assert "no @cert-authority line" in refusal


def test_nobody_else_signs_in_its_name(tmp_path: Path, known_hosts: Path) -> None:
    new_key(tmp_path / "host")
    new_key(tmp_path / "other")
    forged = certificate(sign(tmp_path / "other", tmp_path / "host"))
    known = find_known_keys("web1.example", [known_hosts])
    assert "no @cert-authority" in str(forged.find_rejection("web1.example", known))
    as_ours = replace(forged, authority=public(tmp_path / "ca"))
    assert as_ours.find_rejection("web1.example", known) == "its signature is invalid"


def test_a_key_is_no_certificate_nor_is_half_of_one(tmp_path: Path) -> None:
    new_key(tmp_path / "ca")
    key = new_key(tmp_path / "host")
    blob = sign(tmp_path / "ca", tmp_path / "host")
    assert parse_certificate(key.blob) is None
    for end in range(0, len(blob), 7):
        assert parse_certificate(blob[:end]) is None


def test_an_authority_is_no_hosts_key(tmp_path: Path, known_hosts: Path) -> None:
    (entry,) = find_known_keys("web1.example", [known_hosts])
    assert entry.is_authority
    assert entry.key == public(tmp_path / "ca")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshHost]:
    """A private SSH server on loopback, with a certificate for ``localhost``."""
    for name in ("ca", "host", "login"):
        new_key(tmp_path / name)
    sign(tmp_path / "ca", tmp_path / "host", "-h", "-V", VALID, "-n", "localhost")
    with ssh_server(tmp_path, f"HostCertificate {tmp_path}/host-cert.pub") as host:
        yield host


def reached(server: SshHost, known: str) -> str:
    assert server.known_hosts is not None
    Path(server.known_hosts).write_text(known)
    transport = SshTransport(server)
    try:
        return transport.run(["echo", "in"]).stdout
    finally:
        transport.close()


def line(key: HostKey, names: str, marker: str = "") -> str:
    return f"{marker} {names} {key.kind} {key.data}\n".lstrip()


def test_a_host_is_reached_by_its_authority_alone(server: SshHost, tmp_path: Path) -> None:
    authority, host, other = (public(tmp_path / name) for name in ("ca", "host", "login"))
    here = f"[localhost]:{server.port}"
    ours = line(authority, here, "@cert-authority")
    assert reached(server, ours) == "in\n"
    assert reached(server, line(authority, "local*", "@cert-authority")) == "in\n"
    assert reached(server, line(host, here)) == "in\n"  # the key itself, as ever
    with pytest.raises(
        HostKeyRejected, match=r"unknown host key.*no @cert-authority line contains"
    ):
        reached(server, line(other, here, "@cert-authority"))
    with pytest.raises(HostKeyRejected, match="has changed"):
        reached(server, line(authority, here))  # known as a host, not as an authority
    for revoked in (authority, host):
        with pytest.raises(HostKeyRejected, match="is revoked"):
            reached(server, ours + line(revoked, here, "@revoked"))
