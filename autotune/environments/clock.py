"""A clock that splits a study's time into load, deployment, search and other activities."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ACTIVITIES = ("load", "deploy", "search")


@dataclass(eq=False)
class _Activity:
    """An activity that takes time. ``start_time`` moves when a part of its time has been counted."""

    kind: str
    start_time: float


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
        self._running_activities: list[_Activity] = []

    @contextmanager
    def time_activity(self, kind: str) -> Iterator[None]:
        activity = _Activity(kind, self.now())
        self._running_activities.append(activity)
        try:
            yield
        finally:
            self._running_activities.remove(activity)
            self._count(activity)

    def _count(self, activity: _Activity) -> None:
        """Count the time of an activity since it started or was last counted."""
        now = self.now()
        self._activity_seconds[activity.kind] += now - activity.start_time
        activity.start_time = now

    @property
    def elapsed_seconds(self) -> float:
        """Return the seconds since the last call of ``collect_seconds``, or else since the start."""
        return self.now() - self._last_collection

    def collect_seconds(self) -> dict[str, float]:
        """Return the seconds that each activity has taken since the last collection, and reset the
        counters. ``other`` contains the remaining seconds.
        """
        for activity in self._running_activities:
            self._count(activity)
        total_seconds = self.elapsed_seconds
        seconds_by_activity = {
            **self._activity_seconds,
            "other": max(0.0, total_seconds - sum(self._activity_seconds.values())),
        }
        self._last_collection += total_seconds
        self._activity_seconds = dict.fromkeys(ACTIVITIES, 0.0)
        return seconds_by_activity
