"""Hosts reached over SSH: one connection each, kept open, a channel for each command."""

from __future__ import annotations

import contextlib
import math
import select
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fabric import Connection
from paramiko import Channel, ChannelException, SSHException

from autotune.errors import AutotuneError
from autotune.transports import connection as connections
from autotune.transports import waiting
from autotune.transports.base import Argv, Completed, HostUnreachable, SshHost
from autotune.transports.remote_shell import MarkedStream, Marks, shell_script

_SESSIONS = 8  # at once on a connection; sshd allows ten (MaxSessions, sshd_config(5))
_TRANSFER = 60.0  # s for one file
_WORD = 1.0  # s more to learn that a command was killed, or ended, in the last moment
_KILLED = 137  # a shell's status for a command ended by SIGKILL
_PIECE = 1 << 16  # bytes taken at a time
_GLANCE = 0.1  # s between looks at what has no file descriptor to wait on
# When a command has ended but a child holds its pipes, reading stops after this long and so many looks
# without output: looks count, too, for this machine may have stood still all that time.
_LINGER, _LOOKS = 0.2, 3  # s; looks

# Writes its input beside the file and puts it in its place in one step. A connection that is lost
# looks like the end of the input, hence the size. The dot keeps the new file out of
# directories read by pattern (conf.d/*.conf, sites-enabled/*) while it is there.
_PUT = """
set -eu
path=$1 mode=$2 size=$3
case $path in */*) directory=${path%/*}/ ;; *) directory=./ ;; esac
new=$(mktemp -- "$directory.${path##*/}.XXXXXXXX")
trap 'rm -f -- "$new"' EXIT
trap 'exit 1' HUP INT TERM
dd of="$new" bs=65536 conv=fsync status=none
came=$(wc -c <"$new")
if [ "$came" -ne "$size" ]; then
    echo "only $came of $size bytes arrived" >&2
    exit 1
fi
if [ -e "$path" ]; then chown --reference="$path" -- "$new"; fi
chmod -- "$mode" "$new"
mv -fT -- "$new" "$path"
sync -- "$directory"
"""


def returncode(status: int) -> int:
    """A shell's exit status as ``Completed`` has it: 128 + n means ended by signal n."""
    return 128 - status if 128 < status < 160 else status


class ConnectionLost(HostUnreachable):
    """The connection was lost while a command ran: whether that took effect is not known."""


class Exchange:
    """A command's input and output over one SSH channel, without a thread for each."""

    def __init__(self, channel: Channel, content: bytes, deadline: float, marks: Marks) -> None:
        self.channel, self.deadline = channel, deadline
        self.stdout, self.stderr = MarkedStream(marks), MarkedStream(marks)
        self._unsent = memoryview(content)

    def finish(self) -> int:
        """Run to the end of the command; returns its exit status.

        Raises ``EOFError`` if the connection is lost meanwhile, ``TimeoutError`` at the deadline.
        """
        if not self._unsent:
            self.channel.shutdown_write()
        self.channel.setblocking(0)
        silent_since, looks = math.inf, 0  # since the login shell has ended
        while not self._is_complete() and not self._is_drained():
            now, ended = time.monotonic(), self.channel.exit_status_ready()
            if now > self.deadline:
                if not ended:
                    raise TimeoutError
                break  # a daemon it left behind may write for ever
            if self._move():
                silent_since, looks = math.inf, 0
                continue
            if ended:
                # A daemon may also hold the output open without writing.
                silent_since, looks = min(silent_since, now), looks + 1
                if now > silent_since + _LINGER and looks >= _LOOKS:
                    break
            # Room to send more is not announced on the descriptor, so look again soon.
            pause = min(0.002 if self._is_sending() else _GLANCE, max(0.0, self.deadline - now))
            select.select([self.channel.fileno()], [], [], pause)
        return self._status()

    def _status(self) -> int:
        status = self.stdout.status
        if status is not None and self.stderr.ended:
            self.channel.status_event.wait(_LINGER)  # until then sshd counts it as a session
            return status
        if not self.channel.status_event.wait(max(0.0, self.deadline - time.monotonic())):
            raise TimeoutError
        status = self.channel.recv_exit_status()
        if status < 0:
            raise EOFError
        return int(status)

    def _is_complete(self) -> bool:
        return self.stdout.status is not None and self.stderr.ended

    def _is_sending(self) -> bool:
        """True if there is input to send. It waits for the mark, lest the profile reads it."""
        return bool(self._unsent) and self.stdout.started

    def _is_drained(self) -> bool:
        channel = self.channel
        over = channel.eof_received or channel.closed
        return bool(over and not channel.recv_ready() and not channel.recv_stderr_ready())

    def _move(self) -> bool:
        """Take what has come, send what can be sent; True if there was anything."""
        channel = self.channel
        moved = False
        if channel.recv_ready():
            self.stdout.add(channel.recv(_PIECE))
            moved = True
        if channel.recv_stderr_ready():
            self.stderr.add(channel.recv_stderr(_PIECE))
            moved = True
        if self._is_sending() and channel.send_ready():
            moved = self._send() or moved
        return moved

    def _send(self) -> bool:
        try:
            count = self.channel.send(self._unsent[:_PIECE])
        except TimeoutError:
            return False
        except OSError:  # the command has ended, or does not read: its status will tell
            self._unsent = self._unsent[:0]
            return False
        self._unsent = self._unsent[count:]
        if not self._unsent:
            self.channel.shutdown_write()
        return bool(count > 0)


class LoginShellFailed(HostUnreachable):
    """The login shell, or the profile that it reads, ended before the command: it has not run."""


@dataclass(frozen=True)
class _Answer:
    """What a command left, its output as bytes."""

    status: int
    stdout: bytes
    stderr: bytes

    def completed(self, argv: Argv) -> Completed:
        return Completed(
            tuple(argv),
            returncode(self.status),
            self.stdout.decode(errors="replace"),
            self.stderr.decode(errors="replace"),
        )


class SshTransport:
    """A ``Transport`` over SSH. Connects at first use; safe to use from several threads.

    A connection found dead is made anew once. A command is never sent twice: if the connection
    is lost while it runs, ``HostUnreachable`` says so, since it may have taken effect. Files are
    sent again, since that does no harm.
    """

    def __init__(self, host: SshHost) -> None:
        self.host = host
        self._connection: Connection | None = None
        self._connecting = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        # Idle ones of those that were needed besides, where sshd allows few sessions on each.
        self._further: deque[Connection] = deque()

    @property
    def name(self) -> str:
        return self.host.name

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # noqa: A002  # as subprocess calls it
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """A command that is not done in time is killed, unless sudo runs it as another user."""
        with waiting.command(self.name, argv, timeout):
            as_other = sudo and not self._is_root()
            script = shell_script(argv, timeout=timeout, sudo=as_other, cwd=cwd, env=env)
            return self._run(script, argv[0], input, timeout).completed(argv)

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Keeps owner and group of a file it replaces. Raises ``AutotuneError`` if it cannot."""
        argv = ["sh", "-c", _PUT, "sh", path, f"{mode:04o}", str(len(content))]
        done = self._transfer(argv, content, sudo=sudo).completed(argv)
        if not done.ok:
            raise self._refused(f"{path} cannot be written", done)

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """Raises ``AutotuneError`` if it is there and cannot be read."""
        argv = ["env", "LC_ALL=C", "cat", "--", path]
        answer = self._transfer(argv, None, sudo=sudo)
        done = answer.completed(argv)
        if done.ok:
            return answer.stdout
        if done.error_text.endswith(("No such file or directory", "Not a directory")):
            return None
        raise self._refused(f"{path} cannot be read", done)

    def close(self) -> None:
        with self._connecting:
            self._disconnect()
        while self._further:
            connections.close(self._further.popleft())

    def _is_root(self) -> bool:
        return bool(self._live().user == "root")

    def _transfer(self, argv: Argv, content: bytes | None, *, sudo: bool) -> _Answer:
        with waiting.about("transfer of a file"), waiting.command(self.name, argv, _TRANSFER):
            script = shell_script(argv, timeout=_TRANSFER, sudo=sudo and not self._is_root())
            try:
                return self._run(script, argv[0], content, _TRANSFER)
            except ConnectionLost:
                return self._run(script, argv[0], content, _TRANSFER)

    def _run(self, script: str, command: str, content: bytes | None, timeout: float) -> _Answer:
        start, marks = time.monotonic(), Marks()
        with self._sessions, self._channel(timeout) as channel:
            exchange = Exchange(channel, content or b"", start + timeout + _WORD, marks)
            channel.settimeout(timeout)
            try:
                channel.exec_command(marks.line(script))
            except (SSHException, EOFError, OSError):
                raise self._lost(command) from None
            try:
                status = exchange.finish()
            except TimeoutError:
                status = _KILLED
            except (SSHException, EOFError, OSError):
                raise self._lost(command) from None
        late = status == _KILLED and time.monotonic() - start >= timeout
        if not exchange.stdout.started:
            raise self._not_started(command, exchange, timeout if late else None)
        if late:
            raise HostUnreachable(f"{self.name}: {command} was not done after {timeout:g} s")
        return _Answer(status, bytes(exchange.stdout.output), bytes(exchange.stderr.output))

    def _not_started(
        self, command: str, exchange: Exchange, waited: float | None
    ) -> LoginShellFailed:
        """The error for a login shell, or its profile, that ended or waits before the command."""
        used = self._live()
        printed = (bytes(exchange.stderr.before) or bytes(exchange.stdout.before)).strip()
        words = printed.decode(errors="replace")[-300:]
        within = f" within {waited:g} s" if waited is not None else ""
        return LoginShellFailed(
            f"{self.name}: the login shell of {used.user} did not run {command}{within}"
            + (f": it printed {words!r}" if words else ""),
            hint=f"`ssh {used.user}@{used.host} echo ok` must print ok: the account needs a shell, and "
            "a profile without `exit` or a question",
        )

    def _lost(self, command: str) -> ConnectionLost:
        return ConnectionLost(
            f"{self.name}: the connection was lost while {command} ran",
            hint="it may or may not have taken effect",
        )

    @contextlib.contextmanager
    def _channel(self, timeout: float) -> Iterator[Channel]:
        limit = min(timeout, self.host.connect_timeout)
        try:
            (channel, further) = self._open_session(limit), None
        except ChannelException:  # as many as sshd allows on one connection (MaxSessions)
            (channel, further) = self._open_elsewhere(limit)
        try:
            yield channel
        finally:
            channel.close()
            if further is not None:
                self._further.append(further)

    def _open_session(self, limit: float) -> Channel:
        used = self._live()
        try:
            return used.transport.open_session(timeout=limit)
        except ChannelException:  # the connection is fine: others may be using it
            raise
        except (SSHException, EOFError, OSError):
            with self._connecting:
                if self._connection is used:  # no other thread has replaced it already
                    self._disconnect()
            again = self._live()
            with connections.explained(self.host, again):
                return again.transport.open_session(timeout=limit)

    def _open_elsewhere(self, limit: float) -> tuple[Channel, Connection]:
        """A session on a further connection, one from before or a new one."""
        while self._further:
            further = self._further.popleft()
            try:
                return further.transport.open_session(timeout=limit), further
            except (SSHException, EOFError, OSError):
                connections.close(further)
        further = connections.opened(self.host)
        try:
            with connections.explained(self.host, further):
                return further.transport.open_session(timeout=limit), further
        except BaseException:
            connections.close(further)
            raise

    def _live(self) -> Connection:
        with self._connecting:
            if self._connection is not None and not self._connection.is_connected:
                self._disconnect()
            if self._connection is None:
                self._connection = connections.opened(self.host)
            return self._connection

    def _disconnect(self) -> None:
        """Close the connection if there is one; only while ``_connecting`` is held."""
        if self._connection is not None:
            connections.close(self._connection)
            self._connection = None

    def _refused(self, what: str, done: Completed) -> AutotuneError:
        hint = None
        if done.stderr.startswith("sudo:"):
            hint = f"let {self._live().user} run it by `sudo -n` on {self.name}, or log in as root"
        return AutotuneError(f"{self.name}: {what}: {done.error_text}", hint=hint)
