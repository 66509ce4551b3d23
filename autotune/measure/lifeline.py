"""Ends a process group when this process does, even if it is killed.

A shell waits at the other end of a pipe, which the kernel closes when this process is gone, however
it went. Until then it only remembers which group was named last.
"""

from __future__ import annotations

import subprocess

_WATCH = 'while read -r group; do last=$group; done; [ "$last" -eq 0 ] || kill -s KILL -- "-$last"'


class Lifeline:
    """One group at a time; ``close`` when there is nothing more to hold."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", f"last=0; {_WATCH}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def hold(self, group: int) -> None:
        """End this process group (by its id) when this process ends."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{group}\n".encode())
        self._shell.stdin.flush()

    def let_go(self) -> None:
        self.hold(0)

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
