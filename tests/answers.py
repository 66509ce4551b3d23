"""One request to a server, as tests look at it."""

from __future__ import annotations

from autotune.services.base import Endpoint
from autotune.transports import curl
from autotune.transports.local import LocalTransport


def fetched(endpoint: Endpoint, path: str) -> tuple[int, bytes] | str:
    """Status and body of one GET, or in words why there is none."""
    got = curl.answer(LocalTransport(), f"http://{endpoint}{path}")
    return got if isinstance(got, str) else (got.status, got.body)
