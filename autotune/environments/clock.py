"""A clock that splits a study's time into load, deployment, search and other activities."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ACTIVITIES = ("load", "deploy", "search")


class StudyClock:
    """A counter of the seconds that each activity has taken since the last collection.

    ``now`` returns the machine's time or a model's virtual time, in seconds. ``skip(seconds)``
    advances virtual time.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        skip: Callable[[float], None] | None = None,
    ) -> None:
        self.now, self.skip = now, skip
        self._last_collection = now()
        self._activity_seconds = dict.fromkeys(ACTIVITIES, 0.0)

    @contextmanager
    def time_activity(self, kind: str) -> Iterator[None]:
        start_time = self.now()
        try:
            yield
        finally:
            self._activity_seconds[kind] += self.now() - start_time

    @property
    def elapsed_seconds(self) -> float:
        """Return the seconds since the last call of ``collect_seconds``, or else since the start."""
        return self.now() - self._last_collection

    def collect_seconds(self) -> dict[str, float]:
        """Return the seconds that each activity has taken since the last collection, and reset the
        counters. ``other`` contains the remaining seconds.
        """
        total_seconds = self.elapsed_seconds
        seconds_by_activity = {
            **self._activity_seconds,
            "other": max(0.0, total_seconds - sum(self._activity_seconds.values())),
        }
        self._last_collection += total_seconds
        self._activity_seconds = dict.fromkeys(ACTIVITIES, 0.0)
        return seconds_by_activity
