"""Counters of servers, read over one open connection each or by a command."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.deploy.private_servers import unix_connection
from autotune.deploy.stack import Part
from autotune.services.diagnosis import CounterQuery
from autotune.services.registry import diagnosis
from autotune.strict import decimal, split_lines
from autotune.transports.base import Transport

TIMEOUT = 0.5  # seconds; a slower server counts as unanswered
_LARGEST = 1 << 18


@dataclass(frozen=True)
class Counters:
    """One answer: its duration in ``seconds``, numbers by the server's names, or its refusal."""

    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)
    refused: str | None = None


def query_of(part: Part) -> CounterQuery | None:
    """Return the query for a part; ``None`` if it has no counters."""
    return diagnosis(part.service.name).counters


class CounterReader:
    """Reads one server's counters: from here at its socket, or by its own client on its host."""

    def __init__(self, part: Part, transport: Transport | None) -> None:
        self.part, self._transport = part, transport
        query = query_of(part)
        assert query is not None
        self._query = query
        self._by_command_alone = query.at_home and transport is not None
        self._connection: socket.socket | None = None

    @property
    def cheap(self) -> bool:
        """True if frequent reads cost almost nothing, unlike a command on the server's host."""
        return self._connection is not None or (self._query.at_home and not self._by_command_alone)

    @property
    def pause(self) -> float | None:
        """Seconds between two commands during a reading; ``None`` without commands."""
        return self._query.every or None

    def read(self, *, by_command: bool = False) -> Counters | None:
        """Return the counters; ``None`` if the server did not answer in time."""
        begun = time.monotonic()
        try:
            data = b"" if self._by_command_alone else self._ask()
        except OSError:
            self.close()
            data = b""
        if not data and by_command and self._transport is not None:
            with contextlib.suppress(KeyError):  # the target may not set that program's path
                answer = self._transport.run(self._query.command(self.part.site), timeout=5.0)
                data = answer.stdout.encode() if answer.ok else b""
        if not data:
            return None
        return parse(data.decode(errors="replace"), self._query, time.monotonic() - begun)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self) -> bytes:
        site = self.part.site
        if self._connection is None and self._query.socket:
            path = self._query.socket(site)
            self._connection = unix_connection(Path(site.directory), path, TIMEOUT)
        elif self._connection is None:
            place = (site.listen.host, site.listen.port)
            self._connection = socket.create_connection(place, TIMEOUT)
        self._connection.sendall(self._query.question)
        data = b""
        while not self._query.complete(data):
            piece = self._connection.recv(1 << 16)
            data += piece
            if not piece or len(data) > _LARGEST:
                self.close()
                break
        return data


def parse(text: str, query: CounterQuery, seconds: float) -> Counters:
    """Return the counters of ``STAT name value``, ``name value`` or ``name:value`` lines."""
    if text.startswith(("ERROR", "-")):
        return Counters(seconds, refused=text.strip().lstrip("-"))
    values = {}
    for line in split_lines(text):
        name, _, value = line.removeprefix("STAT ").strip().replace(":", " ", 1).partition(" ")
        if name in query.names:
            with contextlib.suppress(ValueError):
                values[name] = decimal(value.strip())
    return Counters(seconds, {**values, **query.more(text)})
