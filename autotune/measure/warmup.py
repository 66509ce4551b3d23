"""Warm-up: load that does not count, until caches, pools and connections have settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.measure.reading import Reading
from autotune.measure.steal import MUCH

WINDOW = 1.0  # seconds
OVERLOADED = 0.1  # fraction of violations above which a window was overloaded
MOST_WINDOWS = 20
GENTLE = 200.0  # first rate in requests/s without an expected peak …
UNKNOWN = 1000.0  # … and the highest rate while the stack keeps up
SHARE = 0.6  # share of the expected peak: busy, not overloaded
SAME_HITS = 0.01  # windows agree if their hit rates differ by less than a point …
STEPS = 3  # … and the hit rate did not keep rising over this many steps …
PREFILLED_STEPS = 2  # (for caches that were filled beforehand and start almost full)
LEAST_RISE = 0.001  # … by more than this in total …
SAME_LATENCY = 0.25  # … and their median latencies differ by less than a quarter
# Over this many windows, each at half the previous load, the failed fraction stays above this share.
# Less load does not help then.
NO_BETTER, LESS = 3, 2 / 3


@dataclass(frozen=True)
class Window:
    """One window of warm-up load.

    ``hits`` is the cache's hit rate in the window, ``None`` without a cache. ``failed`` is the fraction
    of requests without a correct answer. A late correct answer does not count as failed.
    """

    rate: float
    overloaded: bool
    median: float | None
    hits: float | None
    failed: float = 0.0

    @property
    def dead(self) -> bool:
        """True if fewer than half of the requests got a correct answer: more load warms nothing."""
        return self.overloaded and self.median is None


@dataclass(frozen=True)
class WarmUpResult:
    """The result of a warm-up; ``settled`` is false if the windows ran out first."""

    settled: bool
    windows: tuple[Window, ...]

    @property
    def hits(self) -> float | None:
        """The cache's hit rate in the last window; ``None`` without a cache."""
        return self.windows[-1].hits if self.windows else None

    @property
    def carried(self) -> float | None:
        """The last rate in requests/s with which the stack kept up."""
        rates = [window.rate for window in self.windows if not window.overloaded]
        return rates[-1] if rates else None

    @property
    def failed_at(self) -> float | None:
        """The rate in requests/s at which the warm-up was given up as futile, or ``None``."""
        return self.windows[-1].rate if futile(self.windows) else None


def warm_up(
    probe: Callable[[float, float], Reading],
    lookups: Callable[[], tuple[int, int] | None],
    expected: float | None,
    *,
    max_rate: float,
    steps: int = STEPS,
    most: int = MOST_WINDOWS,
) -> WarmUpResult:
    """Load the stack until two consecutive windows agree and the hit rate no longer rises.

    ``probe(rate, seconds)`` makes the load. ``lookups()`` returns the cache's hits and misses so far.
    ``expected`` is the expected peak in requests/s. ``steps`` is the number of steps for which a hit rate
    must rise to count as climbing, and ``most`` the maximum number of windows.

    An overloaded stack gets half the load, and more again once it keeps up, because a cold cache warms
    faster with more requests. The load stays well below the overload. After CPU steal, the same load is
    tried again. If as many requests fail at a quarter of the load, the warm-up stops, because another
    cause occupies the workers.
    """
    ceiling = min(max_rate, SHARE * expected if expected else UNKNOWN)
    rate = ceiling if expected else min(ceiling, GENTLE)
    windows: list[Window] = []
    while len(windows) < most:
        before = lookups()
        reading = probe(rate, WINDOW)
        windows.append(_window(reading, before, lookups()))
        if len(windows) > 1 and agree(windows[-2], windows[-1]) and not climbing(windows, steps):
            return WarmUpResult(settled=True, windows=tuple(windows))
        if futile(windows):
            return WarmUpResult(settled=False, windows=tuple(windows))
        if windows[-1].overloaded and reading.stolen <= MUCH:
            rate, ceiling = min(max(rate / 2, 1.0), max_rate), SHARE * rate
        elif not windows[-1].overloaded:
            rate = min(rate * 1.5, ceiling)
    return WarmUpResult(settled=False, windows=tuple(windows))


def agree(earlier: Window, later: Window) -> bool:
    """True if latency and hit rate did not change from one window to the next."""
    if earlier.overloaded or later.overloaded or earlier.median is None or later.median is None:
        return False
    still = abs(later.median - earlier.median) <= max(SAME_LATENCY * earlier.median, 0.001)
    if earlier.hits is None or later.hits is None:
        return still
    return still and abs(later.hits - earlier.hits) < SAME_HITS


def futile(windows: Sequence[Window]) -> bool:
    """True if further windows warm nothing: the stack hardly answers, or fails at any load."""
    dead = len(windows) > 1 and windows[-1].dead and windows[-2].dead
    return dead or fails_at_any_load(windows)


def fails_at_any_load(windows: Sequence[Window]) -> bool:
    """True if almost as many requests fail at a quarter of the load, so load is not the cause.

    Late requests do not count, because a cold cache makes them late at any load.
    """
    last = windows[-NO_BETTER:]
    if len(last) < NO_BETTER or not all(window.overloaded for window in last):
        return False
    halved = all(later.rate <= earlier.rate / 2 for earlier, later in pairwise(last))
    return halved and last[-1].failed > max(OVERLOADED, LESS * last[0].failed)


def climbing(windows: Sequence[Window], steps: int = STEPS) -> bool:
    """True if the cache still fills: its hit rate never fell over the last windows.

    At a low rate a cache fills so slowly that two windows agree long before it is warm. A settled hit
    rate rises and falls. Too few windows count as climbing.
    """
    hits = [window.hits for window in windows[-steps - 1 :]]
    rates = [hit for hit in hits if hit is not None]
    if len(rates) < len(hits):
        return False
    if len(rates) <= steps:
        return True
    return rates[-1] - rates[0] > LEAST_RISE and all(a <= b for a, b in pairwise(rates))


def _window(
    reading: Reading, before: tuple[int, int] | None, after: tuple[int, int] | None
) -> Window:
    hits = None
    if before is not None and after is not None:
        gained, lost = after[0] - before[0], after[1] - before[1]
        hits = gained / (gained + lost) if gained + lost > 0 else None
    overloaded, failed = reading.fraction > OVERLOADED, reading.failed / max(reading.intended, 1)
    return Window(reading.rate, overloaded, reading.percentile(0.5), hits, failed)


IN_A_ROW = 3
SECONDS = 10.0


def drain(
    latency: Callable[[], float | None],
    limit: float,
    seconds: float = SECONDS,
    pause: float = 0.0,
) -> bool:
    """Send requests one by one until ``IN_A_ROW`` of them return within ``limit`` seconds.

    ``latency()`` sends one request and returns its seconds, or ``None`` without a correct answer.
    ``pause`` is the time between two requests in seconds. The result is true if the backlog was gone
    within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    quick = 0
    while quick < IN_A_ROW:
        if time.monotonic() > deadline:
            return False
        took = latency()
        time.sleep(pause)
        quick = quick + 1 if took is not None and took <= limit else 0
    return True
