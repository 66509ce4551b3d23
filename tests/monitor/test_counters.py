"""What memcached and Redis say of themselves, and servers that say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.host_state import ServiceManager
from autotune.deploy.stack import ServiceInstance
from autotune.monitor import counters
from autotune.monitor.counters import CounterReader, ServerCounters, parse_counters
from autotune.services.apache.diagnosis import count_workers
from autotune.services.apache.service import STATUS_HOST
from autotune.services.apache_mod_php.service import ApacheModPhp
from autotune.services.base import Endpoint, Placement, Service
from autotune.services.memcached.service import Memcached
from autotune.services.redis.service import Redis
from autotune.services.registry import SHIPPED
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport

FIXTURES = Path(__file__).parent / "fixtures"
QUERIES = {
    name: query
    for name in ("memcached", "redis", "kvrocks")
    if (query := SHIPPED.find_diagnosis(name).counter_query)
}


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, servers say how they are."""
    monkeypatch.setattr(counters, "TIMEOUT_SECONDS", 60.0)


def instance_at(service: Service, tier: str, port: int, **programs: str) -> ServiceInstance:
    site = Placement(
        tier=tier, host=f"{tier}1", role=service.role, directory="/nowhere",
        listen=Endpoint("127.0.0.1", port), programs=programs,
    )  # fmt: skip
    return ServiceInstance(service, site)


def cache_at(port: int) -> ServiceInstance:
    return instance_at(Memcached(), "cache", port)


def store_at(port: int) -> ServiceInstance:
    return instance_at(Redis(), "store", port, **{"redis-cli": "/usr/bin/redis-cli"})


def web_at(port: int) -> ServiceInstance:
    return instance_at(ApacheModPhp(), "web", port, curl="/bin/false")


@pytest.mark.parametrize(
    ("service", "fixture", "expected"),
    [
        (
            "memcached",
            "memcached-stats.txt",
            {"max_connections": 1024.0, "listen_disabled_num": 0.0},
        ),
        ("redis", "redis-info.txt", {"maxclients": 10000.0, "rejected_connections": 0.0}),
    ],
)
def test_recorded_answers(service: str, fixture: str, expected: dict[str, float]) -> None:
    found = parse_counters((FIXTURES / fixture).read_text(), QUERIES[service], 0.001)
    assert found.error is None
    assert expected.items() <= found.values.items()
    assert set(found.values) >= QUERIES[service].counter_names - {"rusage_user", "rusage_system"}


@pytest.mark.parametrize(
    ("service", "text"),
    [
        ("memcached", "ERROR Too many open connections\r\n"),
        ("redis", "-ERR max number of clients reached\r\n"),
        ("redis", "-ERR max number of clients + cluster connections reached\r\n"),
        ("kvrocks", "-ERR max number of clients reached\r\n"),
    ],
)
def test_refusals_are_kept(service: str, text: str) -> None:
    found = parse_counters(text, QUERIES[service], 0.001)
    assert found.error == text.strip().lstrip("-")
    assert not found.values


@pytest.mark.parametrize(
    ("service", "text"),
    [
        ("memcached", "ERROR\r\n"),
        ("redis", "-NOAUTH Authentication required.\r\n"),
        ("redis", "-DENIED Redis is running in protected mode\r\n"),
        ("kvrocks", "-NOAUTH Authentication required.\r\n"),
    ],
)
def test_other_errors_are_not_refusals(service: str, text: str) -> None:
    assert parse_counters(text, QUERIES[service], 0.5) == ServerCounters(0.5)


def test_a_server_with_a_password_is_queried_by_the_command_that_reads_the_password() -> None:
    commands = []

    class Elsewhere(LocalTransport):
        def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            commands.append(argv[0])
            info = (FIXTURES / "redis-info.txt").read_text()
            return CommandResult(tuple(argv), 0, info, "")

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                assert connection.recv(100) == b"INFO\r\n"
                connection.sendall(b"-NOAUTH Authentication required.\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        store = store_at(server.getsockname()[1])
        here, remote = CounterReader(store, None), CounterReader(store, Elsewhere())
        unanswered = here.read(by_command=True)
        found = [remote.read(by_command=True), remote.read(by_command=True)]
        thread.join()
    assert unanswered is not None
    assert (unanswered.error, unanswered.values) == (None, {})
    assert commands == ["/usr/bin/redis-cli"] * 2
    assert not remote.is_cheap
    for one in found:
        assert one is not None
        assert one.error is None
        assert one.values["maxclients"] == 10_000


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"$5\r\nabcde\r\n", True),
        (b"$5\r\nabc", False),
        (b"$5", False),
        (b"", False),
        (b"-ERR max number of clients reached\r\n", True),
    ],
)
def test_redis_answers_are_read_whole(data: bytes, whole: bool) -> None:
    assert QUERIES["redis"].is_complete(data) is whole


def test_one_connection_for_many_questions() -> None:
    answer = b"STAT curr_connections 3\r\nSTAT get_hits 7\r\nEND\r\n"
    accepted = []

    def serve(server: socket.socket) -> None:
        connection = server.accept()[0]
        accepted.append(connection)
        while connection.recv(100):
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        reader = CounterReader(cache_at(server.getsockname()[1]), None)
        for _ in range(3):
            found = reader.read()
            assert found is not None
            assert found.values == {"curr_connections": 3.0, "get_hits": 7.0}
        assert reader.is_cheap
        reader.close()
        thread.join()
    for connection in accepted:
        connection.close()
    assert len(accepted) == 1


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert CounterReader(cache_at(port), None).read(by_command=True) is None


STATUS = "BusyWorkers: 5\nIdleWorkers: 2\nScoreboard: WWKR_K_...\n"


def test_apache_is_asked_anew_each_time_and_its_answer_counted() -> None:
    asked = []

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            asked.append(connection.recv(1000).decode())
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + STATUS.encode())
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        reader = CounterReader(web_at(server.getsockname()[1]), None)
        found = [reader.read(), reader.read()]
        thread.join()
    assert reader.is_cheap
    assert all(f"Host: {STATUS_HOST}" in text for text in asked)
    for one in found:
        assert one is not None
        # Two wait for the next request of a connection; one of the others answers this.
        assert dict(one.values) == {"BusyWorkers": 5, "IdleWorkers": 2, "working": 2, "kept": 2}


def test_apache_on_another_host_is_asked_there() -> None:
    class Elsewhere(LocalTransport):
        def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            assert argv[0] == "/bin/false"
            return CommandResult(tuple(argv), 0, STATUS, "")

    reader = CounterReader(web_at(1), Elsewhere())
    assert not reader.is_cheap
    assert reader.read() is None
    found = reader.read(by_command=True)
    assert found is not None
    assert found.values["working"] == 2


def test_a_command_that_takes_too_long_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    class Slow(LocalTransport):
        def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            started.append(argv)
            return super().run(("sleep", "9"), **how)

    monkeypatch.setattr(counters, "_COMMAND_SECONDS", 0.1)
    reader = CounterReader(web_at(1), Slow())
    assert [reader.read(by_command=True) for _ in range(3)] == [None] * 3
    assert len(started) == 1


def test_the_command_of_a_unit_runs_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may read the password of a server, or query its socket."""

    class Account(LocalTransport):
        """An account that may run `sh` without arguments through sudo, as SECURITY.md allows it."""

        def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            if not how.pop("sudo", False) or list(argv) != ["sh"]:
                return CommandResult(tuple(argv), 1, "", "permission denied")
            return super().run(argv, **how)

    printed = "get_hits 7\nget_misses $(echo 3)\nget_flushed it's\n"
    query = replace(
        QUERIES["memcached"],
        request=b"",
        is_local_only=True,
        build_command=lambda _: ("printf", "%s", printed),
    )
    monkeypatch.setattr(counters, "find_counter_query", lambda _: query)
    part = cache_at(1)
    part = replace(part, placement=replace(part.placement, installed=True))
    found = CounterReader(part, Account()).read(by_command=True)
    assert found is not None
    assert found.values == {"get_hits": 7.0}


def test_the_command_of_a_container_runs_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may run a server of the same name."""

    class Root(LocalTransport):
        def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
            return super().run(argv, **{**how, "sudo": False})

    manager = ServiceManager(
        'inside() { [ "$1" = shop ] && shift && [ "$*" = stats ] && echo "get_hits 7"; }\n'
        'stats() { echo "get_hits 9"; }\n',
        lambda *_: {},
        "/units",
        wrap_command=lambda placement, argv: ("inside", placement.unit, *argv),
    )
    query = replace(
        QUERIES["memcached"],
        is_local_only=True,
        interval_seconds=2.0,
        build_command=lambda _: ("stats",),
    )
    monkeypatch.setattr(counters, "find_counter_query", lambda _: query)
    part = cache_at(1)
    part = replace(part, placement=replace(part.placement, installed=True, unit="shop"))
    reader = CounterReader(part, Root(), is_here=True, service_manager=manager)
    found = reader.read(by_command=True)
    assert found is not None
    assert found.values == {"get_hits": 7.0}
    assert reader.command_interval is None


@pytest.mark.parametrize("absolute", [True, False])
def test_a_unix_socket_however_long_its_path(
    tmp_path: Path, absolute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.chdir(deep)
    query = replace(
        QUERIES["memcached"],
        is_complete=lambda _: False,
        find_socket=lambda _: str(deep / "own.sock") if absolute else "own.sock",
    )
    monkeypatch.setattr(counters, "find_counter_query", lambda _: query)
    part = replace(cache_at(1), placement=replace(cache_at(1).placement, directory=str(deep)))

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(100) == query.request
            connection.sendall(b"curr_connections: 3\n")

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("own.sock")
        server.listen()
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        found = CounterReader(part, None).read()
        thread.join()
    assert found is not None
    assert found.values == {"curr_connections": 3.0}


@pytest.mark.parametrize("text", ["", "Scoreboard:", "502 Bad Gateway", "Scoreboard: ...."])
def test_a_scoreboard_without_workers(text: str) -> None:
    assert sum(count_workers(text).values()) == 0
