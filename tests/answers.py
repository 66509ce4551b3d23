"""One request to a server, as tests look at it."""

from __future__ import annotations

from autotune.services.base import Endpoint
from autotune.transports import curl
from autotune.transports.local import LocalTransport

PATIENCE = 60.0  # seconds: the machine may be busy with something else


def fetched(endpoint: Endpoint, path: str) -> tuple[int, bytes] | str:
    """Status and body of one GET, or in words why there is none."""
    got = curl.send_request(LocalTransport(), f"http://{endpoint}{path}", PATIENCE)
    return got if isinstance(got, str) else (got.status, got.body)
