"""Waiting out a backlog: one reading's queue must not be the next one's latency."""

from __future__ import annotations

import time
from collections.abc import Callable

IN_A_ROW = 3
SECONDS = 10.0


def drain(latency: Callable[[], float | None], limit: float, seconds: float = SECONDS) -> bool:
    """Ask until ``IN_A_ROW`` single requests come back within ``limit`` seconds, one by one.

    ``latency()`` sends one request and gives its seconds, ``None`` if it was not answered right.
    Whether the backlog was gone before ``seconds`` had passed.
    """
    deadline = time.monotonic() + seconds
    quick = 0
    while quick < IN_A_ROW:
        if time.monotonic() > deadline:
            return False
        took = latency()
        quick = quick + 1 if took is not None and took <= limit else 0
    return True
