"""Hosts reached over SSH: one connection each, kept open, a channel for each command."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fabric import Connection
from paramiko import Channel, ChannelException, SSHException

from autotune.errors import AutotuneError
from autotune.transports import connection as connections
from autotune.transports import shell
from autotune.transports.base import Argv, Completed
from autotune.transports.endpoint import SshHost
from autotune.transports.errors import HostUnreachable
from autotune.transports.exchange import Lost, TimeIsUp, exchange

_SESSIONS = 8  # at once on a connection; sshd allows ten (MaxSessions, sshd_config(5))
_TRANSFER = 60.0  # s for one file
_WORD = 1.0  # s more for the word that a command was killed, or ended, in the last moment
_KILLED = 137  # a shell's status for a command ended by SIGKILL

# Writes its input beside the file and puts it in its place in one step. A connection that goes
# meanwhile looks like the end of the input, hence the size. The dot keeps the new file out of
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


@dataclass(frozen=True)
class _Answer:
    """What a command left, its output as bytes."""

    status: int
    stdout: bytes
    stderr: bytes

    def completed(self, argv: Argv) -> Completed:
        return Completed(
            tuple(argv),
            shell.returncode(self.status),
            self.stdout.decode(errors="replace"),
            self.stderr.decode(errors="replace"),
        )


class SshTransport:
    """A ``Transport`` over SSH. Connects at first use; safe to use from several threads.

    A connection found dead is made anew once. A command is never sent twice: if the connection
    goes while it runs, ``HostUnreachable`` says so, since it may have taken effect. Files are,
    for putting the same one again does no harm.
    """

    def __init__(self, host: SshHost) -> None:
        self.host = host
        self._connection: Connection | None = None
        self._connecting = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)

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
        """One that is not done in time is killed, but for what sudo runs as another user."""
        as_other = sudo and not self._root()
        line = shell.line(argv, timeout=timeout, sudo=as_other, cwd=cwd, env=env)
        return self._ran(line, argv[0], input, timeout).completed(argv)

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Keeps owner and group of a file it replaces. Raises ``AutotuneError`` if it cannot."""
        argv = ["sh", "-c", _PUT, "sh", path, f"{mode:04o}", str(len(content))]
        done = self._again(argv, content, sudo=sudo).completed(argv)
        if not done.ok:
            raise self._refused(f"{path} cannot be written", done)

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """Raises ``AutotuneError`` if it is there and cannot be read."""
        argv = ["env", "LC_ALL=C", "cat", "--", path]
        answer = self._again(argv, None, sudo=sudo)
        done = answer.completed(argv)
        if done.ok:
            return answer.stdout
        if done.said.endswith(("No such file or directory", "Not a directory")):
            return None
        raise self._refused(f"{path} cannot be read", done)

    def close(self) -> None:
        with self._connecting:
            if self._connection is not None:
                connections.close(self._connection)
                self._connection = None

    def _root(self) -> bool:
        return bool(self._live().user == "root")

    def _again(self, argv: Argv, content: bytes | None, *, sudo: bool) -> _Answer:
        line = shell.line(argv, timeout=_TRANSFER, sudo=sudo and not self._root())
        try:
            return self._ran(line, argv[0], content, _TRANSFER)
        except _LostError:
            return self._ran(line, argv[0], content, _TRANSFER)

    def _ran(self, line: str, command: str, content: bytes | None, timeout: float) -> _Answer:
        start = time.monotonic()
        with self._sessions, self._channel(timeout) as channel:
            try:
                channel.settimeout(timeout)
                channel.exec_command(line)
                talk = exchange(channel, content, start + timeout + _WORD)
                status = talk.finish()
            except TimeIsUp:
                status = _KILLED
            except (Lost, SSHException, EOFError, OSError):
                raise _LostError(
                    f"{self.name}: the connection was lost while {command} ran",
                    hint="it may or may not have taken effect",
                ) from None
        if status == _KILLED and time.monotonic() - start >= timeout:
            raise HostUnreachable(f"{self.name}: {command} was not done after {timeout:g} s")
        return _Answer(status, bytes(talk.stdout), bytes(talk.stderr))

    @contextlib.contextmanager
    def _channel(self, timeout: float) -> Iterator[Channel]:
        limit = min(timeout, self.host.connect_timeout)
        used = self._live()
        try:
            channel = used.transport.open_session(timeout=limit)
        except ChannelException as error:  # the connection is fine: others may be using it
            raise HostUnreachable(f"{self.name}: no session: {error.text}") from None
        except (SSHException, EOFError, OSError):
            self._drop(used)
            again = self._live()
            with connections.explained(self.host, again):
                channel = again.transport.open_session(timeout=limit)
        try:
            yield channel
        finally:
            channel.close()

    def _live(self) -> Connection:
        with self._connecting:
            if self._connection is not None and not self._connection.is_connected:
                connections.close(self._connection)
                self._connection = None
            if self._connection is None:
                self._connection = connections.opened(self.host)
            return self._connection

    def _drop(self, used: Connection) -> None:
        """Unless another thread has replaced it already."""
        with self._connecting:
            if self._connection is used:
                connections.close(used)
                self._connection = None

    def _refused(self, what: str, done: Completed) -> AutotuneError:
        hint = None
        if done.stderr.startswith("sudo:"):
            hint = f"let {self._live().user} run it by `sudo -n` on {self.name}, or log in as root"
        return AutotuneError(f"{self.name}: {what}: {done.said}", hint=hint)


class _LostError(HostUnreachable):
    """The connection went while a command ran."""
