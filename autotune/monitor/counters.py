"""Read counters of servers over an open connection to each server, or with a command."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.deploy.private_servers import open_unix_connection
from autotune.deploy.stack import ServiceInstance
from autotune.services.diagnosis import CounterQuery
from autotune.services.registry import find_own_diagnosis
from autotune.strict_parsing import parse_decimal, split_lines
from autotune.transports.base import Transport

TIMEOUT_SECONDS = 0.5  # a server that takes longer counts as not responding
_MAX_ANSWER_BYTES = 1 << 18


@dataclass(frozen=True)
class ServerCounters:
    """One response to a query for counters, after ``seconds``: the counters by name, or the server's
    error.
    """

    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


def find_counter_query(instance: ServiceInstance) -> CounterQuery | None:
    """Return the query for the counters of a service instance; ``None`` if it has no counters."""
    return find_own_diagnosis(instance.service).counter_query


class CounterReader:
    """Reads one server's counters, over a connection to the server's socket or with the server's own
    client program.
    """

    def __init__(self, instance: ServiceInstance, transport: Transport | None) -> None:
        self.part, self._transport = instance, transport
        query = find_counter_query(instance)
        assert query is not None
        self._query = query
        self._uses_only_command = query.is_local_only and transport is not None
        self._connection: socket.socket | None = None

    @property
    def is_cheap(self) -> bool:
        """True if reading the counters takes almost no CPU time, because no command runs on the host."""
        return self._connection is not None or (
            self._query.is_local_only and not self._uses_only_command
        )

    @property
    def command_interval(self) -> float | None:
        """Return the seconds between two commands during a reading; ``None`` without commands."""
        return self._query.interval_seconds or None

    def read(self, *, by_command: bool = False) -> ServerCounters | None:
        """Return the counters; ``None`` if the server did not respond in time."""
        start_time = time.monotonic()
        try:
            response = b"" if self._uses_only_command else self._query_socket()
        except OSError:
            self.close()
            response = b""
        if not response and by_command and self._transport is not None:
            # The path of the command's program may be unknown.
            with contextlib.suppress(KeyError):
                command_result = self._transport.run(
                    self._query.build_command(self.part.placement), timeout=5.0
                )
                response = command_result.stdout.encode() if command_result.ok else b""
        if not response:
            return None
        return parse_counters(
            response.decode(errors="replace"), self._query, time.monotonic() - start_time
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _query_socket(self) -> bytes:
        placement = self.part.placement
        if self._connection is None and self._query.find_socket:
            path = self._query.find_socket(placement)
            self._connection = open_unix_connection(
                Path(placement.directory), path, TIMEOUT_SECONDS
            )
        elif self._connection is None:
            socket_address = (placement.listen.host, placement.listen.port)
            self._connection = socket.create_connection(socket_address, TIMEOUT_SECONDS)
        self._connection.sendall(self._query.request)
        response = b""
        while not self._query.is_complete(response):
            piece = self._connection.recv(1 << 16)
            response += piece
            if not piece or len(response) > _MAX_ANSWER_BYTES:
                self.close()
                break
        return response


def parse_counters(text: str, query: CounterQuery, seconds: float) -> ServerCounters:
    """Return the counters from lines such as ``STAT name value``, ``name value`` or ``name:value``."""
    if text.startswith(("ERROR", "-")):
        return ServerCounters(seconds, error=text.strip().lstrip("-"))
    counter_values = {}
    for line in split_lines(text):
        name, _, value = line.removeprefix("STAT ").strip().replace(":", " ", 1).partition(" ")
        if name in query.counter_names:
            with contextlib.suppress(ValueError):
                counter_values[name] = parse_decimal(value.strip())
    return ServerCounters(seconds, {**counter_values, **query.parse_counters(text)})
