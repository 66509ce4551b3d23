"""Synchronization of a study's test beds, which run in separate threads.

Beds on real hosts do not wait for each other. With virtual time, only the bed whose clock is
furthest behind continues, so that events are recorded in order of time. Simulated studies are
therefore reproducible.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf

from autotune.environments.clock import StudyClock


class BedBarrier:
    """The clocks of all active beds, or of the only stack (``None``). Beds wait for each other at this
    barrier.
    """

    def __init__(self, beds: Sequence[str | None], poll_seconds: float | None = None) -> None:
        # If other processes have beds too, a waiting bed checks for their records at intervals.
        self._poll_seconds = poll_seconds
        # No bed starts before all beds are ready.
        self._clock_times = dict.fromkeys(beds, -inf)
        self._finished_count = 0
        self._is_stopped = False
        self._condition = threading.Condition()

    def wait_for_turn(self, bed: str | None, clock: StudyClock) -> None:
        """Wait until this bed may make a decision or write a record.

        Raises KeyboardInterrupt if the study must stop.
        """
        with self._condition:
            if clock.skip is not None:
                self._set_clock_time(bed, clock.now())
                self._wait_until(
                    lambda: min(self._clock_times, key=self._clock_times.__getitem__) == bed
                )
            if self._is_stopped:
                raise KeyboardInterrupt

    def wait_for_others(self, bed: str | None, clock: StudyClock) -> None:
        """Wait until another bed finishes a trial or is removed.

        If other processes have beds too, wait no longer than the poll interval.
        """
        with self._condition:
            finished_count_before = self._finished_count
            self._set_clock_time(bed, inf)
            self._wait_until(
                lambda: self._finished_count != finished_count_before or self._is_only_bed(),
                self._poll_seconds,
            )
            bed_time = self._clock_times[bed]
            if clock.skip is not None and bed_time < inf:
                clock.skip(max(0.0, bed_time - clock.now()))
        self.wait_for_turn(bed, clock)

    def finish_trial(self, bed: str | None, clock: StudyClock) -> None:
        """Finish a trial of this bed, so that waiting beds continue at the time on this bed's clock."""
        with self._condition:
            self._wake_waiting(clock.now())
            self._set_clock_time(bed, clock.now())

    def remove_bed(self, bed: str | None) -> None:
        """Remove this bed, and wake the beds that wait for it."""
        with self._condition:
            self._wake_waiting(self._clock_times.pop(bed, -inf))
            self._condition.notify_all()

    def stop_all_beds(self) -> None:
        """Stop the trials of all beds, so that they restore their hosts."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def _set_clock_time(self, bed: str | None, clock_time: float) -> None:
        self._clock_times[bed] = clock_time
        self._condition.notify_all()

    def _wake_waiting(self, now: float) -> None:
        self._finished_count += 1
        self._clock_times |= {bed: now for bed, time in self._clock_times.items() if time == inf}

    def _is_only_bed(self) -> bool:
        return len(self._clock_times) == 1 and self._poll_seconds is None

    def _wait_until(self, is_ready: Callable[[], bool], seconds: float | None = None) -> None:
        self._condition.wait_for(lambda: self._is_stopped or is_ready(), seconds)
