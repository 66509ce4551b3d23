"""One HTTP request to a server, for tests."""

from __future__ import annotations

from autotune.services.base import Endpoint
from autotune.transports import curl
from autotune.transports.local import LocalTransport

PATIENCE = 60.0  # seconds; long, because the machine may be busy


def fetched(endpoint: Endpoint, path: str) -> tuple[int, bytes] | str:
    """Return the status and body of one GET request, or the reason for a missing response as text."""
    got = curl.send_request(LocalTransport(), f"http://{endpoint}{path}", PATIENCE)
    return got if isinstance(got, str) else (got.status, got.body)
