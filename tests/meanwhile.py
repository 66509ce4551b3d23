"""A function that a separate thread calls repeatedly during a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Answer = TypeVar("Answer")


@contextmanager
def asked_meanwhile(ask: Callable[[], Answer], every: float = 0.0) -> Iterator[list[Answer]]:
    """Yield the list of results so far. The next call follows ``every`` seconds after a result."""
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
