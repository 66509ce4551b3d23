"""A rough estimate of capacity: the rate at which a stack responds to clients without pauses.

The estimate is only for smoke tests: small differences are noise, and no latency is measured.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from autotune.loads import target_request
from autotune.target.read_target import TargetFile
from scripts.workloads.catalogue import SmokeCheck

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Interval:
    """An interval of the monotonic clock. Its bounds are in seconds."""

    begin: float
    end: float


def measure_crude_rate(file: TargetFile, check: SmokeCheck) -> float:
    """Return the number of responses with status 200 per second.

    Each request opens a new connection. At most ``load.max_rate`` requests/s are sent.
    """
    load = file.target.load
    address = target_request.list_load_addresses(file.target)[0]
    begin = time.monotonic() + check.warm_seconds
    counted = Interval(begin, begin + check.seconds)
    url = urlsplit(load.url or "")
    path = url.path if load.url else load.path
    gap = check.clients / load.max_rate  # s between two requests of one client

    context = _build_tls_context()

    def connect() -> http.client.HTTPConnection:
        if load.uses_tls:
            return http.client.HTTPSConnection(
                address, url.port, timeout=_TIMEOUT_SECONDS, context=context
            )
        return http.client.HTTPConnection(address, url.port, timeout=_TIMEOUT_SECONDS)

    def request(_: int) -> int:
        return _count_answers(connect, path, counted, gap)

    with ThreadPoolExecutor(check.clients) as pool:
        return sum(pool.map(request, range(check.clients))) / check.seconds


def _build_tls_context() -> ssl.SSLContext:
    """Return a context without authorities, which would take longer to load than a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _count_answers(
    connect: Callable[[], http.client.HTTPConnection], path: str, counted: Interval, gap: float
) -> int:
    answers = 0
    while (begun := time.monotonic()) < counted.end:
        connection = connect()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            answers += answer.status == http.client.OK and time.monotonic() >= counted.begin
        except (OSError, http.client.HTTPException):
            pass  # not a valid response
        finally:
            connection.close()
        time.sleep(max(0.0, begun + gap - time.monotonic()))
    return answers
