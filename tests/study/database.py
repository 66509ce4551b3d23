"""A private PostgreSQL for a test: an ordinary process of an unprivileged account, on a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ACCOUNT = "postgres"  # created by the package, because the server does not run as root
# These tests do not cover power failures, and commits should be fast.
OPTIONS = ("fsync=off", "listen_addresses=", "max_connections=50", "shared_buffers=16MB")


class Database:
    """A cluster in a directory. ``url`` is the URL of its only database."""

    def __init__(self, directory: Path, options: Sequence[str] = OPTIONS) -> None:
        self.directory, self._options = directory, options
        self._server: subprocess.Popen[bytes] | None = None
        directory.mkdir(mode=0o755, parents=True)
        if os.geteuid() == 0:
            shutil.chown(directory, ACCOUNT)
        self._call("initdb", "-D", "data", "-U", "tuner", "-A", "trust", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgresql://tuner@/postgres?host={self.directory}"

    def start(self) -> None:
        """Start the server, and return once it accepts connections."""
        words = [word for option in self._options for word in ("-c", option)]
        self._server = subprocess.Popen(
            [_program("postgres"), "-D", "data", "-k", str(self.directory), *words],
            cwd=self.directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_account(),
        )  # fmt: skip
        ready = [_program("pg_isready"), "-q", "-h", str(self.directory)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._server.poll() is None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server and cut its connections: SIGINT as in a restart, SIGQUIT as in a crash."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait()

    def _call(self, program: str, *words: str) -> None:
        subprocess.run(
            [_program(program), *words],
            cwd=self.directory, check=True, stdout=subprocess.DEVNULL, **_account(),
        )  # fmt: skip


@contextmanager
def running(directory: Path, options: Sequence[str] = OPTIONS) -> Iterator[Database]:
    database = Database(directory, options)
    database.start()
    try:
        yield database
    finally:
        database.stop()


def _account() -> dict[str, int | list[int]]:
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(ACCOUNT)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _program(name: str) -> str:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(versions[-1]) if versions else name
