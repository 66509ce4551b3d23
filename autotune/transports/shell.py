"""The one place where words become a line for a remote shell.

SSH carries a line of text that the user's login shell reads (RFC 4254, 6.5). Every word is
quoted, so no value can be anything but a word. The login shell must be a POSIX one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from autotune.errors import AutotuneError
from autotune.transports.base import Argv

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def line(
    argv: Argv,
    *,
    timeout: float,
    sudo: bool = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """A shell line that runs exactly ``argv``; raises ``AutotuneError`` if none can.

    After ``timeout`` seconds the host itself kills it and what it started, also if nobody is
    connected any more, unless it runs as another user (``sudo``). ``sudo`` never asks for a
    password; its environment is set behind it, since it clears it.
    """
    words = [*(["sudo", "-n", "--"] if sudo else []), *_environment(env), *argv]
    if not argv or any("\0" in word for word in (*words, cwd or "")):
        raise AutotuneError(f"not a command: {list(argv)!r}")
    limited = ["timeout", "-s", "KILL", "--", f"{max(timeout, 0.001):.3f}", *words]
    directory = f"cd -- {shlex.quote(cwd)} && " if cwd is not None else ""
    # With something of its own left to do, the shell stays to tell how the command ended.
    return f"{directory}{' '.join(map(shlex.quote, limited))}; exit $?"


def returncode(status: int) -> int:
    """A shell's exit status as ``Completed`` has it: 128 + n means ended by signal n."""
    return 128 - status if 128 < status < 160 else status


def _environment(env: Mapping[str, str] | None) -> list[str]:
    for name in env or {}:
        if not _VARIABLE.fullmatch(name):
            raise AutotuneError(f"{name!r} is not the name of an environment variable")
    return ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
