"""A transport to this machine, with a separate directory for the files that autotune writes on
hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
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
