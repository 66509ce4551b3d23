"""Test beds in virtual time: the one behind goes on, and whoever waits wakes up in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from autotune.environments.clock import Clock
from autotune.study.turns import Turns
from bench.workers import Order, SharedTurns


class Virtual:
    """A bed's clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = Clock(lambda: self.now, self.skip)

    def skip(self, seconds: float) -> None:
        self.now += seconds


def together(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()


def shared(beds: Sequence[str]) -> Turns:
    return SharedTurns(Order(beds))


@pytest.mark.parametrize("made", [Turns, shared])
def test_events_come_in_the_order_of_their_times(made: Callable[[Sequence[str]], Turns]) -> None:
    beds = {"slow": 7.0, "fast": 3.0}
    turns, events = made(tuple(beds)), list[tuple[float, str]]()

    def work(bed: str) -> Callable[[], None]:
        time = Virtual()

        def run() -> None:
            for _ in range(40):
                turns.turn(bed, time.clock)
                events.append((time.now, bed))
                time.skip(beds[bed])
            turns.leave(bed)

        return run

    together(work("slow"), work("fast"))
    assert events == sorted(events, key=lambda event: (event[0], event[1] != "slow"))
    assert len(events) == 80


def test_who_waits_wakes_up_when_a_trial_is_over() -> None:
    turns, times = Turns(("a", "b")), {"a": Virtual(), "b": Virtual()}

    def waits() -> None:
        turns.turn("a", times["a"].clock)
        turns.wait("a", times["a"].clock)
        turns.leave("a")

    def ends() -> None:
        turns.turn("b", times["b"].clock)
        times["b"].skip(30.0)
        turns.turn("b", times["b"].clock)
        turns.over("b", times["b"].clock)
        turns.turn("b", times["b"].clock)
        turns.leave("b")

    together(waits, ends)
    assert times["a"].now == 30.0


def test_who_waits_is_not_left_alone() -> None:
    turns, times = Turns(("a", "b")), {"a": Virtual(), "b": Virtual()}

    def waits() -> None:
        turns.turn("a", times["a"].clock)
        turns.wait("a", times["a"].clock)
        turns.leave("a")

    together(waits, lambda: turns.leave("b"))


def test_on_real_hosts_nobody_waits_for_a_turn_and_a_stop_is_heard() -> None:
    turns, clock = Turns(("a", "b")), Clock()
    turns.turn("b", clock)
    turns.stop()
    with pytest.raises(KeyboardInterrupt):
        turns.turn("a", clock)
