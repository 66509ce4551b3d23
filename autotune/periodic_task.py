"""Repeat an action in a background thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class PeriodicTask:
    """A background thread that calls ``action`` at intervals, from ``start`` to ``stop``."""

    def __init__(self, name: str, interval_seconds: float, action: Callable[[], object]) -> None:
        self._interval_seconds, self._action = interval_seconds, action
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait until the current call has finished, and make no further calls."""
        self._stop_event.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop_event.wait(self._interval_seconds):
            self._action()
