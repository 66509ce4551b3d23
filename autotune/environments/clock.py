"""Where a study's time goes: load, deploy, search, and everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KINDS = ("load", "deploy", "search")


class Clock:
    """Seconds by kind since they were last collected.

    ``now`` is the clock they are read from: the machine's, or the virtual time of a modelled stack,
    which ``skip(seconds)`` moves forward.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        skip: Callable[[float], None] | None = None,
    ) -> None:
        self.now, self.skip = now, skip
        self._since = now()
        self._spent = dict.fromkeys(KINDS, 0.0)

    @contextmanager
    def on(self, kind: str) -> Iterator[None]:
        started = self.now()
        try:
            yield
        finally:
            self._spent[kind] += self.now() - started

    @property
    def running(self) -> float:
        """Seconds since the last collection."""
        return self.now() - self._since

    def collect(self) -> dict[str, float]:
        """All seconds since the last collection, those of no kind as ``other``."""
        total = self.running
        spent = {**self._spent, "other": max(0.0, total - sum(self._spent.values()))}
        self._since += total
        self._spent = dict.fromkeys(KINDS, 0.0)
        return spent
