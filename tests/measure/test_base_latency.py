"""Tests of searches on stacks whose pages take a large part of the latency limit."""

from __future__ import annotations

from math import log
from statistics import mean

import numpy as np
import pytest

from autotune.measure import Capacity, Slo, search_peak
from autotune.measure.capacity import SearchLimits, _compute_longest_wait
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult, WarmUpWindow
from bench.queues import LiveBench
from bench.servers import Server

SLO = Slo(quantile=0.99, limit=1.5, errors=0.001)
LIMITS = SearchLimits(max_load_seconds=60.0, max_slow_load_seconds=60.0, max_stalled_readings=5)
# A page of a second, of which little is work: 500 workers serve 500 requests/s.
SLOW_PAGE = Server(workers=500, service=1.0, cv=0.03)


def search_slow_page(seed: int, base_latency: float) -> Capacity:
    """Measure the page from an expected peak of half its true peak."""
    served = LiveBench(SLOW_PAGE, SLO, np.random.default_rng(seed), overhead=1.5)
    return search_peak(
        served, SLO, SLOW_PAGE.peak(SLO) / 2.0, target_sd=0.05, limits=LIMITS,
        base_latency=base_latency,
    )  # fmt: skip


@pytest.mark.long
def test_the_capacity_of_a_slow_page_is_not_underestimated_after_an_overload() -> None:
    """A queue delays requests by half a second until they are late, not by the whole limit."""
    peak = SLOW_PAGE.peak(SLO)
    mean_errors = {
        base_latency: mean(
            log(search_slow_page(seed, base_latency).peak / peak) for seed in range(20)
        )
        for base_latency in (0.0, SLOW_PAGE.service)
    }
    assert abs(mean_errors[1.0]) < 0.05
    assert mean_errors[0.0] < -0.1


@pytest.mark.parametrize(
    ("base_latency", "longest_wait"),
    [(0.0, 1.5), (0.01, 1.5), (1.0, 0.675), (1.5, 0.3), (9, 0.075)],
)
def test_a_request_may_wait_for_the_rest_of_the_limit(
    base_latency: float, longest_wait: float
) -> None:
    assert _compute_longest_wait(1.5, base_latency) == pytest.approx(longest_wait, abs=0.04)


@pytest.mark.parametrize(
    ("windows", "single_latency", "base_latency"),
    [
        ([], 0.4, 0.0),
        ([(False, None)], 0.4, 0.0),
        ([(True, 0.9)], 0.4, 0.0),
        ([(False, 0.3)], None, 0.0),
        ([(False, 0.4), (False, 0.3), (True, 0.2)], 0.5, 0.3),
        # The windows include waits, or their bins are as wide as the limit.
        ([(False, 0.5), (False, 0.5)], 0.01, 0.01),
    ],
)
def test_the_latency_without_a_queue_needs_windows_and_a_single_request(
    windows: list[tuple[bool, float | None]], single_latency: float | None, base_latency: float
) -> None:
    result = WarmUpResult(
        True,
        tuple(
            WarmUpWindow(100.0, is_overloaded, latency, None) for is_overloaded, latency in windows
        ),
        single_latency,
    )
    assert result.base_latency == base_latency


def test_an_overload_is_less_severe_for_a_slow_page() -> None:
    """The reading of an overload fits a queue with a short wait better than one with a long wait."""
    overload = Reading(600.0, 4.0, 2400, 1600)

    def measure(base_latency: float) -> float:
        rates = iter([Reading(300.0, 4.0, 1200, 0), overload])
        found = search_peak(
            lambda rate, seconds: next(rates), SLO, 300.0, limits=SearchLimits(max_load_seconds=1.0),
            base_latency=base_latency,
        )  # fmt: skip
        return found.peak

    assert measure(1.2) > measure(0.0)
