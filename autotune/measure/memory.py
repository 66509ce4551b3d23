"""What processes were seen to occupy. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.measure.diagnosis import WatchedReading


def worst_rss(watched: Iterable[WatchedReading]) -> dict[str, int]:
    """The largest resident size of one process, in bytes by `tier.service`, over these readings."""
    worst: dict[str, int] = {}
    for one in watched:
        for footprint in one.hosts.values():
            for part, size in footprint.rss.items():
                tier, _, rest = part.partition(".")
                name = f"{tier}.{rest.rpartition('.')[2]}"
                worst[name] = max(size, worst.get(name, 0))
    return worst
