"""Something asked again and again, in a thread of its own, while a test goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Answer = TypeVar("Answer")


@contextmanager
def asked_meanwhile(ask: Callable[[], Answer], every: float = 0.0) -> Iterator[list[Answer]]:
    """What was answered so far; the next question comes ``every`` so many seconds after an answer."""
    answers: list[Answer] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(every):
            answers.append(ask())

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join()
