"""Test beds in virtual time: the one behind goes on, and whoever waits wakes up in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from autotune.environments.clock import StudyClock
from autotune.study.bed_barrier import BedBarrier
from bench.workers import Order, SharedTurns


class Virtual:
    """A bed's clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = StudyClock(lambda: self.now, self.skip)

    def skip(self, seconds: float) -> None:
        self.now += seconds


def together(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()


def shared(beds: Sequence[str]) -> BedBarrier:
    return SharedTurns(Order(beds))


@pytest.mark.parametrize("made", [BedBarrier, shared])
def test_events_come_in_the_order_of_their_times(
    made: Callable[[Sequence[str]], BedBarrier],
) -> None:
    beds = {"slow": 7.0, "fast": 3.0}
    turns, events = made(tuple(beds)), list[tuple[float, str]]()

    def work(bed: str) -> Callable[[], None]:
        time = Virtual()

        def run() -> None:
            for _ in range(40):
                turns.wait_for_turn(bed, time.clock)
                events.append((time.now, bed))
                time.skip(beds[bed])
            turns.remove_bed(bed)

        return run

    together(work("slow"), work("fast"))
    assert events == sorted(events, key=lambda event: (event[0], event[1] != "slow"))
    assert len(events) == 80


def test_who_waits_wakes_up_when_a_trial_is_over() -> None:
    turns, times = BedBarrier(("a", "b")), {"a": Virtual(), "b": Virtual()}

    def waits() -> None:
        turns.wait_for_turn("a", times["a"].clock)
        turns.wait_for_others("a", times["a"].clock)
        turns.remove_bed("a")

    def ends() -> None:
        turns.wait_for_turn("b", times["b"].clock)
        times["b"].skip(30.0)
        turns.wait_for_turn("b", times["b"].clock)
        turns.finish_trial("b", times["b"].clock)
        turns.wait_for_turn("b", times["b"].clock)
        turns.remove_bed("b")

    together(waits, ends)
    assert times["a"].now == 30.0


def test_who_waits_is_not_left_alone() -> None:
    turns, times = BedBarrier(("a", "b")), {"a": Virtual(), "b": Virtual()}

    def waits() -> None:
        turns.wait_for_turn("a", times["a"].clock)
        turns.wait_for_others("a", times["a"].clock)
        turns.remove_bed("a")

    together(waits, lambda: turns.remove_bed("b"))


def test_on_real_hosts_nobody_waits_for_a_turn_and_a_stop_is_heard() -> None:
    turns, clock = BedBarrier(("a", "b")), StudyClock()
    turns.wait_for_turn("b", clock)
    turns.stop_all_beds()
    with pytest.raises(KeyboardInterrupt):
        turns.wait_for_turn("a", clock)
