"""Check host keys against known_hosts, and host certificates against the certificate authorities in
known_hosts.

sshd(8) and OpenSSH's PROTOCOL.certkeys describe the formats. The SSH library's own checks ignore
revoked keys, patterns, and all key types except the first. The library's messages lack fingerprints
and hints.
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
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import SSHException

from autotune.strict_parsing import split_lines
from autotune.transports.base import HostKeyRejected

_REVOKED_MARKER, _AUTHORITY_MARKER = "@revoked", "@cert-authority"
_REVOCATION_LIST_MAGIC = b"SSHKRL\n"  # start of a list that `ssh-keygen -k` wrote


@dataclass(frozen=True)
class HostKey:
    """A public key: its ``kind``, such as ``ssh-ed25519``, and its bytes in base64."""

    kind: str
    data: str

    @classmethod
    def from_blob(cls, blob: bytes) -> HostKey:
        """Return the key in a wire-format blob, which starts with the key type."""
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
    """A line in a known_hosts file that matches a host.

    ``is_authority`` is true if the key belongs to a certificate authority, not to a host.
    """

    key: HostKey
    path: Path
    line: int
    is_revoked: bool = False
    is_authority: bool = False


def find_known_keys(address: str, known_hosts_files: Iterable[Path]) -> list[KnownKey]:
    """Return the keys for ``address`` in the ``known_hosts_files``. Missing files are skipped.

    ``address`` is ``name``, or ``[name]:port`` for a port other than 22.
    """
    keys = []
    for path in known_hosts_files:
        with contextlib.suppress(OSError):
            lines = split_lines(path.read_text(encoding="utf-8", errors="replace"))
            keys += [_parse_line(line, address, path, n) for n, line in enumerate(lines, 1)]
    return [key for key in keys if key is not None]


def read_revoked_keys(host: str, path: Path) -> list[KnownKey]:
    """Return the keys in the file that `RevokedHostKeys` names, one key per line. They are revoked for
    every host. ``host`` appears in messages.

    Raises ``HostKeyRejected`` for a file that cannot be read, as ssh does.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HostKeyRejected(
            f"{host}: cannot read the revoked host keys in {path} ({error.strerror})",
            hint="correct `RevokedHostKeys` in the SSH configuration",
        ) from None
    if content.startswith(_REVOCATION_LIST_MAGIC):
        raise HostKeyRejected(
            f"{host}: {path} is a binary revocation list, which autotune cannot check",
            hint="let `RevokedHostKeys` name a text file with one public key per line",
        )
    lines = split_lines(content.decode(errors="replace"))
    keys = (
        _parse_line(f"{_REVOKED_MARKER} * {line}", host, path, n) for n, line in enumerate(lines, 1)
    )
    return [key for key in keys if key is not None]


def check_host_key(
    host: str,
    address: str,
    offered_key: HostKey,
    known_keys: Sequence[KnownKey],
    file: Path | None,
) -> None:
    """Raise ``HostKeyRejected`` unless ``offered_key`` is known for ``address``.

    ``host`` appears in messages. The hint for an unknown key contains a command that adds the key to
    ``file``. Without a file for host keys, ``file`` is ``None``.
    """
    reject_revoked(host, offered_key, known_keys)
    trusted_keys = [
        expected_key
        for expected_key in known_keys
        if not expected_key.is_revoked and not expected_key.is_authority
    ]
    if any(expected_key.key == offered_key for expected_key in trusted_keys):
        return
    if trusted_keys:
        raise _build_changed_key_error(host, address, offered_key, trusted_keys)
    if file is None:
        raise HostKeyRejected(
            f"{host}: no file for host keys, and unknown host key {offered_key.fingerprint} of {address}",
            hint="set `UserKnownHostsFile` for this host in the SSH configuration to a file, and repeat"
            " the command",
        )
    raise HostKeyRejected(
        f"{host}: unknown host key {offered_key.kind} {offered_key.fingerprint} of {address}",
        hint="compare it with the output of `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host"
        f" and accept a matching key: {format_accept_command(address, offered_key, file)}",
    )


def _build_changed_key_error(
    host: str, address: str, offered_key: HostKey, trusted_keys: Sequence[KnownKey]
) -> HostKeyRejected:
    """Return the error for a host with a different key than in known_hosts."""
    expected_key = next(
        (
            expected_key
            for expected_key in trusted_keys
            if expected_key.key.kind == offered_key.kind
        ),
        trusted_keys[0],
    )
    forget_command = (
        f"ssh-keygen -R {shlex.quote(address)} -f {shlex.quote(str(expected_key.path))}"
    )
    return HostKeyRejected(
        f"{host}: the host key of {address} has changed. Expected {expected_key.key.kind}"
        f" {expected_key.key.fingerprint} ({expected_key.path}:{expected_key.line}), got"
        f" {offered_key.kind} {offered_key.fingerprint}. Another machine may be intercepting"
        " the connection",
        hint="if the host was reinstalled and the new fingerprint is correct:"
        f" {forget_command} && {format_accept_command(address, offered_key, expected_key.path)}",
    )


def reject_revoked(host: str, offered_key: HostKey, known_keys: Iterable[KnownKey]) -> None:
    """Raise ``HostKeyRejected`` if one of ``known_keys`` revokes ``offered_key``."""
    for known_key in known_keys:
        if known_key.is_revoked and known_key.key == offered_key:
            raise HostKeyRejected(
                f"{host}: the host key {offered_key.fingerprint} is revoked in {known_key.path},"
                f" line {known_key.line}",
                hint=f"create a new host key on {host}, and add it to known_hosts",
            )


def format_accept_command(address: str, key: HostKey, file: Path) -> str:
    """Return the shell command that adds ``key`` to the known_hosts ``file``. A new account has no
    directory for this file yet.
    """
    known_hosts_line = f"{address} {key.kind} {key.data}"
    command = f"echo {shlex.quote(known_hosts_line)} >> {shlex.quote(str(file))}"
    if file.parent.is_dir():
        return command
    return f"mkdir -p -m 700 {shlex.quote(str(file.parent))} && {command}"


def format_known_hosts_name(host: str, port: int) -> str:
    """Return the name under which known_hosts lists a host and port."""
    return host if port == 22 else f"[{host}]:{port}"


def _parse_line(line: str, address: str, path: Path, line_number: int) -> KnownKey | None:
    fields = line.split()
    marker = fields.pop(0) if fields and fields[0] in (_REVOKED_MARKER, _AUTHORITY_MARKER) else ""
    # Comments, unknown markers and truncated lines contain no usable key.
    if (
        len(fields) < 3
        or fields[0].startswith(("#", "@"))
        or not _matches_address(fields[0], address)
    ):
        return None
    try:
        base64.b64decode(fields[2], validate=True)
    except ValueError:
        return None
    return KnownKey(
        HostKey(fields[1], fields[2]),
        path,
        line_number,
        marker == _REVOKED_MARKER,
        marker == _AUTHORITY_MARKER,
    )


def _matches_address(name_field: str, address: str) -> bool:
    """True if the first field of a known_hosts line (names, patterns or a hash) matches ``address``."""
    if name_field.startswith("|1|"):
        return _matches_hash(name_field, address)
    # Only * and ? are special in known_hosts; fnmatch would read [host] as a set of characters.
    name_patterns = name_field.lower().replace("[", "[[]").split(",")
    matching_patterns = [
        p for p in name_patterns if fnmatch.fnmatchcase(address.lower(), p.removeprefix("!"))
    ]
    return bool(matching_patterns) and not any(
        pattern.startswith("!") for pattern in matching_patterns
    )


def _matches_hash(hashed_name: str, address: str) -> bool:
    """True if ``hashed_name`` (``|1|salt|HMAC-SHA1 of the name``) is the hash of ``address``."""
    try:
        (salt, digest) = (base64.b64decode(part) for part in hashed_name.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(digest, hmac.new(salt, address.encode(), hashlib.sha1).digest())


CERTIFICATE_SUFFIX = "-cert-v01@openssh.com"
HOST_CERTIFICATE_TYPE = 2
_FORBIDDEN_SIGNATURE = "ssh-rsa"  # SHA-1 signatures, which ssh also refuses (CASignatureAlgorithms)


@dataclass(frozen=True)
class HostCertificate:
    """A host certificate. Times are in seconds since 1970. ``signed_bytes`` is the part of the
    certificate that the authority signed.
    """

    kind: int
    name: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical_options: bytes
    authority: HostKey
    signed_bytes: bytes
    signature: bytes

    def find_rejection(self, principal: str, known_keys: Iterable[KnownKey]) -> str | None:
        """Return why the certificate is not valid for ``principal``, or ``None`` if it is valid.

        ``known_keys`` are the lines in known_hosts that match the host.
        """
        if not any(
            known_key.is_authority and known_key.key == self.authority for known_key in known_keys
        ):
            return f"no @cert-authority line contains {self.authority.fingerprint}"
        if self.kind != HOST_CERTIFICATE_TYPE:
            return "it is not a host certificate"
        if self.principals and principal.lower() not in self.principals:
            return f"it is valid for {', '.join(self.principals)}, not for {principal}"
        if not self.valid_after <= time.time() < self.valid_before:
            return "it is not valid at this time"
        if self.critical_options:
            return "it contains critical options"
        return None if self._is_signature_valid() else "its signature is invalid"

    def _is_signature_valid(self) -> bool:
        algorithm = Message(self.signature).get_text()
        if algorithm == _FORBIDDEN_SIGNATURE:
            return False
        try:
            authority_key = PKey.from_type_string(self.authority.kind, self.authority.blob)
            return bool(authority_key.verify_ssh_sig(self.signed_bytes, Message(self.signature)))
        # The key has an unknown type, or the signature has an unexpected type or length.
        except (SSHException, UnknownKeyType, ValueError):
            return False


def parse_certificate(blob: bytes) -> HostCertificate | None:
    """Return the certificate in the public key ``blob``, or ``None`` if it contains no certificate."""
    try:
        return _parse_certificate_fields(blob)
    except (SSHException, ValueError, KeyError, IndexError):
        return None


def _parse_certificate_fields(blob: bytes) -> HostCertificate | None:
    certificate_message = Message(blob)
    certificate_kind = certificate_message.get_text()
    if not certificate_kind.endswith(CERTIFICATE_SUFFIX):
        return None
    certificate_message.get_string()  # nonce
    key_kind = certificate_kind.removesuffix(CERTIFICATE_SUFFIX)
    # Skip the strings that follow the key type in a public key.
    for _ in range(
        2 if key_kind.startswith("ecdsa-") else {"ssh-ed25519": 1, "ssh-rsa": 2}[key_kind]
    ):
        certificate_message.get_string()
    certificate_message.get_int64()  # serial number
    role = certificate_message.get_int()
    certificate_name = certificate_message.get_text()
    principals_message, principals = Message(certificate_message.get_string()), []
    while principals_message.get_remainder():
        principals.append(principals_message.get_text())
    valid_after, valid_before = certificate_message.get_int64(), certificate_message.get_int64()
    critical_options = certificate_message.get_string()
    certificate_message.get_string()  # extensions; none are defined for host certificates
    certificate_message.get_string()  # reserved
    authority_blob = certificate_message.get_string()
    signed_bytes, signature = certificate_message.get_so_far(), certificate_message.get_string()
    # The library pads a truncated certificate.
    if len(signed_bytes) + 4 + len(signature) != len(blob):
        return None
    return HostCertificate(
        role,
        certificate_name,
        tuple(principals),
        valid_after,
        valid_before,
        critical_options,
        HostKey.from_blob(authority_blob),
        signed_bytes,
        signature,
    )
