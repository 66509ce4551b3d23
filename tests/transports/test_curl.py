"""One request from a host, answered or not."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from autotune.services.base import Endpoint
from autotune.transports.curl import CurlAnswer, send_request
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.answers import PATIENCE

pytestmark = pytest.mark.stack


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.partition("?")[0].strip("/"))
        body = b"found 100\n\nof 100" if status == 200 else b"Bad Gateway\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.headers['Authorization']}|{body.decode()}".encode())

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    assert shutil.which("curl")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/200", 200, b"found 100\n\nof 100"),
        ("/502", 502, b"Bad Gateway\n"),
        ("/200?{a,b}[1-2]", 200, b"found 100\n\nof 100"),
    ],
)
def test_an_answer(url: str, path: str, status: int, body: bytes) -> None:
    got = send_request(LocalTransport(), url + path, PATIENCE)
    assert isinstance(got, CurlAnswer)
    assert (got.status, got.body, got.ok) == (status, body, status == 200)
    assert got.seconds > 0


def test_a_curlrc_of_the_account_changes_no_request(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".curlrc").write_text('output = "/dev/null"\nproxy = "127.0.0.1:1"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    got = send_request(LocalTransport(), f"{url}/200", PATIENCE)
    assert isinstance(got, CurlAnswer)
    assert got.body == b"found 100\n\nof 100"


def test_what_is_sent_is_in_no_command_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = 'a "quoted" \\ word\twith a tab'
    host, port = url.removeprefix("http://").split(":")
    body = f"{secret}\nand a line"
    request = Request(Endpoint(host, int(port)), "/200", method="POST", body=body,
                      headers=(("Authorization", secret), ("Content-Type", "text/plain")))  # fmt: skip
    lines: list[str] = []
    here = LocalTransport()
    run = here.run
    monkeypatch.setattr(
        here, "run", lambda argv, **options: lines.extend(argv) or run(argv, **options)
    )
    got = send_request(here, request, PATIENCE)
    assert isinstance(got, CurlAnswer)
    assert got.body.decode() == f"{secret}|{body}"
    assert "quoted" not in " ".join(lines)


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        got = send_request(LocalTransport(), f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert isinstance(got, str)
    assert "connect" in got


def test_no_answer_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        got = send_request(
            LocalTransport(), f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.3
        )
    assert isinstance(got, str)
    assert "timed out" in got
