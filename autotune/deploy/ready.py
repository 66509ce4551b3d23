"""Whether the stack as a whole answers right: one real request, its whole answer looked at."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.target.expect import ANY_2XX


def until(
    ask: Callable[[], tuple[int, bytes] | str],
    expect: bytes | None,
    seconds: float,
    statuses: frozenset[int] = ANY_2XX,
) -> str | None:
    """Wait until a request is answered right; if it never is, in words what came instead."""
    deadline = time.monotonic() + seconds
    while True:
        got = ask()
        if isinstance(got, tuple) and got[0] in statuses and expect in (None, got[1]):
            return None
        if time.monotonic() > deadline:
            return got if isinstance(got, str) else f"status {got[0]}, body {got[1][:200]!r}"
        time.sleep(0.02)
