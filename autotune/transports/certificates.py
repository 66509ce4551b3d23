"""Host certificates (OpenSSH's PROTOCOL.certkeys), held against the authorities of known_hosts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from paramiko import Message, PKey
from paramiko.ssh_exception import SSHException

from autotune.transports.hostkeys import HostKey, KnownKey

SUFFIX = "-cert-v01@openssh.com"
HOST = 2
# How many strings a public key has after the name of its kind.
_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2}
_ECDSA_FIELDS = 2
_FORBIDDEN = "ssh-rsa"  # signatures by SHA-1, as ssh refuses them (CASignatureAlgorithms)


@dataclass(frozen=True)
class Certificate:
    """What an authority says of a key; times in seconds since 1970, ``signed`` what it has signed."""

    kind: int
    name: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical: bytes
    authority: HostKey
    signed: bytes
    signature: bytes

    def refusal(self, principal: str, known: Iterable[KnownKey]) -> str | None:
        """Why the certificate does not vouch for ``principal``; ``None`` where it does.

        ``known`` are the lines of known_hosts that speak of the host.
        """
        if not any(entry.authority and entry.key == self.authority for entry in known):
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
        return _parsed(blob)
    except (SSHException, ValueError, KeyError, IndexError):
        return None


def _parsed(blob: bytes) -> Certificate | None:
    message = Message(blob)
    kind = message.get_text()
    if not kind.endswith(SUFFIX):
        return None
    message.get_string()  # nonce
    plain = kind.removesuffix(SUFFIX)
    fields = _ECDSA_FIELDS if plain.startswith("ecdsa-") else _FIELDS[plain]
    for _ in range(fields):
        message.get_string()
    message.get_int64()  # serial number
    role = message.get_int()
    name = message.get_text()
    principals = _strings(message.get_string())
    valid_after, valid_before = message.get_int64(), message.get_int64()
    critical = message.get_string()
    message.get_string()  # extensions: none is known for hosts
    message.get_string()  # reserved
    authority = message.get_string()
    signed, signature = message.get_so_far(), message.get_string()
    if len(signed) + 4 + len(signature) != len(blob):  # the library makes up for what is missing
        return None
    return Certificate(
        role, name, principals, valid_after, valid_before, critical,
        HostKey.of_blob(authority), signed, signature,
    )  # fmt: skip


def _strings(packed: bytes) -> tuple[str, ...]:
    message, strings = Message(packed), []
    while message.get_remainder():
        strings.append(message.get_text())
    return tuple(strings)
