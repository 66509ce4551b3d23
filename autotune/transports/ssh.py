"""Transport over SSH: one persistent connection per host and one channel per command."""

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
from autotune.transports import wait_notices
from autotune.transports.base import (
    Argv,
    CommandResult,
    ConnectionLost,
    HostUnreachable,
    SshHost,
)
from autotune.transports.remote_shell import MarkedStream, OutputMarks, build_shell_script

# maximum number of concurrent sessions on the first connection; sshd's default is ten (MaxSessions)
_MAX_SESSIONS = 8
# maximum number of connections that are opened concurrently; sshd refuses more than ten (MaxStartups)
_MAX_LOGINS = 8
_TRANSFER_SECONDS = 60.0  # time limit for the transfer of one file
# additional wait for the exit status of a command that exits at its time limit
_FINAL_STATUS_SECONDS = 1.0
_KILLED_STATUS = 137  # a shell's exit status for a command that SIGKILL killed
_CHUNK_BYTES = 1 << 16  # maximum number of bytes per read
# Maximum output of a command. A hostile host could otherwise fill this machine's memory.
_MAX_OUTPUT_MEGABYTES = 512
_MAX_OUTPUT_BYTES = _MAX_OUTPUT_MEGABYTES << 20
_POLL_SECONDS = 0.1  # time between checks for events that no file descriptor signals
# A child process may keep the pipes of a command open. Reading stops after this time and this many
# checks without output. The time alone is not enough, because this machine may have been suspended.
_LINGER_SECONDS, _MIN_IDLE_POLLS = 0.2, 3

# The script writes its input to a temporary file, then renames the file. A lost connection looks
# like the end of input, so the script checks the size. The leading dot hides the temporary file
# from patterns such as conf.d/*.conf.
_PUT_SCRIPT = """
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


def to_returncode(status: int) -> int:
    """Return the ``CommandResult.returncode`` for a shell's exit status: 128 + n means signal n."""
    return 128 - status if 128 < status < 160 else status


class OutputTooLong(Exception):
    """A command printed more than ``_MAX_OUTPUT_BYTES``."""


class CommandExchange:
    """The transfer of a command's input and output over one SSH channel, without extra threads."""

    def __init__(
        self, channel: Channel, content: bytes, deadline: float, marks: OutputMarks
    ) -> None:
        self.channel, self.deadline = channel, deadline
        self.stdout, self.stderr = MarkedStream(marks), MarkedStream(marks)
        self._unsent = memoryview(content)

    def finish(self) -> int:
        """Wait for the command to finish and return its exit status.

        Raises ``EOFError`` if the connection is lost, ``TimeoutError`` at the deadline, and
        ``OutputTooLong``.
        """
        if not self._unsent:
            self.channel.shutdown_write()
        self.channel.setblocking(0)
        # After the login shell's exit: the start of the silence, and the number of checks without output.
        silence_start, idle_polls = math.inf, 0
        while not self._is_complete() and not self._is_drained():
            now, has_exited = time.monotonic(), self.channel.exit_status_ready()
            if now > self.deadline:
                if not has_exited:
                    raise TimeoutError
                break  # a background process may keep writing
            if self._transfer_available():
                silence_start, idle_polls = math.inf, 0
                if len(self.stdout.output) + len(self.stderr.output) > _MAX_OUTPUT_BYTES:
                    raise OutputTooLong
                continue
            if has_exited:
                # A background process may also keep the output open without writing.
                silence_start, idle_polls = min(silence_start, now), idle_polls + 1
                if now > silence_start + _LINGER_SECONDS and idle_polls >= _MIN_IDLE_POLLS:
                    break
            # The descriptor does not signal when more input can be sent, so check again soon.
            pause = min(
                0.002 if self._is_sending() else _POLL_SECONDS, max(0.0, self.deadline - now)
            )
            select.select([self.channel.fileno()], [], [], pause)
        return self._read_status()

    def _read_status(self) -> int:
        status = self.stdout.exit_status
        if status is not None and self.stderr.ended:
            # sshd counts the session as open until the exit status is sent.
            self.channel.status_event.wait(_LINGER_SECONDS)
            return status
        if not self.channel.status_event.wait(max(0.0, self.deadline - time.monotonic())):
            raise TimeoutError
        status = self.channel.recv_exit_status()
        if status < 0:
            raise EOFError
        return int(status)

    def _is_complete(self) -> bool:
        return self.stdout.exit_status is not None and self.stderr.ended

    def _is_sending(self) -> bool:
        """True if unsent input remains and the start marker has arrived. Before the marker, a shell
        profile could read the input.
        """
        return bool(self._unsent) and self.stdout.started

    def _is_drained(self) -> bool:
        channel = self.channel
        is_closed = channel.eof_received or channel.closed
        return bool(is_closed and not channel.recv_ready() and not channel.recv_stderr_ready())

    def _transfer_available(self) -> bool:
        """Read available output and send input. Return true if any bytes were transferred."""
        channel = self.channel
        has_transferred = False
        if channel.recv_ready():
            self.stdout.add_output(channel.recv(_CHUNK_BYTES))
            has_transferred = True
        if channel.recv_stderr_ready():
            self.stderr.add_output(channel.recv_stderr(_CHUNK_BYTES))
            has_transferred = True
        if self._is_sending() and channel.send_ready():
            has_transferred = self._send_input() or has_transferred
        return has_transferred

    def _send_input(self) -> bool:
        try:
            sent_byte_count = self.channel.send(self._unsent[:_CHUNK_BYTES])
        except TimeoutError:
            return False
        except OSError:  # the command has exited or closed its input, so the rest is not needed
            self._unsent = self._unsent[:0]
            return False
        self._unsent = self._unsent[sent_byte_count:]
        if not self._unsent:
            self.channel.shutdown_write()
        return bool(sent_byte_count > 0)


class LoginShellFailed(HostUnreachable):
    """The login shell or its profile exited before the command, so the command did not run."""


@dataclass(frozen=True)
class _RawResult:
    """Result of a command with its output as bytes."""

    status: int
    stdout: bytes
    stderr: bytes

    def decode(self, argv: Argv) -> CommandResult:
        return CommandResult(
            tuple(argv),
            to_returncode(self.status),
            self.stdout.decode(errors="replace"),
            self.stderr.decode(errors="replace"),
        )


class SshTransport:
    """A ``Transport`` over SSH, which connects at first use and is thread-safe.

    A dead connection is reopened once. No command is sent twice. If the connection is lost while a
    command runs, ``HostUnreachable`` is raised, because the command may have taken effect. File
    transfers are repeated, because a second transfer has the same result.
    """

    def __init__(self, host: SshHost) -> None:
        self.host = host
        self._connection: Connection | None = None
        self._connection_lock = threading.Lock()
        self._session_slots = threading.BoundedSemaphore(_MAX_SESSIONS)
        self._login_slots = threading.BoundedSemaphore(_MAX_LOGINS)
        # idle extra connections, each for one session that the first connection does not allow
        self._extra_connections: deque[Connection] = deque()

    @property
    def name(self) -> str:
        return self.host.name

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # noqa: A002  # subprocess uses this name
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command, and kill it after ``timeout`` seconds unless sudo runs it as another user."""
        with wait_notices.command(self.name, argv, timeout):
            uses_other_account = sudo and not self._is_root()
            script = build_shell_script(
                argv, timeout=timeout, sudo=uses_other_account, cwd=cwd, env=env
            )
            return self._run(script, argv[0], input, timeout).decode(argv)

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Write a file, keeping its owner and group. Raises ``AutotuneError`` on failure."""
        argv = ["sh", "-c", _PUT_SCRIPT, "sh", path, f"{mode:04o}", str(len(content))]
        command_result = self._transfer(argv, content, sudo=sudo).decode(argv)
        if not command_result.ok:
            raise self._build_file_error(f"{path} cannot be written", command_result)

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """Return the content of a file as bytes, or ``None`` if the file does not exist. Raises
        ``AutotuneError`` if an existing file cannot be read.
        """
        argv = ["env", "LC_ALL=C", "cat", "--", path]
        raw_result = self._transfer(argv, None, sudo=sudo)
        command_result = raw_result.decode(argv)
        if command_result.ok:
            return raw_result.stdout
        if command_result.error_text.endswith(("No such file or directory", "Not a directory")):
            return None
        raise self._build_file_error(f"{path} cannot be read", command_result)

    def close(self) -> None:
        with self._connection_lock:
            self._disconnect()
        while self._extra_connections:
            connections.close_connection(self._extra_connections.popleft())

    def _is_root(self) -> bool:
        return bool(self._get_live_connection().user == "root")

    def _transfer(self, argv: Argv, content: bytes | None, *, sudo: bool) -> _RawResult:
        with (
            wait_notices.about("transfer of a file"),
            wait_notices.command(self.name, argv, _TRANSFER_SECONDS),
        ):
            script = build_shell_script(
                argv, timeout=_TRANSFER_SECONDS, sudo=sudo and not self._is_root()
            )
            try:
                return self._run(script, argv[0], content, _TRANSFER_SECONDS)
            except ConnectionLost:
                return self._run(script, argv[0], content, _TRANSFER_SECONDS)

    def _run(self, script: str, command: str, content: bytes | None, timeout: float) -> _RawResult:
        start_time, output_marks = time.monotonic(), OutputMarks()
        with self._open_channel(timeout) as channel:
            exchange = CommandExchange(
                channel, content or b"", start_time + timeout + _FINAL_STATUS_SECONDS, output_marks
            )
            channel.settimeout(timeout)
            try:
                channel.exec_command(output_marks.build_line(script))
            except (SSHException, EOFError, OSError):
                raise self._build_connection_lost_error(command) from None
            try:
                exit_status = exchange.finish()
            except TimeoutError:
                exit_status = _KILLED_STATUS
            except OutputTooLong:
                raise HostUnreachable(
                    f"{self.name}: {command} printed more than {_MAX_OUTPUT_MEGABYTES} MB",
                    hint="run the command on the host, and find out why it prints so much",
                ) from None
            except (SSHException, EOFError, OSError):
                raise self._build_connection_lost_error(command) from None
        timed_out = exit_status == _KILLED_STATUS and time.monotonic() - start_time >= timeout
        if not exchange.stdout.started:
            raise self._build_login_shell_error(command, exchange, timeout if timed_out else None)
        if timed_out:
            raise HostUnreachable(f"{self.name}: {command} did not finish within {timeout:g} s")
        return _RawResult(exit_status, bytes(exchange.stdout.output), bytes(exchange.stderr.output))

    def _build_login_shell_error(
        self, command: str, exchange: CommandExchange, waited_seconds: float | None
    ) -> LoginShellFailed:
        """Return the error for a login shell or profile that exits or hangs before the command
        starts.
        """
        connection = self._get_live_connection()
        printed_text = (bytes(exchange.stderr.before) or bytes(exchange.stdout.before)).strip()
        printed_tail = printed_text.decode(errors="replace")[-300:]
        time_text = f" within {waited_seconds:g} s" if waited_seconds is not None else ""
        return LoginShellFailed(
            f"{self.name}: the login shell of {connection.user} did not run {command}{time_text}"
            + (f": it printed {printed_tail!r}" if printed_tail else ""),
            hint=f"`ssh {connection.user}@{connection.host} echo ok` must print ok; the account needs a "
            "shell and a profile without `exit` or a prompt",
        )

    def _build_connection_lost_error(self, command: str) -> ConnectionLost:
        return ConnectionLost(
            f"{self.name}: the connection was lost while {command} ran",
            hint="check the host and its network; the command may have taken effect",
        )

    @contextlib.contextmanager
    def _open_channel(self, timeout: float) -> Iterator[Channel]:
        limit_seconds = min(timeout, self.host.connect_timeout)
        # Do not wait until other commands end, because processes that send load must start together.
        has_slot = self._session_slots.acquire(blocking=False)
        try:
            (channel, extra_connection) = self._open_any_session(limit_seconds, has_slot=has_slot)
            try:
                yield channel
            finally:
                # The connection may be lost. That must not replace the error of the command.
                with contextlib.suppress(SSHException, EOFError, OSError):
                    channel.close()
                if extra_connection is not None:
                    self._extra_connections.append(extra_connection)
        finally:
            if has_slot:
                self._session_slots.release()

    def _open_any_session(
        self, limit_seconds: float, *, has_slot: bool
    ) -> tuple[Channel, Connection | None]:
        """Open a session on the first connection if possible, or else on an extra connection."""
        if has_slot:
            # The exception means that sshd's limit per connection is reached (MaxSessions).
            with contextlib.suppress(ChannelException):
                return self._open_session(limit_seconds), None
        return self._open_on_another(limit_seconds)

    def _open_session(self, limit_seconds: float) -> Channel:
        used_connection = self._get_live_connection()
        try:
            return used_connection.transport.open_session(timeout=limit_seconds)
        except ChannelException:  # the connection still works, and other threads may be using it
            raise
        except (SSHException, EOFError, OSError):
            with self._connection_lock:
                if self._connection is used_connection:  # no other thread has replaced it yet
                    self._disconnect()
            new_connection = self._get_live_connection()
            with connections.translate_errors(self.host, new_connection):
                return new_connection.transport.open_session(timeout=limit_seconds)

    def _open_on_another(self, limit_seconds: float) -> tuple[Channel, Connection]:
        """Open a session on an existing extra connection, or on a new connection."""
        while (extra_connection := self._take_idle_connection()) is not None:
            try:
                return extra_connection.transport.open_session(
                    timeout=limit_seconds
                ), extra_connection
            except (SSHException, EOFError, OSError):
                connections.close_connection(extra_connection)
        with self._login_slots:
            extra_connection = connections.open_connection(self.host)
        try:
            with connections.translate_errors(self.host, extra_connection):
                return extra_connection.transport.open_session(
                    timeout=limit_seconds
                ), extra_connection
        except BaseException:
            connections.close_connection(extra_connection)
            raise

    def _take_idle_connection(self) -> Connection | None:
        """Return an idle extra connection, or ``None``. Several threads may call this method."""
        try:
            return self._extra_connections.popleft()
        except IndexError:
            return None

    def _get_live_connection(self) -> Connection:
        with self._connection_lock:
            if self._connection is not None and not self._connection.is_connected:
                self._disconnect()
            if self._connection is None:
                self._connection = connections.open_connection(self.host)
            return self._connection

    def _disconnect(self) -> None:
        """Close the connection if it exists. The caller must hold ``_connection_lock``."""
        if self._connection is not None:
            connections.close_connection(self._connection)
            self._connection = None

    def _build_file_error(self, action: str, command_result: CommandResult) -> AutotuneError:
        hint = None
        if command_result.stderr.startswith("sudo:"):
            login_user = self._get_live_connection().user
            hint = f"allow {login_user} to run it with `sudo -n` on {self.name}, or log in as root"
        return AutotuneError(f"{self.name}: {action}: {command_result.error_text}", hint=hint)
