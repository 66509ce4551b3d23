"""What servers count of themselves: memcached and Redis over one open connection each, Apache."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.deploy.stack import Part
from autotune.measure.scoreboard import doing
from autotune.services.apache.service import asking
from autotune.services.apache.status import STATUS_HOST
from autotune.services.base import Argv, Endpoint, Role
from autotune.transports.base import Transport

TIMEOUT = 0.5  # a server that takes longer to say how it is has its answer missing
_LARGEST = 1 << 18
MEMCACHED = frozenset(
    (
        "curr_connections", "max_connections", "listen_disabled_num", "rejected_connections",
        "accepting_conns", "get_hits", "get_misses", "cmd_get", "cmd_set", "evictions",
        "conn_yields", "bytes", "limit_maxbytes", "threads", "rusage_user", "rusage_system",
    )
)  # fmt: skip
REDIS = frozenset(
    (
        "connected_clients", "maxclients", "rejected_connections", "used_cpu_user", "used_cpu_sys",
        "blocked_clients", "total_commands_processed", "used_memory", "maxmemory", "evicted_keys",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Counters:
    """One answer: ``seconds`` it took, numbers by the server's own names, its refusal if any."""

    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)
    refused: str | None = None


@dataclass(frozen=True)
class Dialect:
    """How a kind of server is asked over TCP and by a command, and its answer understood.

    ``names`` are the numbers looked for, ``more`` reads what is no number by a name. ``at_home``:
    it answers its own host alone, and a connection that stays open would keep a worker from others.
    """

    question: bytes
    complete: Callable[[bytes], bool]
    command: Callable[[Part], Argv]
    names: frozenset[str]
    more: Callable[[str], Mapping[str, float]] = lambda _: {}
    at_home: bool = False


def _whole_bulk(data: bytes) -> bool:
    """A RESP bulk string, ``$<length>\\r\\n<bytes>\\r\\n``, has arrived; or an error has."""
    head, end, rest = data.partition(b"\r\n")
    if not end or not head.startswith(b"$"):
        return bool(end)
    return len(rest) >= int(head[1:]) + 2


DIALECTS = {
    Role.CACHE: Dialect(
        b"stats\r\n",
        lambda data: data.endswith(b"END\r\n") or data.startswith(b"ERROR"),
        lambda part: (part.site.programs["memcached-tool"], str(part.site.listen), "stats"),
        MEMCACHED,
    ),
    Role.STORE: Dialect(
        b"INFO\r\n",
        _whole_bulk,
        lambda part: (
            part.site.programs["redis-cli"],
            "-h", part.site.listen.host, "-p", str(part.site.listen.port), "INFO",
        ),
        REDIS,
    ),
}  # fmt: skip

APACHE = Dialect(
    f"GET /server-status?auto HTTP/1.0\r\nHost: {STATUS_HOST}\r\n\r\n".encode(),
    lambda _: False,  # it closes the connection
    lambda part: asking(part.site, "status?auto"),
    frozenset({"BusyWorkers", "IdleWorkers", "Processes"}),
    more=doing,
    at_home=True,
)


def dialect_of(part: Part) -> Dialect | None:
    """How to ask a part; ``None`` for one that cannot be asked."""
    return APACHE if part.service.name == "apache" else DIALECTS.get(part.site.role)


class CounterReader:
    """Reads one server's counters: over TCP from here, else by its own client on its host."""

    def __init__(self, part: Part, transport: Transport | None) -> None:
        self.part, self._transport = part, transport
        dialect = dialect_of(part)
        assert dialect is not None
        self._dialect = dialect
        self._by_command_alone = dialect.at_home and transport is not None
        self._connection: socket.socket | None = None

    @property
    def cheap(self) -> bool:
        """Whether asking often costs next to nothing: a command on its host would not."""
        return self._connection is not None or (
            self._dialect.at_home and not self._by_command_alone
        )

    def read(self, *, by_command: bool = False) -> Counters | None:
        """``None`` when the server gave no answer in time."""
        begun = time.monotonic()
        try:
            data = b"" if self._by_command_alone else self._ask(self.part.site.listen)
        except OSError:
            self.close()
            data = b""
        if not data and by_command:
            data = self._command()
        if not data:
            return None
        return parse(data.decode(errors="replace"), self._dialect, time.monotonic() - begun)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, place: Endpoint) -> bytes:
        if self._connection is None:
            self._connection = socket.create_connection((place.host, place.port), TIMEOUT)
        self._connection.sendall(self._dialect.question)
        data = b""
        while not self._dialect.complete(data):
            piece = self._connection.recv(1 << 16)
            data += piece
            if not piece or len(data) > _LARGEST:
                self.close()
                break
        return data

    def _command(self) -> bytes:
        if self._transport is None:
            return b""
        with contextlib.suppress(KeyError):  # a target without that program's path
            done = self._transport.run(self._dialect.command(self.part), timeout=5.0)
            return done.stdout.encode() if done.ok else b""
        return b""


def parse(text: str, dialect: Dialect, seconds: float) -> Counters:
    """``STAT name value`` (memcached), ``name value`` (its tool), ``name:value`` (others)."""
    if text.startswith(("ERROR", "-")):
        return Counters(seconds, refused=text.strip().lstrip("-"))
    values = {}
    for line in text.splitlines():
        name, _, value = line.removeprefix("STAT ").strip().replace(":", " ", 1).partition(" ")
        if name in dialect.names:
            with contextlib.suppress(ValueError):
                values[name] = float(value)
    return Counters(seconds, {**values, **dialect.more(text)})
