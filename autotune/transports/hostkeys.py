"""Whether a host is who it was: its key against known_hosts (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).

Looked up here rather than by the SSH library, which leaves out revoked keys, patterns and all but
the first kind of key, and whose messages say neither fingerprint nor remedy.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.transports.errors import HostKeyRefused

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
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            known = _parsed(line, address, path, number)
            if known is not None:
                found.append(known)
    return found


def check(host: str, address: str, offered: HostKey, known: Sequence[KnownKey], file: Path) -> None:
    """Raise ``HostKeyRefused`` unless ``offered`` is a key that ``address`` is known by.

    ``host``: what messages call it. ``file``: where an accepted key would be written.
    """
    refuse_revoked(host, offered, known)
    trusted = [entry for entry in known if not entry.revoked and not entry.authority]
    if any(entry.key == offered for entry in trusted):
        return
    if trusted:
        raise _changed(host, address, offered, trusted)
    raise HostKeyRefused(
        f"{host}: the host key of {address} is not known: {offered.kind} {offered.fingerprint}",
        hint="compare it with what `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` says on the host;"
        f" if it is the same, accept it: {accept(address, offered, file)}",
    )


def refuse_revoked(host: str, offered: HostKey, known: Iterable[KnownKey]) -> None:
    """Raise ``HostKeyRefused`` where a line revokes the key."""
    for entry in known:
        if entry.revoked and entry.key == offered:
            raise HostKeyRefused(
                f"{host}: its host key {offered.fingerprint} is revoked"
                f" ({entry.path}:{entry.line})",
                hint="give the host a new key",
            )


def accept(address: str, key: HostKey, file: Path) -> str:
    """The shell command that makes ``key`` known: this key, not one asked for anew."""
    entry = f"{address} {key.kind} {key.data}"
    return f"echo {shlex.quote(entry)} >> {shlex.quote(str(file))}"


def name_in_file(host: str, port: int) -> str:
    """What known_hosts calls a host on a port."""
    return host if port == 22 else f"[{host}]:{port}"


def _changed(
    host: str, address: str, offered: HostKey, trusted: Sequence[KnownKey]
) -> HostKeyRefused:
    entry = next((entry for entry in trusted if entry.key.kind == offered.kind), trusted[0])
    forget = f"ssh-keygen -R {shlex.quote(address)} -f {shlex.quote(str(entry.path))}"
    return HostKeyRefused(
        f"{host}: the host key of {address} has changed: it is known by {entry.key.kind}"
        f" {entry.key.fingerprint} ({entry.path}:{entry.line}) and offers {offered.kind}"
        f" {offered.fingerprint}; somebody may be in between",
        hint="if the host was installed anew and the fingerprint is the new one:"
        f" {forget} && {accept(address, offered, entry.path)}",
    )


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
    meant = False
    for pattern in names.split(","):
        negated = pattern.startswith("!")
        if _matches(pattern.removeprefix("!"), address):
            if negated:
                return False
            meant = True
    return meant


def _matches(pattern: str, address: str) -> bool:
    # Only * and ? are special in known_hosts; fnmatch would read [host]:port as a set.
    escaped = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(address.lower(), escaped.lower())


def _hashed(name: str, address: str) -> bool:
    """``|1|salt|HMAC-SHA1 of the name``."""
    try:
        (salt, digest) = (base64.b64decode(part) for part in name.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(digest, hmac.new(salt, address.encode(), hashlib.sha1).digest())
