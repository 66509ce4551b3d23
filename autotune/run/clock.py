"""Where a study's time goes: load, deploy, search, and everything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = ("load", "deploy", "search")


class Clock:
    """Wall-clock seconds by kind since they were last collected."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._spent = dict.fromkeys(KINDS, 0.0)

    @contextmanager
    def on(self, kind: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._spent[kind] += time.monotonic() - started

    @property
    def running(self) -> float:
        """Seconds since the last collection."""
        return time.monotonic() - self._since

    def collect(self) -> dict[str, float]:
        """All seconds since the last collection, those of no kind as ``other``."""
        total = self.running
        spent = {**self._spent, "other": max(0.0, total - sum(self._spent.values()))}
        self._since += total
        self._spent = dict.fromkeys(KINDS, 0.0)
        return spent
