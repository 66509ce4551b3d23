"""How the test beds of a study go on together, each in a thread of its own.

On real hosts no bed waits for its turn. Where time is virtual only the bed whose clock is furthest
behind goes on, and nothing is recorded before its time: a study of models is the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf

from autotune.environments.clock import StudyClock


class BedBarrier:
    """The clock of every bed that takes part, and what the others wait for."""

    def __init__(self, beds: Sequence[str], poll_seconds: float | None = None) -> None:
        # Where other processes have beds too, a bed that waits looks for news every so many seconds.
        self._news = poll_seconds
        # No bed may go on before all of them are ready.
        self._times = dict.fromkeys(beds, -inf)
        self._ended = 0
        self._stopped = False
        self._changed = threading.Condition()

    def wait_for_turn(self, bed: str, clock: StudyClock) -> None:
        """Return when this bed may decide something or put it on record. Raises KeyboardInterrupt where
        the study is to stop."""
        with self._changed:
            if clock.skip is not None:
                self._set_time(bed, clock.now())
                self._wait_until(lambda: min(self._times, key=self._times.__getitem__) == bed)
            if self._stopped:
                raise KeyboardInterrupt

    def wait_for_others(self, bed: str, clock: StudyClock) -> None:
        """Return when a trial of another bed is over, or that bed takes no further part; where other
        processes have beds too, also after some seconds, to look at what they did."""
        with self._changed:
            before = self._ended
            self._set_time(bed, inf)
            self._wait_until(lambda: self._ended != before or self._is_alone(), self._news)
            now = self._times[bed]
            if clock.skip is not None and now < inf:
                clock.skip(max(0.0, now - clock.now()))
        self.wait_for_turn(bed, clock)

    def finish_trial(self, bed: str, clock: StudyClock) -> None:
        """A trial of this bed is over: beds that waited go on at the time of this bed's clock."""
        with self._changed:
            self._wake_waiting(clock.now())
            self._set_time(bed, clock.now())

    def remove_bed(self, bed: str) -> None:
        """This bed takes no further part."""
        with self._changed:
            self._wake_waiting(self._times.pop(bed, -inf))
            self._changed.notify_all()

    def stop_all(self) -> None:
        """Every bed is to end with what it is doing, and to restore its hosts."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _set_time(self, bed: str, now: float) -> None:
        self._times[bed] = now
        self._changed.notify_all()

    def _wake_waiting(self, now: float) -> None:
        self._ended += 1
        self._times |= {bed: now for bed, time in self._times.items() if time == inf}

    def _is_alone(self) -> bool:
        return len(self._times) == 1 and self._news is None

    def _wait_until(self, ready: Callable[[], bool], seconds: float | None = None) -> None:
        self._changed.wait_for(lambda: self._stopped or ready(), seconds)
