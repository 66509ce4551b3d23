"""Single latencies into the bins of a reading, none of them on the wrong side of the objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil

FINE = 100.0  # bins that the objective's limit spans at least …
WIDEST = 0.001  # … and no bin is wider (seconds)


def binned(latencies: Iterable[float], limit: float) -> dict[float, int]:
    """Upper edge → count, all in seconds. What was within ``limit`` is in a bin that ends by then,
    so the late ones are counted exactly."""
    width = min(WIDEST, limit / FINE)
    found: Counter[float] = Counter()
    for latency in latencies:
        edge = round(max(1, ceil(latency / width - 1e-9)) * width, 9)
        found[min(edge, limit) if latency <= limit else max(edge, latency)] += 1
    return dict(sorted(found.items()))
