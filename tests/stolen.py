"""Measurements of real servers on a machine whose CPUs others take away now and then.

Such a test fails for want of CPU time as a reading does, and is run again
(``autotune.measure.steal``): only when much of that time was stolen while it ran. A test that fails
on a calm machine has failed. Every other attempt is counted in what pytest says at the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.measure.steal import HIGH_STEAL_SHARE
from autotune.monitor.procfs import CPU_KINDS

ATTEMPTS = 2  # more
PAUSE = 30.0  # seconds between them

Spent = tuple[int, int]  # ticks stolen and ticks in all, of every CPU since boot
_BEGAN = pytest.StashKey[Spent]()


def watch(item: pytest.Item) -> None:
    """Takes this test again if it fails while others took the machine's CPU time."""
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout"))
    # The time limit is that of all its attempts together.
    item.add_marker(pytest.mark.timeout((1 + ATTEMPTS) * (limit + PAUSE)), append=False)
    item.add_marker(
        pytest.mark.flaky(
            reruns=ATTEMPTS,
            reruns_delay=PAUSE,
            condition=lambda: fraction(item.stash[_BEGAN], spent()) > HIGH_STEAL_SHARE,
        )
    )


def begins(item: pytest.Item) -> None:
    """An attempt starts."""
    item.stash[_BEGAN] = spent()


def spent() -> Spent:
    return counted(Path("/proc/stat").read_text())


def counted(stat: str) -> Spent:
    by_kind = ticks(stat)
    return by_kind["steal"], sum(by_kind.values())


def ticks(stat: str) -> dict[str, int]:
    """Those of every CPU since boot, by kind, of ``/proc/stat``."""
    of_all = stat.partition("\n")[0].split()[1:]
    # More kinds follow, for guests: that time is in `user` already.
    return dict(zip(CPU_KINDS, map(int, of_all), strict=False))


def fraction(began: Spent, ended: Spent) -> float:
    """Of the CPU time between the two, what was stolen."""
    return (ended[0] - began[0]) / max(1, ended[1] - began[1])
