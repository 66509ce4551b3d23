"""A command's input and output over one SSH channel, without a thread for each."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass

from paramiko import Channel

_PIECE = 1 << 16  # bytes taken at a time
_GLANCE = 0.1  # s between looks at what has no file descriptor to wait on
_LINGER = 0.2  # s for the output of a command that ended while a child holds its pipes


class Lost(Exception):
    """The connection went while the command ran: whether it took effect is not known."""


class TimeIsUp(Exception):
    """The command did not end in time."""


@dataclass
class Exchange:
    """What is still to be sent, and what came back."""

    channel: Channel
    unsent: memoryview
    deadline: float
    stdout: bytearray
    stderr: bytearray

    def finish(self) -> int:
        """Run to the end of the command; returns its exit status.

        Raises ``Lost`` or ``TimeIsUp``.
        """
        self.channel.setblocking(0)
        ended: float | None = None
        while not self._drained():
            now = time.monotonic()
            if now > self.deadline:
                raise TimeIsUp
            if self.channel.exit_status_ready():
                # A daemon it left behind may hold its output open for ever.
                ended = ended or now
                if now > ended + _LINGER:
                    break
            if not self._moved():
                self._wait(now)
        if not self.channel.status_event.wait(max(0.0, self.deadline - time.monotonic())):
            raise TimeIsUp
        status = self.channel.recv_exit_status()
        if status < 0:
            raise Lost
        return int(status)

    def _drained(self) -> bool:
        channel = self.channel
        over = channel.eof_received or channel.closed
        return bool(over and not channel.recv_ready() and not channel.recv_stderr_ready())

    def _moved(self) -> bool:
        """Take what has come, send what can be sent; whether there was anything."""
        channel = self.channel
        moved = False
        if channel.recv_ready():
            self.stdout += channel.recv(_PIECE)
            moved = True
        if channel.recv_stderr_ready():
            self.stderr += channel.recv_stderr(_PIECE)
            moved = True
        if self.unsent and channel.send_ready():
            moved = self._sent() or moved
        return moved

    def _sent(self) -> bool:
        try:
            count = self.channel.send(self.unsent[:_PIECE])
        except TimeoutError:
            return False
        except OSError:  # the command has ended, or does not read: its status will tell
            self.unsent = self.unsent[:0]
            return False
        self.unsent = self.unsent[count:]
        if not self.unsent:
            self.channel.shutdown_write()
        return bool(count > 0)

    def _wait(self, now: float) -> None:
        # Room to send more is not announced on the descriptor, so look again soon.
        pause = 0.002 if self.unsent else _GLANCE
        select.select([self.channel.fileno()], [], [], min(pause, max(0.0, self.deadline - now)))


def exchange(channel: Channel, input: bytes | None, deadline: float) -> Exchange:  # noqa: A002
    """The exchange for a command that ``channel`` has just started."""
    if not input:
        channel.shutdown_write()
    return Exchange(channel, memoryview(input or b""), deadline, bytearray(), bytearray())
