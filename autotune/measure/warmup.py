"""Load that is not counted: until caches, pools and connections have settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.measure.reading import Reading
from autotune.measure.steal import MUCH

WINDOW = 1.0  # seconds
OVERLOADED = 0.1  # fraction of violations above which a window was too much load
MOST_WINDOWS = 20
GENTLE = 200.0  # requests/s to begin with when nothing is known yet …
UNKNOWN = 1000.0  # … and to grow to while the stack keeps up
SHARE = 0.6  # of the expected peak: busy, not overloaded
SAME_HITS = 0.01  # consecutive windows agree if their hit rates differ by less than a point …
STEPS = 3  # … and the hit rate has not kept rising over so many steps …
PREFILLED_STEPS = 2  # (for caches that were filled beforehand: they start as full as they end)
LEAST_RISE = 0.001  # … by more than this in all …
SAME_LATENCY = 0.25  # … and their median latencies differ by less than a quarter
# Less load does not help if, over so many windows, each at half the load of the one before, the
# fraction of failed requests stays above this part of what it was.
NO_BETTER, LESS = 3, 2 / 3


@dataclass(frozen=True)
class Window:
    """One stretch of warm-up load. ``hits`` is the cache's hit rate in it, ``None`` without one;
    ``failed`` the fraction of requests that got no right answer, however late."""

    rate: float
    overloaded: bool
    median: float | None
    hits: float | None
    failed: float = 0.0

    @property
    def dead(self) -> bool:
        """Not even half of the requests got a right answer: more load will not warm anything."""
        return self.overloaded and self.median is None


@dataclass(frozen=True)
class WarmUpResult:
    """How the warm-up went; ``settled`` is false when the windows ran out first."""

    settled: bool
    windows: tuple[Window, ...]

    @property
    def hits(self) -> float | None:
        """The cache's hit rate in the last window; ``None`` without a cache."""
        return self.windows[-1].hits if self.windows else None

    @property
    def carried(self) -> float | None:
        """The last rate the stack kept up with, in requests/s."""
        rates = [window.rate for window in self.windows if not window.overloaded]
        return rates[-1] if rates else None

    @property
    def failed_at(self) -> float | None:
        """The rate in requests/s at which the warm-up was given up as futile; else ``None``."""
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
    """Load the stack until two consecutive windows agree and the hit rate no longer climbs.

    ``probe(rate, seconds)`` makes the load, ``lookups()`` gives the cache's hits and misses so far,
    ``expected`` is the expected peak in requests/s, ``steps`` how long a hit rate must keep rising to
    count as climbing, ``most`` the largest number of windows. A stack that does not keep up gets half
    the load, and more again once it does (a cold cache warms faster the more requests it gets), but
    never again close to what was too much. Where its CPU time was stolen, the same load is tried again.
    Where as many requests fail at a quarter of the load, no warm-up helps: something else holds the
    workers.
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
    """Whether nothing moved from one window to the next."""
    if earlier.overloaded or later.overloaded or earlier.median is None or later.median is None:
        return False
    still = abs(later.median - earlier.median) <= max(SAME_LATENCY * earlier.median, 0.001)
    if earlier.hits is None or later.hits is None:
        return still
    return still and abs(later.hits - earlier.hits) < SAME_HITS


def futile(windows: Sequence[Window]) -> bool:
    """Whether no further window would warm anything: the stack hardly answers, or fails at any load."""
    dead = len(windows) > 1 and windows[-1].dead and windows[-2].dead
    return dead or fails_at_any_load(windows)


def fails_at_any_load(windows: Sequence[Window]) -> bool:
    """Whether hardly fewer requests fail at a quarter of the load, so that load is not the cause. Late
    requests do not count, because a cold cache makes them late at any load."""
    last = windows[-NO_BETTER:]
    if len(last) < NO_BETTER or not all(window.overloaded for window in last):
        return False
    halved = all(later.rate <= earlier.rate / 2 for earlier, later in pairwise(last))
    return halved and last[-1].failed > max(OVERLOADED, LESS * last[0].failed)


def climbing(windows: Sequence[Window], steps: int = STEPS) -> bool:
    """Whether the cache still fills: its hit rate never fell over the last windows.

    At a low rate a cache fills so slowly that two windows agree long before it is warm; a hit rate
    that has settled goes up and down. Too few windows to tell count as climbing.
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
    """Send requests one by one until ``IN_A_ROW`` of them come back within ``limit`` seconds.

    ``latency()`` sends one request and returns its seconds, ``None`` if it was not answered right.
    ``pause`` seconds pass between two of them. True if the backlog was gone before
    ``seconds`` had passed.
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
