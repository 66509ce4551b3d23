"""A small HTTP/1.1 server that keeps connections open and records requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from autotune.services.base import Endpoint

BODY = b"ok\n"


class Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    paths: list[str]

    def do_GET(self) -> None:  # http.server requires this name
        self.paths.append(self.path)
        if "slow" in self.path:
            time.sleep(0.5)
        self.send_response(500 if "broken" in self.path else 200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        is_cut = "cut" in self.path
        self.wfile.write(BODY[:1] if is_cut else BODY)
        self.close_connection |= is_cut

    def do_POST(self) -> None:  # http.server requires this name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.path = f"{self.path}: {len(body)} bytes"
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class Serving(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def recording() -> Iterator[tuple[Endpoint, list[str]]]:
    """Yield the server's address and the requested paths. `slow` pages take half a second, and
    `broken` pages return status 500. If the path contains `cut`, the body ends early.
    Paths of POST requests are followed by the size of the body.
    """
    paths: list[str] = []
    handler = type("Handler", (Asked,), {"paths": paths})
    server = Serving(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Endpoint("127.0.0.1", server.server_address[1]), paths
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
