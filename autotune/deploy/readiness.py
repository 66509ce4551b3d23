"""Wait until the stack responds correctly to a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune.deploy.boot_times import is_starting
from autotune.deploy.unit_start import MIN_READY_SECONDS
from autotune.masking import mask_secrets
from autotune.target.expected_answer import ANY_2XX

Answer = tuple[int, bytes] | str  # status and body, or why the response is missing
_MAX_READ_BYTES = 2000  # maximum number of bytes of a response body that are searched for secrets
_MAX_SHOWN_CHARACTERS = 60  # maximum number of characters of a response body in a message
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, PAUSE_FACTOR = 0.02, 1.0, 1.5


@dataclass(frozen=True)
class RightAnswer:
    """Properties of a correct response. If ``body`` is ``None``, only the status is checked."""

    body: bytes | None = None
    statuses: frozenset[int] = ANY_2XX

    def is_met(self, answer: Answer) -> bool:
        """True if the response is correct."""
        return (
            isinstance(answer, tuple)
            and answer[0] in self.statuses
            and self.body in (None, answer[1])
        )


ANY_RIGHT_ANSWER = RightAnswer()


def wait_until_ready(
    send_request: Callable[[], Answer],
    right_answer: RightAnswer,
    seconds: float,
    min_pause: float = 0.0,
) -> str | None:
    """Return ``None`` after a correct response, or else a description of the last wrong response.

    The wait lasts up to ``seconds`` while the stack is starting. If the status of a response shows that
    the stack has started, the wait ends ``MIN_READY_SECONDS`` later. ``min_pause`` is the shortest time
    between two requests in seconds.
    """
    start_time = last_starting_time = time.monotonic()
    pause = FIRST_PAUSE_SECONDS
    while not right_answer.is_met(answer := send_request()):
        now = time.monotonic()
        if is_starting(answer):
            last_starting_time = now
        if now - start_time > seconds or now - last_starting_time > MIN_READY_SECONDS:
            return describe_answer(answer)
        time.sleep(max(pause, min_pause))
        pause = min(PAUSE_FACTOR * pause, MAX_PAUSE_SECONDS)
    return None


def describe_answer(answer: Answer) -> str:
    """Return the status and the start of the body, or why the response is missing."""
    if isinstance(answer, str):
        return answer
    body = mask_secrets(answer[1][:_MAX_READ_BYTES].decode(errors="replace"))
    return f"status {answer[0]}, body {body[:_MAX_SHOWN_CHARACTERS]!r}"
