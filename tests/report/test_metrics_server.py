"""`--metrics-port`: what a scrape gets, and that nobody who asks holds up a study."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError
from autotune.report.metrics_server import (
    LOOPBACK_ADDRESS,
    MAX_CLIENTS,
    NO_METRICS,
    MetricsServer,
)
from tests.ports import free_port

PAPER = str(Path(__file__).parents[2] / "targets" / "paper.yaml")
COMMAND = """
name: toy
command: [sh, -c, 'until [ -e scraped ]; do sleep 0.02; done; echo "{\\"value\\": 1.5}"']
maximize: throughput
parameters: {x: {range: [1, 100]}}
budget: {trials: 3, time: 10m}
search: {sampler: random}
"""


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer("0") as server:
        server.publish("# EOF\n")
        yield server


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://{LOOPBACK_ADDRESS}:{port}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        return str(answer.read().decode())


def test_it_answers_on_loopback_with_the_latest_and_nothing_else(server: MetricsServer) -> None:
    address, port = server.server_address[:2]
    assert address == LOOPBACK_ADDRESS
    assert scrape(port) == "# EOF\n"
    server.publish("# later\n# EOF\n")
    assert scrape(port) == "# later\n# EOF\n"
    for method, path, status in (("GET", "/study.db", 404), ("POST", "/metrics", 501)):
        connection = HTTPConnection(LOOPBACK_ADDRESS, port, timeout=60)
        connection.request(method, path)
        assert connection.getresponse().status == status
        connection.close()


def test_a_scrape_before_the_first_trial_is_valid() -> None:
    with MetricsServer("0") as server:
        text = scrape(server.server_address[1])
    assert list(text_string_to_metric_families(text)) == []


def test_silent_clients_are_bounded_and_hold_up_no_end() -> None:
    with MetricsServer("0") as server:
        address = server.server_address[:2]
        silent = [socket.create_connection(address, timeout=60) for _ in range(MAX_CLIENTS)]
        one_more = socket.create_connection(address, timeout=60)
        assert one_more.recv(1) == b""  # turned away, or after those that were silent for too long
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=60)
    for client in (*silent, one_more):
        client.close()


@pytest.mark.parametrize("where", ["http", "70000", "127.0.0.1:", "192.0.2.1:9876", "ü..b:9876"])
def test_where_it_cannot_listen_is_said_before_anything_is_done(where: str, tmp_path: Path) -> None:
    words = ["run", PAPER, "--yes", "--metrics-port", where, "--studies", str(tmp_path / "s")]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, AutotuneError)
    assert f"--metrics-port {where}: " in result.exception.message
    assert "9876" in str(result.exception.hint)
    assert not (tmp_path / "s").exists()


@pytest.mark.long
def test_a_study_is_scraped_while_it_runs_and_no_longer(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "autotune.prom"
    sources: dict[str, Callable[[], str]] = {"port": lambda: scrape(port), "file": path.read_text}
    texts: dict[str, list[str]] = {source: [] for source in sources}
    over = threading.Event()

    def poll() -> None:
        while not over.wait(0.05):
            for source, read in sources.items():
                with suppress(OSError):  # it is not there yet, or no longer
                    texts[source] += {read()} - {NO_METRICS}
            if all(map(any, texts.values())):
                (tmp_path / "scraped").touch()  # the command has waited for it

    thread = threading.Thread(target=poll)
    thread.start()
    target = tmp_path / "toy.yaml"
    target.write_text(COMMAND)
    words = ["run", str(target), "--yes", "--metrics-port", str(port), "--metrics-file", str(path),
             "--studies", str(tmp_path)]  # fmt: skip
    try:
        result = CliRunner().invoke(app, words)
    finally:
        over.set()
        thread.join()
    assert result.exit_code == 0, result.output
    with pytest.raises(OSError):  # noqa: PT011  # whatever says that nobody listens
        scrape(port)
    for read in texts.values():
        running = set()
        for text in filter(None, read):  # whole, however often it is written meanwhile
            assert text.endswith("# EOF\n")
            families = {family.name: family for family in text_string_to_metric_families(text)}
            running.add(families["autotune_running"].samples[0].value)
        assert 1 in running
