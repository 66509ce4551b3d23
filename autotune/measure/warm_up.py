"""Warm-up: load before any measurement, until caches, pools and connections have settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from autotune.measure.reading import Reading
from autotune.measure.steal import HIGH_STEAL_SHARE

WINDOW_SECONDS = 1.0
# At low rates, a window lasts until MIN_WINDOW_REQUESTS requests are sent, but at most
# MAX_WINDOW_SECONDS.
MIN_WINDOW_REQUESTS, MAX_WINDOW_SECONDS = 4, 10.0
# number of requests in a window at a low rate, if they arrive within `settling_seconds`
SETTLED_WINDOW_REQUESTS = 12
# if the first rate is low, no later rate is below the first rate divided by this divisor
SLOWEST_START_DIVISOR = 8.0
OVERLOAD_VIOLATION_SHARE = 0.1  # fraction of violations above which a window counts as overloaded
MAX_WINDOWS = 20
UNKNOWN_START_RATE = 200.0  # first rate in requests/s if no peak is expected
UNKNOWN_MAX_RATE = 1000.0  # highest warm-up rate in requests/s if no peak is expected
EXPECTED_PEAK_SHARE = 0.6  # share of the expected peak that keeps a stack busy without overload
# Windows agree if their hit rates differ by less than this tolerance.
HIT_RATE_TOLERANCE = 0.01
RISE_WINDOWS = 3  # a hit rate that keeps rising over this many windows has not settled
PREFILLED_RISE_WINDOWS = 2  # number of windows for caches that were filled before the warm-up
MIN_HIT_RISE = 0.001  # a hit rate that rises by at most this much has settled
LATENCY_TOLERANCE = 0.25  # windows agree if their median latencies differ by less than a quarter
# The load is halved from window to window, over FUTILE_WINDOWS windows. If the last failed fraction is
# above FUTILE_FAILURE_RATIO times the first failed fraction, less load does not help.
FUTILE_WINDOWS, FUTILE_FAILURE_RATIO = 3, 2 / 3


@dataclass(frozen=True)
class WarmUpWindow:
    """One window of warm-up load.

    ``hit_rate`` is the cache's hit rate in the window, or ``None`` if it is unknown.
    ``failed_share`` is the fraction of requests without a correct response. A late correct response
    does not count as failed.
    """

    rate: float
    is_overloaded: bool
    median_latency: float | None
    hit_rate: float | None
    failed_share: float = 0.0

    @property
    def is_unresponsive(self) -> bool:
        """True if fewer than half of the requests got a correct response. Further load would then not
        warm the stack.
        """
        return self.is_overloaded and self.median_latency is None


@dataclass(frozen=True)
class WarmUpResult:
    """The result of a warm-up. ``is_settled`` is false if the warm-up stopped before the stack had
    settled.

    ``single_latency`` is the latency of a single request after the warm-up, in seconds.
    """

    is_settled: bool
    windows: tuple[WarmUpWindow, ...]
    single_latency: float | None = None

    @property
    def hit_rate(self) -> float | None:
        """Return the cache's hit rate in the last window, or ``None`` without a cache."""
        return self.windows[-1].hit_rate if self.windows else None

    @property
    def sustained_rate(self) -> float | None:
        """Return the last rate in requests/s that the stack sustained, or ``None``."""
        sustained_rates = [window.rate for window in self.windows if not window.is_overloaded]
        return sustained_rates[-1] if sustained_rates else None

    @property
    def base_latency(self) -> float:
        """Return the usual latency without a queue in seconds; 0 if it is unknown.

        A single request may be slow by chance, and the medians of windows include waits.
        """
        latencies = [window.median_latency for window in self.windows if not window.is_overloaded]
        known_latencies = [latency for latency in latencies if latency is not None]
        if self.single_latency is None or not known_latencies:
            return 0.0
        return min(self.single_latency, *known_latencies)

    @property
    def failed_rate(self) -> float | None:
        """Return the rate in requests/s at which a futile warm-up was stopped, or ``None``."""
        return self.windows[-1].rate if is_futile(self.windows) else None


def run_warm_up(
    probe: Callable[[float, float], Reading],
    count_lookups: Callable[[], tuple[int, int] | None],
    expected_peak: float | None,
    *,
    max_rate: float,
    start_rate: float = UNKNOWN_START_RATE,
    rise_windows: int = RISE_WINDOWS,
    max_windows: int = MAX_WINDOWS,
    settling_seconds: float = 0.0,
    max_seconds: float = inf,
) -> WarmUpResult:
    """Load the stack until two consecutive windows agree and the hit rate no longer rises.

    ``probe(rate, seconds)`` generates the load. ``count_lookups()`` returns the cache's hits and misses
    so far. ``expected_peak`` is the expected peak in requests/s. Without ``expected_peak``,
    ``start_rate`` is the first rate. A rate below ``UNKNOWN_START_RATE`` is doubled while the stack
    keeps up, because the peak may be far higher. Windows at low rates are longer, up to
    ``settling_seconds``, so that an overload becomes visible. A cache whose hit rate rose over
    ``rise_windows`` windows is still filling. ``max_windows`` is the maximum number of windows. After
    ``max_seconds``, no third or later window starts.

    The load is halved if the stack is overloaded. The load grows again once the stack keeps up, because a
    cold cache warms faster with more requests. The load then stays well below the rate that overloaded
    the stack. After CPU steal, the same load is tried again. If almost as many requests fail at a quarter
    of the load, the warm-up stops, because the load is not the cause.

    If not even one visit fits into a window at its rate, the rate grows, and the window does not count.
    """
    highest_rate = EXPECTED_PEAK_SHARE * expected_peak if expected_peak else UNKNOWN_MAX_RATE
    ceiling = min(max_rate, highest_rate)
    rate = ceiling if expected_peak else min(ceiling, start_rate)
    is_rate_low = not expected_peak and start_rate < UNKNOWN_START_RATE
    lowest_rate, growth = min(1.0, rate / SLOWEST_START_DIVISOR), 2.0 if is_rate_low else 1.5
    windows, spent_seconds = list[WarmUpWindow](), 0.0
    for _ in range(max_windows):
        if len(windows) >= 2 and spent_seconds >= max_seconds:
            break
        lookups_before = count_lookups()
        reading = probe(rate, compute_window_seconds(rate, settling_seconds))
        if reading.is_rate_too_low:  # without any load, the window does not describe the stack
            if rate >= ceiling:
                break
            rate = min(rate * growth, ceiling)
            continue
        spent_seconds += reading.seconds  # visits may need a longer window
        windows.append(_build_window(reading, lookups_before, count_lookups()))
        is_overload = windows[-1].is_overloaded and reading.stolen <= HIGH_STEAL_SHARE
        is_rate_low = is_rate_low and not is_overload and rate < min(ceiling, UNKNOWN_START_RATE)
        if is_futile(windows) or (has_settled(windows, rise_windows) and not is_rate_low):
            break
        if is_overload:
            rate, ceiling = min(max(rate / 2, lowest_rate), max_rate), EXPECTED_PEAK_SHARE * rate
            growth = 1.5
        elif not windows[-1].is_overloaded:
            rate = min(rate * growth, ceiling)
    return WarmUpResult(has_settled(windows, rise_windows), tuple(windows))


def compute_window_seconds(rate: float, settling_seconds: float) -> float:
    """Return the length in seconds of a window at ``rate``. Windows at low rates are longer."""
    return max(
        WINDOW_SECONDS,
        min(MIN_WINDOW_REQUESTS / rate, MAX_WINDOW_SECONDS),
        min(SETTLED_WINDOW_REQUESTS / rate, settling_seconds),
    )


def has_settled(windows: Sequence[WarmUpWindow], rise_windows: int) -> bool:
    """True if the last two windows agree and the hit rate no longer rises."""
    return (
        len(windows) > 1
        and is_steady(windows[-2], windows[-1])
        and not is_cache_filling(windows, rise_windows)
    )


def is_steady(earlier: WarmUpWindow, later: WarmUpWindow) -> bool:
    """True if latency and hit rate hardly differ between two consecutive windows."""
    if (
        earlier.is_overloaded
        or later.is_overloaded
        or earlier.median_latency is None
        or later.median_latency is None
    ):
        return False
    is_latency_steady = abs(later.median_latency - earlier.median_latency) <= max(
        LATENCY_TOLERANCE * earlier.median_latency, 0.001
    )
    if earlier.hit_rate is None or later.hit_rate is None:
        return is_latency_steady
    return is_latency_steady and abs(later.hit_rate - earlier.hit_rate) < HIT_RATE_TOLERANCE


def is_futile(windows: Sequence[WarmUpWindow]) -> bool:
    """True if further windows would not warm the stack, because the stack hardly responds or fails at
    any load.
    """
    is_unresponsive = (
        len(windows) > 1 and windows[-1].is_unresponsive and windows[-2].is_unresponsive
    )
    return is_unresponsive or fails_at_any_load(windows)


def fails_at_any_load(windows: Sequence[WarmUpWindow]) -> bool:
    """True if almost as many requests fail at a quarter of the load, so the load is not the cause.

    Late responses do not count as failed, because a cold cache causes late responses at any load.
    """
    last_windows = windows[-FUTILE_WINDOWS:]
    if len(last_windows) < FUTILE_WINDOWS or not all(
        window.is_overloaded for window in last_windows
    ):
        return False
    is_rate_halved = all(
        later.rate <= earlier_window.rate / 2 for earlier_window, later in pairwise(last_windows)
    )
    return is_rate_halved and last_windows[-1].failed_share > max(
        OVERLOAD_VIOLATION_SHARE, FUTILE_FAILURE_RATIO * last_windows[0].failed_share
    )


def is_cache_filling(windows: Sequence[WarmUpWindow], rise_windows: int = RISE_WINDOWS) -> bool:
    """True if the cache is still filling: its hit rate rose, and never fell, over the last windows.

    At a low rate, a cache fills so slowly that two windows agree long before the cache is warm. A
    settled hit rate falls about as often as it rises. With too few windows, the cache is assumed to be
    filling. A window in which a cache did not report its counters is skipped.
    """
    if all(window.hit_rate is None for window in windows[-2:]):
        return False
    known_rates = [window.hit_rate for window in windows if window.hit_rate is not None]
    known_rates = known_rates[-rise_windows - 1 :]
    if len(known_rates) <= rise_windows:
        return True
    return known_rates[-1] - known_rates[0] > MIN_HIT_RISE and all(
        a <= b for a, b in pairwise(known_rates)
    )


def _build_window(
    reading: Reading, lookups_before: tuple[int, int] | None, lookups_after: tuple[int, int] | None
) -> WarmUpWindow:
    hit_rate = None
    if lookups_before is not None and lookups_after is not None:
        hits, misses = lookups_after[0] - lookups_before[0], lookups_after[1] - lookups_before[1]
        hit_rate = hits / (hits + misses) if hits + misses > 0 else None
    is_overloaded, failed_share = (
        reading.violation_fraction > OVERLOAD_VIOLATION_SHARE,
        reading.error_count / max(reading.intended, 1),
    )
    return WarmUpWindow(
        reading.rate, is_overloaded, reading.percentile(0.5), hit_rate, failed_share
    )


DRAINED_REQUESTS = 3
DRAIN_SECONDS = 10.0


def wait_until_drained(
    measure_latency: Callable[[], float | None],
    latency_limit: float,
    seconds: float = DRAIN_SECONDS,
    pause: float = 0.0,
) -> float | None:
    """Send requests one by one until ``DRAINED_REQUESTS`` consecutive requests return within
    ``latency_limit`` seconds. Return the lowest of their latencies in seconds.

    ``measure_latency()`` sends one request and returns its latency in seconds, or ``None`` without a
    correct response. ``pause`` is the time between two requests in seconds. Returns ``None`` if the
    backlog did not drain within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    quick_latencies = list[float]()
    while len(quick_latencies) < DRAINED_REQUESTS:
        if time.monotonic() > deadline:
            return None
        latency_seconds = measure_latency()
        time.sleep(pause)
        if latency_seconds is not None and latency_seconds <= latency_limit:
            quick_latencies.append(latency_seconds)
        else:
            quick_latencies.clear()
    return min(quick_latencies)
