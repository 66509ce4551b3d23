"""Check host keys against known_hosts and host certificates against its authorities.

Formats: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT; OpenSSH's PROTOCOL.certkeys. The SSH library ignores
revoked keys, patterns and all key types but the first. Its messages lack fingerprints and hints.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import hmac
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paramiko import Message, PKey
from paramiko.ssh_exception import SSHException

from autotune.strict import split_lines
from autotune.transports.base import HostKeyRefused

_REVOKED, _AUTHORITY = "@revoked", "@cert-authority"


@dataclass(frozen=True)
class HostKey:
    """A public key: ``kind`` such as ``ssh-ed25519``, and its bytes in base64."""

    kind: str
    data: str

    @classmethod
    def of_blob(cls, blob: bytes) -> HostKey:
        """Parse a key in its wire format, which starts with the key type."""
        length = int.from_bytes(blob[:4], "big")
        return cls(blob[4 : 4 + length].decode(), base64.b64encode(blob).decode())

    @property
    def blob(self) -> bytes:
        return base64.b64decode(self.data)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint in OpenSSH's format: SHA256 of the key, base64 without padding."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class KnownKey:
    """A line of a known_hosts file that matches a host.

    ``authority`` is true if the key belongs to a certificate authority, not to a host.
    """

    key: HostKey
    path: Path
    line: int
    revoked: bool = False
    authority: bool = False


def known_keys(address: str, files: Iterable[Path]) -> list[KnownKey]:
    """Return the entries for ``address`` (``name``, or ``[name]:port`` off port 22) in ``files``.

    Missing files are skipped.
    """
    keys = []
    for path in files:
        with contextlib.suppress(OSError):
            lines = split_lines(path.read_text(encoding="utf-8", errors="replace"))
            keys += [_parsed(line, address, path, n) for n, line in enumerate(lines, 1)]
    return [key for key in keys if key is not None]


def check(
    host: str, address: str, offered: HostKey, entries: Sequence[KnownKey], file: Path
) -> None:
    """Raise ``HostKeyRefused`` unless ``offered`` is a known key of ``address``.

    ``host`` appears in messages. ``file`` is the file for accepted keys in the hint.
    """
    refuse_revoked(host, offered, entries)
    trusted = [entry for entry in entries if not entry.revoked and not entry.authority]
    if any(entry.key == offered for entry in trusted):
        return
    if trusted:
        entry = next((entry for entry in trusted if entry.key.kind == offered.kind), trusted[0])
        forget = f"ssh-keygen -R {shlex.quote(address)} -f {shlex.quote(str(entry.path))}"
        raise HostKeyRefused(
            f"{host}: the host key of {address} has changed. Expected {entry.key.kind}"
            f" {entry.key.fingerprint} ({entry.path}:{entry.line}), got {offered.kind}"
            f" {offered.fingerprint}. Another machine may intercept the connection",
            hint="if the host was reinstalled and the new fingerprint is correct:"
            f" {forget} && {accept(address, offered, entry.path)}",
        )
    raise HostKeyRefused(
        f"{host}: unknown host key {offered.kind} {offered.fingerprint} of {address}",
        hint="compare it with the output of `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host"
        f" and accept a matching key: {accept(address, offered, file)}",
    )


def refuse_revoked(host: str, offered: HostKey, entries: Iterable[KnownKey]) -> None:
    """Raise ``HostKeyRefused`` if an entry revokes the key."""
    for entry in entries:
        if entry.revoked and entry.key == offered:
            raise HostKeyRefused(
                f"{host}: the host key {offered.fingerprint} is revoked in {entry.path},"
                f" line {entry.line}",
                hint="create a new host key",
            )


def accept(address: str, key: HostKey, file: Path) -> str:
    """Return the shell command that adds exactly this ``key`` to the known hosts."""
    entry = f"{address} {key.kind} {key.data}"
    return f"echo {shlex.quote(entry)} >> {shlex.quote(str(file))}"


def name_in_file(host: str, port: int) -> str:
    """Return the name of a host and port in known_hosts."""
    return host if port == 22 else f"[{host}]:{port}"


def _parsed(line: str, address: str, path: Path, number: int) -> KnownKey | None:
    fields = line.split()
    marker = fields.pop(0) if fields and fields[0] in (_REVOKED, _AUTHORITY) else ""
    # Comments, unknown markers and truncated lines contain no usable key.
    if len(fields) < 3 or fields[0].startswith(("#", "@")) or not _names(fields[0], address):
        return None
    try:
        base64.b64decode(fields[2], validate=True)
    except ValueError:
        return None
    return KnownKey(
        HostKey(fields[1], fields[2]), path, number, marker == _REVOKED, marker == _AUTHORITY
    )


def _names(names: str, address: str) -> bool:
    """True if the first field of a line (names, patterns or one hash) matches ``address``."""
    if names.startswith("|1|"):
        return _hashed(names, address)
    # Only * and ? are special in known_hosts; fnmatch would read [host]:port as a set.
    patterns = names.lower().replace("[", "[[]").split(",")
    matching = [p for p in patterns if fnmatch.fnmatchcase(address.lower(), p.removeprefix("!"))]
    return bool(matching) and not any(pattern.startswith("!") for pattern in matching)


def _hashed(name: str, address: str) -> bool:
    """True if ``name`` (``|1|salt|HMAC-SHA1 of the name``) is the hash of ``address``."""
    try:
        (salt, digest) = (base64.b64decode(part) for part in name.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(digest, hmac.new(salt, address.encode(), hashlib.sha1).digest())


SUFFIX = "-cert-v01@openssh.com"
HOST = 2
_FORBIDDEN = "ssh-rsa"  # SHA-1 signatures, which ssh also refuses (CASignatureAlgorithms)


@dataclass(frozen=True)
class Certificate:
    """A host certificate. Times are seconds since 1970, and ``signed`` contains the signed bytes."""

    kind: int
    name: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical: bytes
    authority: HostKey
    signed: bytes
    signature: bytes

    def refusal(self, principal: str, entries: Iterable[KnownKey]) -> str | None:
        """Return the reason why the certificate is not valid for ``principal``, or ``None`` if it
        is.

        ``entries`` are the lines of known_hosts that match the host.
        """
        if not any(entry.authority and entry.key == self.authority for entry in entries):
            return f"no @cert-authority line contains {self.authority.fingerprint}"
        if self.kind != HOST:
            return "it is not a host certificate"
        if self.principals and principal.lower() not in self.principals:
            return f"it is valid for {', '.join(self.principals)}, not for {principal}"
        if not self.valid_after <= time.time() < self.valid_before:
            return "it is not valid at this time"
        if self.critical:
            return "it contains critical options"
        return None if self._is_signed() else "its signature is invalid"

    def _is_signed(self) -> bool:
        algorithm = Message(self.signature).get_text()
        if algorithm == _FORBIDDEN:
            return False
        try:
            authority = PKey.from_type_string(self.authority.kind, self.authority.blob)
            return bool(authority.verify_ssh_sig(self.signed, Message(self.signature)))
        except (SSHException, ValueError):  # the signature has another type or length
            return False


def certificate_of(blob: bytes) -> Certificate | None:
    """Return the certificate in the public key ``blob``, or ``None`` if it contains no certificate."""
    try:
        return _certificate(blob)
    except (SSHException, ValueError, KeyError, IndexError):
        return None


def _certificate(blob: bytes) -> Certificate | None:
    message = Message(blob)
    kind = message.get_text()
    if not kind.endswith(SUFFIX):
        return None
    message.get_string()  # nonce
    plain = kind.removesuffix(SUFFIX)
    # Number of strings that follow the key type in a public key.
    for _ in range(2 if plain.startswith("ecdsa-") else {"ssh-ed25519": 1, "ssh-rsa": 2}[plain]):
        message.get_string()
    message.get_int64()  # serial number
    role = message.get_int()
    name = message.get_text()
    names, principals = Message(message.get_string()), []
    while names.get_remainder():
        principals.append(names.get_text())
    valid_after, valid_before = message.get_int64(), message.get_int64()
    critical = message.get_string()
    message.get_string()  # extensions; none is defined for host certificates
    message.get_string()  # reserved
    authority = message.get_string()
    signed, signature = message.get_so_far(), message.get_string()
    if len(signed) + 4 + len(signature) != len(blob):  # the library pads truncated data
        return None
    return Certificate(
        role, name, tuple(principals), valid_after, valid_before, critical,
        HostKey.of_blob(authority), signed, signature,
    )  # fmt: skip
