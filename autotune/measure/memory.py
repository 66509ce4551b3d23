"""What processes were seen to occupy. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.measure.diagnosis import WatchedReading


def worst_rss(watched: Iterable[WatchedReading]) -> dict[str, int]:
    """The largest resident size of one process, in bytes by `tier.service`, over these readings."""
    worst: dict[str, int] = {}
    for one in watched:
        for samples in one.seen.samples.values():
            for sample in samples:
                for part, processes in sample.processes.items():
                    tier, _, rest = part.partition(".")
                    name = f"{tier}.{rest.rpartition('.')[2]}"
                    worst[name] = max(processes.rss, worst.get(name, 0))
    return worst
