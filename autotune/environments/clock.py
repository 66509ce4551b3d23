"""Clock that divides a study's time into load, deployment, search and other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ACTIVITIES = ("load", "deploy", "search")


class StudyClock:
    """Counts seconds by kind since the last collection.

    ``now`` returns the time: of the machine, or the virtual time of a model. ``skip(seconds)``
    advances virtual time.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        skip: Callable[[float], None] | None = None,
    ) -> None:
        self.now, self.skip = now, skip
        self._since = now()
        self._spent = dict.fromkeys(ACTIVITIES, 0.0)

    @contextmanager
    def time_activity(self, kind: str) -> Iterator[None]:
        started = self.now()
        try:
            yield
        finally:
            self._spent[kind] += self.now() - started

    @property
    def elapsed_seconds(self) -> float:
        """Return the seconds since the last collection."""
        return self.now() - self._since

    def collect_seconds(self) -> dict[str, float]:
        """Return all seconds since the last collection by kind. Unassigned time is ``other``."""
        total = self.elapsed_seconds
        spent = {**self._spent, "other": max(0.0, total - sum(self._spent.values()))}
        self._since += total
        self._spent = dict.fromkeys(ACTIVITIES, 0.0)
        return spent
