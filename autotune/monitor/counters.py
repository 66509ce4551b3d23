"""Read counters of servers over an open connection to each server, or with a command."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.deploy.host_commands import Command, run_as_root, run_commands
from autotune.deploy.host_state import ServiceManager
from autotune.deploy.private_servers import open_unix_connection
from autotune.deploy.stack import ServiceInstance
from autotune.services.diagnosis import CounterQuery
from autotune.services.registry import find_own_diagnosis
from autotune.strict_parsing import parse_decimal, split_lines
from autotune.transports.base import Argv, CommandResult, ConnectionLost, HostUnreachable, Transport

TIMEOUT_SECONDS = 0.5  # a server that takes longer counts as not responding
_COMMAND_SECONDS = 5.0  # time limit of a command
_MAX_ANSWER_BYTES = 1 << 18
ERROR_PREFIXES = ("ERROR", "-")  # start of an error reply


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

    ``is_here`` is true if the server runs on this machine. Without a ``transport``, no program is
    started. ``is_too_slow`` is true once a program has exceeded its time limit.
    """

    def __init__(
        self,
        instance: ServiceInstance,
        transport: Transport | None,
        *,
        is_here: bool = False,
        service_manager: ServiceManager | None = None,
    ) -> None:
        self.part, self._transport, self._service_manager = instance, transport, service_manager
        query = find_counter_query(instance)
        assert query is not None
        self._query = query
        # A connection without a request shows nothing, and could occupy a worker of the server.
        self._uses_only_command = not query.request or (
            query.is_local_only and transport is not None and (self._is_isolated or not is_here)
        )
        self._connection: socket.socket | None = None
        self.is_too_slow = False

    @property
    def is_cheap(self) -> bool:
        """True if reading the counters takes almost no CPU time, because no command runs on the host."""
        return self._connection is not None or (
            self._query.is_local_only and not self._uses_only_command
        )

    @property
    def command_interval(self) -> float | None:
        """Return the seconds between two commands during a reading; ``None`` without commands.

        A command in a container takes much CPU time, which the services would lack.
        """
        return None if self._is_isolated else self._query.interval_seconds or None

    @property
    def _is_isolated(self) -> bool:
        """True if the server's programs and sockets exist only in its container."""
        return self._service_manager is not None and self._service_manager.wrap_command is not None

    def read(self, *, by_command: bool = False) -> ServerCounters | None:
        """Return the counters; ``None`` if the server did not respond in time."""
        start_time = time.monotonic()
        try:
            text = "" if self._uses_only_command else self._query_socket().decode(errors="replace")
        except OSError:
            self.close()
            text = ""
        needs_command = not text
        if text.startswith(ERROR_PREFIXES) and not find_refusal(text, self._query):
            # For example, the server requires a password, which only the command reads on the host.
            self.close()
            self._uses_only_command, needs_command = self._transport is not None, True
        if needs_command and by_command:
            text = self._run_command() or text
        if not text:
            return None
        return parse_counters(text, self._query, time.monotonic() - start_time)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run_command(self) -> str:
        """Return the output of the server's client program; empty if the program failed.

        A program that exceeded its time limit is not started again. Raises ConnectionLost.
        """
        if self._transport is None or self.is_too_slow:
            return ""
        start_time = time.monotonic()
        try:
            argv = self._query.build_command(self.part.placement)
            command_result = self._run_on_host(self._transport, argv)
        except ConnectionLost:
            raise
        except (KeyError, HostUnreachable):  # the path of the program is unknown, or it is too slow
            return ""
        finally:
            self.is_too_slow = time.monotonic() - start_time >= _COMMAND_SECONDS
        return command_result.stdout if command_result.ok else ""

    def _run_on_host(self, transport: Transport, argv: Argv) -> CommandResult:
        """Run a command where the server runs, and as root if the server is a unit of its host.

        Such a server may accept only root on its socket, or root alone may read its password. The
        deployment of the server needed root, too.
        """
        placement, manager = self.part.placement, self._service_manager
        if manager is not None and manager.wrap_command is not None:
            (command_result,) = run_commands(
                transport,
                [Command(manager.wrap_command(placement, tuple(argv)))],
                timeout=_COMMAND_SECONDS,
                functions=manager.shell_functions,
            )
            return command_result
        if placement.installed:
            return run_as_root(transport, argv, timeout=_COMMAND_SECONDS)
        return transport.run(argv, timeout=_COMMAND_SECONDS)

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


def find_refusal(text: str, query: CounterQuery) -> str | None:
    """Return the error of a server that reached its limit of clients; ``None`` for other replies."""
    first_line = text.partition("\n")[0].strip()
    pattern = query.refusal_pattern
    return first_line.lstrip("-") if pattern and pattern.search(first_line) else None


def parse_counters(text: str, query: CounterQuery, seconds: float) -> ServerCounters:
    """Return the counters from lines such as ``STAT name value``, ``name value`` or ``name:value``.

    Only an error that reports a reached limit of clients is kept. Other errors, such as a missing
    password, do not show that the server refuses clients of the stack.
    """
    if refusal := find_refusal(text, query):
        return ServerCounters(seconds, error=refusal)
    counter_values = {}
    for line in split_lines(text):
        name, _, value = line.removeprefix("STAT ").strip().replace(":", " ", 1).partition(" ")
        if name in query.counter_names:
            with contextlib.suppress(ValueError):
                counter_values[name] = parse_decimal(value.strip())
    return ServerCounters(seconds, {**counter_values, **query.parse_counters(text)})
