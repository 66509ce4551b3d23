"""Whether the stack as a whole answers right: one real request, its whole answer looked at."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.target.expected_answer import ANY_2XX


def wait_until_ready(
    send_request: Callable[[], tuple[int, bytes] | str],
    expected_body: bytes | None,
    seconds: float,
    statuses: frozenset[int] = ANY_2XX,
) -> str | None:
    """Wait until a request is answered right; if it never is, in words what came instead."""
    deadline = time.monotonic() + seconds
    while True:
        answer = send_request()
        if (
            isinstance(answer, tuple)
            and answer[0] in statuses
            and expected_body in (None, answer[1])
        ):
            return None
        if time.monotonic() > deadline:
            return (
                answer
                if isinstance(answer, str)
                else f"status {answer[0]}, body {answer[1][:200]!r}"
            )
        time.sleep(0.02)
