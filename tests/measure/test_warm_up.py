from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from autotune.loads.base import LOW_RATE_ERROR
from autotune.measure import Reading
from autotune.measure.warm_up import (
    EXPECTED_PEAK_SHARE,
    FUTILE_WINDOWS,
    MAX_WINDOWS,
    WarmUpWindow,
    is_cache_filling,
    run_warm_up,
)


@dataclass
class Stack:
    """A stack that answers in 5 ms up to ``peak``; ``rate_of_hits`` is that of its cache after so
    many lookups.
    """

    rate_of_hits: Callable[[int], float] | None = None
    peak: float = 1e9
    hits: int = 0
    misses: int = 0

    def probe(self, rate: float, seconds: float) -> Reading:
        n = int(rate * seconds)
        if self.rate_of_hits is not None:
            hit = round(n * self.rate_of_hits(self.hits + self.misses))
            self.hits, self.misses = self.hits + hit, self.misses + n - hit
        late = 0 if rate <= self.peak else n
        return Reading(rate, seconds, n, late, histogram={0.005: n - late})

    def lookups(self) -> tuple[int, int] | None:
        return (self.hits, self.misses) if self.rate_of_hits is not None else None


def filling(keys: int) -> Callable[[int], float]:
    return lambda lookups: min(0.99, lookups / keys)


def test_a_stack_without_a_cache_settles_in_two_windows() -> None:
    stack = Stack()
    warm_up_result = run_warm_up(stack.probe, stack.lookups, 100.0, max_rate=1e6)
    assert (warm_up_result.is_settled, len(warm_up_result.windows)) == (True, 2)


def test_a_cache_that_is_warm_settles_in_four() -> None:
    stack = Stack(lambda _: 0.95)
    warm_up_result = run_warm_up(stack.probe, stack.lookups, 100.0, max_rate=1e6)
    assert (warm_up_result.is_settled, len(warm_up_result.windows)) == (True, 4)
    assert warm_up_result.hit_rate == pytest.approx(0.95, abs=0.01)


def test_a_cache_that_fills_while_it_is_asked_is_waited_for() -> None:
    stack = Stack(filling(10_000))
    warm_up_result = run_warm_up(stack.probe, stack.lookups, 2000.0, max_rate=1e6)
    assert warm_up_result.is_settled
    assert warm_up_result.hit_rate == pytest.approx(0.99, abs=0.01)


def test_a_cache_that_fills_at_a_crawl_is_never_called_settled() -> None:
    stack = Stack(filling(20_000))  # 90 lookups a window: half a point more hits each
    warm_up_result = run_warm_up(stack.probe, stack.lookups, 150.0, max_rate=1e6)
    assert not warm_up_result.is_settled
    assert len(warm_up_result.windows) == MAX_WINDOWS


@dataclass
class Failing:
    """A stack of whose requests the fraction ``failed(rate)`` time out; those of the others are late."""

    failed: Callable[[float], float]

    def probe(self, rate: float, seconds: float) -> Reading:
        n = int(rate * seconds)
        failed = round(n * self.failed(rate))
        return Reading(rate, seconds, n, n, {"timeout": failed}, histogram={0.2: n - failed})


@pytest.mark.parametrize(
    ("failed", "windows", "failed_at"),
    [
        # Workers that something else holds: no load helps.
        (lambda _: 0.3, FUTILE_WINDOWS, EXPECTED_PEAK_SHARE * 1000.0 / 4),
        (lambda _: 1.0, 2, EXPECTED_PEAK_SHARE * 1000.0 / 2),  # nothing answers
        (lambda rate: rate / 2000.0, MAX_WINDOWS, None),  # less load helps
        (lambda _: 0.0, MAX_WINDOWS, None),  # a cold cache: all late, at any load
    ],
)
def test_less_load_is_offered_as_long_as_it_helps(
    failed: Callable[[float], float], windows: int, failed_at: float | None
) -> None:
    stack = Failing(failed)
    warm_up_result = run_warm_up(stack.probe, lambda: None, 1000.0, max_rate=1e6)
    assert (warm_up_result.is_settled, len(warm_up_result.windows)) == (False, windows)
    assert warm_up_result.failed_rate == failed_at


def test_an_overloaded_stack_is_given_less() -> None:
    stack = Stack(peak=300.0)
    warm_up_result = run_warm_up(stack.probe, stack.lookups, 1000.0, max_rate=1e6)
    assert warm_up_result.sustained_rate is not None
    assert warm_up_result.sustained_rate <= 300.0


@pytest.mark.parametrize(
    ("hits", "expected"),
    [
        ([None, None], False),  # no cache
        ([0.5, 0.5, 0.5], True),  # too early to tell
        ([0.3, 0.5, 0.505, 0.509], True),
        ([0.500, 0.504, 0.508, 0.507], False),
        ([0.9, 0.9002, 0.9004, 0.9006], False),  # hardly
        ([0.9, 0.8, 0.7, 0.6], False),
        ([0.3, 0.5, 0.505, None, 0.509], True),  # once, a cache did not report its counters
        ([0.500, 0.504, None, 0.508, 0.507], False),
        ([0.3, 0.5, None, None], False),  # it stopped reporting them
    ],
)
def test_climbing_is_never_falling(hits: list[float | None], expected: bool) -> None:
    assert is_cache_filling([WarmUpWindow(100.0, False, 0.005, hit) for hit in hits]) is expected


def test_a_slow_stack_is_approached_from_below() -> None:
    stack = Stack(peak=3.0)
    result = run_warm_up(stack.probe, stack.lookups, None, max_rate=1e6, start_rate=1.0)
    rates = [window.rate for window in result.windows]
    assert rates[:2] == [1.0, 2.0]
    assert max(rates) <= 2 * stack.peak
    assert result.sustained_rate is not None


def test_a_stack_whose_pages_wait_is_approached_in_few_windows() -> None:
    """A page that waits for something has the same latency at all rates below the peak."""
    stack = Stack(peak=170.0)
    result = run_warm_up(stack.probe, lambda: None, None, max_rate=1e6, start_rate=1.1)
    assert result.is_settled
    assert result.sustained_rate is not None
    assert result.sustained_rate > 0.4 * stack.peak
    limited = run_warm_up(
        stack.probe, lambda: None, None, max_rate=1e6, start_rate=1.1, max_windows=4
    )
    assert limited.is_settled
    assert limited.sustained_rate == pytest.approx(1.1 * 8)


def test_cpu_steal_does_not_end_the_approach_to_a_distant_peak() -> None:
    stack, offered = Stack(peak=170.0), list[float]()

    def probe(rate: float, seconds: float) -> Reading:
        offered.append(rate)
        reading = stack.probe(rate, seconds)
        is_disturbed = len(offered) == 2
        return (
            replace(reading, violations=reading.intended, stolen=0.5) if is_disturbed else reading
        )

    result = run_warm_up(probe, lambda: None, None, max_rate=1e6, start_rate=1.1)
    assert offered[1:4] == pytest.approx([2.2, 2.2, 4.4])
    assert result.sustained_rate is not None
    assert result.sustained_rate > 0.4 * stack.peak


def test_a_stack_far_below_one_request_per_second_is_reached() -> None:
    stack = Stack(peak=0.15)
    result = run_warm_up(stack.probe, stack.lookups, None, max_rate=1e6, start_rate=0.2)
    assert result.sustained_rate is not None
    assert result.sustained_rate <= stack.peak


def test_windows_at_low_rates_are_longer() -> None:
    lengths: dict[float, float] = {}
    stack = Stack()

    def probe(rate: float, seconds: float) -> Reading:
        lengths[rate] = seconds
        return stack.probe(rate, seconds)

    run_warm_up(probe, stack.lookups, None, max_rate=1.0, start_rate=0.5)
    run_warm_up(probe, stack.lookups, None, max_rate=1e6)
    assert {rate: seconds for rate, seconds in lengths.items() if rate <= 1.0} == {
        0.5: 8.0,
        1.0: 4.0,
    }
    assert {seconds for rate, seconds in lengths.items() if rate > 1.0} == {1.0}


@pytest.mark.parametrize(
    ("max_rate", "rates", "is_settled"),
    [(20.0, [2.0, 4.0, 8.0, 16.0, 20.0], True), (4.0, [2.0, 4.0], False)],
)
def test_a_window_without_any_load_is_no_overload(
    max_rate: float, rates: list[float], is_settled: bool
) -> None:
    """Not even one visit of several requests fits into a window below 6/s."""
    stack, offered = Stack(), list[float]()

    def probe(rate: float, seconds: float) -> Reading:
        offered.append(rate)
        n = int(rate * seconds)
        low = Reading(rate, 0.0, n, n, {LOW_RATE_ERROR: n}, limited="the rate is too low")
        return low if rate < 6.0 else stack.probe(rate, seconds)

    result = run_warm_up(probe, stack.lookups, None, max_rate=max_rate, start_rate=2.0)
    assert offered == rates
    assert result.is_settled is is_settled
    assert [window.rate for window in result.windows] == [rate for rate in rates if rate > 6.0]
    assert not any(window.is_overloaded for window in result.windows)


def test_windows_that_last_longer_than_requested_use_up_the_time() -> None:
    latencies = iter(0.01 * 2**n for n in range(MAX_WINDOWS))  # they never settle

    def probe(rate: float, seconds: float) -> Reading:
        return Reading(rate, 30.0, 100, 0, histogram={next(latencies): 100})

    result = run_warm_up(probe, lambda: None, 100.0, max_rate=1e6, max_seconds=80.0)
    assert len(result.windows) == 3
