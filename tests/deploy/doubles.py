"""A transport to this machine, with a separate directory for the files that autotune writes on
hosts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import STATE_DIRECTORY
from autotune.deploy.restoration import restore_in_order
from autotune.transports.base import Argv, CommandResult
from autotune.transports.local import LocalTransport


class Here(LocalTransport):
    """A transport that runs scripts below ``place``, without becoming root."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.exchanges = 0

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.exchanges += 1
        return super().run(
            argv, input=self.rewritten(input or b""), timeout=timeout, cwd=cwd, env=env
        )

    def rewritten(self, script: bytes) -> bytes:
        """Return the script, with the paths of a real host replaced by paths below ``place``."""
        script = script.replace(STATE_DIRECTORY.encode(), str(self.place / "autotune").encode())
        return script.replace(b"</var/lib", f"<{self.place}".encode())


def restore_host(host: ManagedHost) -> tuple[str, ...]:
    """Restore a single host, and return the lines about it."""
    return restore_in_order([host]).unwrap()[host.name]


# Tags of entries of an access list (posix_acl_xattr.h), and an account that has no name
OWNER, ACCOUNT, GROUP, MASK, OTHERS = 1, 2, 4, 0x10, 0x20
NAMELESS = 123_456


def set_access_list(path: Path, entries: Sequence[tuple[int, int, int]]) -> bytes:
    """Give a file an access list. Each entry consists of a tag, permissions and an account or -1."""
    access_list = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, permissions, account & 0xFFFFFFFF)
        for tag, permissions, account in entries
    )
    os.setxattr(path, "system.posix_acl_access", access_list)
    return access_list


# A long access list, with the text that setfacl accepts
LONG_ACCESS_LIST = (
    (OWNER, 6, -1),
    *((ACCOUNT, 4, NAMELESS + number) for number in range(100)),
    (GROUP, 4, -1),
    (MASK, 4, -1),
    (OTHERS, 0, -1),
)
LONG_ACCESS_TEXT = ",".join(
    (
        "user::rw-",
        *(f"user:{NAMELESS + number}:r--" for number in range(100)),
        "group::r--,mask::r--,other::---",
    )
)
