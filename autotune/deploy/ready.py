"""Whether the stack as a whole answers right: one real request, its whole answer looked at."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

from autotune.services.base import Endpoint


def answer(endpoint: Endpoint, path: str, timeout: float = 2.0) -> tuple[int, bytes] | str:
    """Status and body of one request, or in words why there is none."""
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read(65_536)
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def wait(endpoint: Endpoint, path: str, expect: bytes | None, seconds: float) -> str | None:
    """Wait until a request is answered right; if it never is, in words what came instead."""
    return until(lambda: answer(endpoint, path), expect, seconds)


def until(
    ask: Callable[[], tuple[int, bytes] | str], expect: bytes | None, seconds: float
) -> str | None:
    """As ``wait``, however the request is made."""
    deadline = time.monotonic() + seconds
    while True:
        got = ask()
        if isinstance(got, tuple) and 200 <= got[0] < 300 and expect in (None, got[1]):
            return None
        if time.monotonic() > deadline:
            return got if isinstance(got, str) else f"status {got[0]}, body {got[1][:200]!r}"
        time.sleep(0.02)
