"""Whether a host is who it was: its key against known_hosts (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT),
its certificate (OpenSSH's PROTOCOL.certkeys) against the authorities there.

Looked up here rather than by the SSH library, which leaves out revoked keys, patterns and all but
the first kind of key, and whose messages say neither fingerprint nor what to do.
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
        """A key as it goes over the wire: the name of its kind comes first."""
        length = int.from_bytes(blob[:4], "big")
        return cls(blob[4 : 4 + length].decode(), base64.b64encode(blob).decode())

    @property
    def blob(self) -> bytes:
        return base64.b64decode(self.data)

    @property
    def fingerprint(self) -> str:
        """As OpenSSH shows it: SHA256 of the key's bytes, base64 without padding."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class KnownKey:
    """A line of a known_hosts file that names a host.

    ``authority``: the key is that of a certificate authority, and no host's.
    """

    key: HostKey
    path: Path
    line: int
    revoked: bool = False
    authority: bool = False


def known_keys(address: str, files: Iterable[Path]) -> list[KnownKey]:
    """What ``files`` say of ``address`` (``name``, or ``[name]:port`` off port 22).

    Files that are not there say nothing.
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
    """Raise ``HostKeyRefused`` unless ``offered`` is a key that ``address`` is known by.

    ``host``: what messages call it. ``file``: where an accepted key would be written.
    """
    refuse_revoked(host, offered, entries)
    trusted = [entry for entry in entries if not entry.revoked and not entry.authority]
    if any(entry.key == offered for entry in trusted):
        return
    if trusted:
        entry = next((entry for entry in trusted if entry.key.kind == offered.kind), trusted[0])
        forget = f"ssh-keygen -R {shlex.quote(address)} -f {shlex.quote(str(entry.path))}"
        raise HostKeyRefused(
            f"{host}: the host key of {address} has changed: it is known by {entry.key.kind}"
            f" {entry.key.fingerprint} ({entry.path}:{entry.line}) and offers {offered.kind}"
            f" {offered.fingerprint}; somebody may be in between",
            hint="if the host was installed anew and the fingerprint is the new one:"
            f" {forget} && {accept(address, offered, entry.path)}",
        )
    raise HostKeyRefused(
        f"{host}: the host key of {address} is not known: {offered.kind} {offered.fingerprint}",
        hint="compare it with what `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` says on the host;"
        f" if it is the same, accept it: {accept(address, offered, file)}",
    )


def refuse_revoked(host: str, offered: HostKey, entries: Iterable[KnownKey]) -> None:
    """Raise ``HostKeyRefused`` where a line revokes the key."""
    for entry in entries:
        if entry.revoked and entry.key == offered:
            raise HostKeyRefused(
                f"{host}: its host key {offered.fingerprint} is revoked"
                f" ({entry.path}:{entry.line})",
                hint="give the host a new key",
            )


def accept(address: str, key: HostKey, file: Path) -> str:
    """The shell command that makes ``key`` known: exactly this key, not one fetched again."""
    entry = f"{address} {key.kind} {key.data}"
    return f"echo {shlex.quote(entry)} >> {shlex.quote(str(file))}"


def name_in_file(host: str, port: int) -> str:
    """What known_hosts calls a host on a port."""
    return host if port == 22 else f"[{host}]:{port}"


def _parsed(line: str, address: str, path: Path, number: int) -> KnownKey | None:
    fields = line.split()
    marker = fields.pop(0) if fields and fields[0] in (_REVOKED, _AUTHORITY) else ""
    # Comments, unknown markers and lines cut short name no key of this host.
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
    """Whether the first field of a line (names, patterns or one hash) means ``address``."""
    if names.startswith("|1|"):
        return _hashed(names, address)
    # Only * and ? are special in known_hosts; fnmatch would read [host]:port as a set.
    patterns = names.lower().replace("[", "[[]").split(",")
    matching = [p for p in patterns if fnmatch.fnmatchcase(address.lower(), p.removeprefix("!"))]
    return bool(matching) and not any(pattern.startswith("!") for pattern in matching)


def _hashed(name: str, address: str) -> bool:
    """``|1|salt|HMAC-SHA1 of the name``."""
    try:
        (salt, digest) = (base64.b64decode(part) for part in name.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(digest, hmac.new(salt, address.encode(), hashlib.sha1).digest())


SUFFIX = "-cert-v01@openssh.com"
HOST = 2
_FORBIDDEN = "ssh-rsa"  # signatures by SHA-1, as ssh refuses them (CASignatureAlgorithms)


@dataclass(frozen=True)
class Certificate:
    """What an authority says of a key; times in seconds since 1970, ``signed``: the signed bytes."""

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
        """Why the certificate does not vouch for ``principal``; ``None`` where it does.

        ``entries`` are the lines of known_hosts that speak of the host.
        """
        if not any(entry.authority and entry.key == self.authority for entry in entries):
            return f"no @cert-authority line has {self.authority.fingerprint}"
        if self.kind != HOST:
            return "it is not a host's"
        if self.principals and principal.lower() not in self.principals:
            return f"it is for {', '.join(self.principals)}, not for {principal}"
        if not self.valid_after <= time.time() < self.valid_before:
            return "it is not valid now"
        if self.critical:
            return "it has critical options"
        return None if self._is_signed() else "its signature is wrong"

    def _is_signed(self) -> bool:
        algorithm = Message(self.signature).get_text()
        if algorithm == _FORBIDDEN:
            return False
        try:
            authority = PKey.from_type_string(self.authority.kind, self.authority.blob)
            return bool(authority.verify_ssh_sig(self.signed, Message(self.signature)))
        except (SSHException, ValueError):  # a signature of another kind or length
            return False


def certificate_of(blob: bytes) -> Certificate | None:
    """The certificate in ``blob``, the public key that a host offers; ``None`` where it is none."""
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
    # How many strings a public key has after the name of its kind.
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
    message.get_string()  # extensions: none is known for hosts
    message.get_string()  # reserved
    authority = message.get_string()
    signed, signature = message.get_so_far(), message.get_string()
    if len(signed) + 4 + len(signature) != len(blob):  # the library pads what is cut short
        return None
    return Certificate(
        role, name, tuple(principals), valid_after, valid_before, critical,
        HostKey.of_blob(authority), signed, signature,
    )  # fmt: skip
