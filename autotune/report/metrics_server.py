"""An HTTP server with one page: the metrics of a running study, for Prometheus."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from types import TracebackType
from typing import Any, Self

from autotune.errors import UsageError
from autotune.strict_parsing import parse_uint

METRICS_PATH = "/metrics"
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LOOPBACK_ADDRESS = "127.0.0.1"
NO_METRICS = "# EOF\n"  # before the first trial; Prometheus refuses an empty page
MAX_CLIENTS = 8  # maximum number of concurrent clients; others are refused
CLIENT_TIMEOUT_SECONDS = 5.0  # seconds until a silent client is disconnected
SHUTDOWN_POLL_SECONDS = 0.1  # seconds between checks for the end of a study
PORT_HINT = "such as --metrics-port 9876, or 10.0.0.5:9876 for an address other than loopback"


class MetricsServer(ThreadingHTTPServer):
    """An HTTP server that sends ``text``, which is always replaced as a whole. The server listens as
    soon as it is created.

    Threads of connected clients do not delay the end of a study.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CLIENTS

    def __init__(self, listen_address: str) -> None:
        """Listen on ``listen_address``: ``PORT`` on loopback, or ``ADDRESS:PORT``. Raises UsageError."""
        self.text = NO_METRICS
        self._free_threads = threading.BoundedSemaphore(MAX_CLIENTS)
        try:
            super().__init__(_parse_address(listen_address), _MetricsHandler)
        except TypeError:  # from a name that IDNA cannot encode, such as `ü..b`
            raise UsageError(
                f"--metrics-port {listen_address}: invalid host name", hint=PORT_HINT
            ) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"--metrics-port {listen_address}: {reason}", hint=PORT_HINT) from None
        self._thread = threading.Thread(
            target=self.serve_forever, args=(SHUTDOWN_POLL_SECONDS,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def publish(self, metrics_text: str) -> None:
        """Replace the text that the server sends."""
        self.text = metrics_text

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the request in a separate thread, or refuse it if no thread is free."""
        if self._free_threads.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the request and release its thread, even after an error."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_threads.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Ignore the error, because a disconnected client does not matter to a study."""


class _MetricsHandler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = CLIENT_TIMEOUT_SECONDS
    server_version = "autotune"
    sys_version = ""

    def do_GET(self) -> None:  # http.server requires this name
        if self.path.partition("?")[0] != METRICS_PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"the metrics are at {METRICS_PATH}")
            return
        content = self.server.text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing, because scrapes are not part of a study's progress."""


def _parse_address(listen_address: str) -> tuple[str, int]:
    address, _, port = listen_address.rpartition(":")
    try:
        port_number = parse_uint(port)
    except ValueError:
        port_number = -1
    if not 0 <= port_number < 2**16:
        raise UsageError(f"--metrics-port {listen_address}: {port!r} is not a port", hint=PORT_HINT)
    return address or LOOPBACK_ADDRESS, port_number
