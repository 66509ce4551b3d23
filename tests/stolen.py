"""Measurements of real servers on a machine with occasional CPU steal.

Such a test may fail because of CPU steal, like a reading (``autotune.measure.steal``). It is run
again only if there was much CPU steal during the test. A failure without CPU steal counts. pytest's
summary shows the number of repeated attempts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.measure.steal import HIGH_STEAL_SHARE
from autotune.monitor.procfs import CPU_KINDS

ATTEMPTS = 2  # additional attempts
PAUSE = 30.0  # seconds between attempts

Spent = tuple[int, int]  # stolen ticks and all ticks of all CPUs since boot
_BEGAN = pytest.StashKey[Spent]()


def watch(item: pytest.Item) -> None:
    """Repeat this test if it fails during CPU steal."""
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout"))
    # The time limit applies to all attempts together.
    item.add_marker(pytest.mark.timeout((1 + ATTEMPTS) * (limit + PAUSE)), append=False)
    item.add_marker(
        pytest.mark.flaky(
            reruns=ATTEMPTS,
            reruns_delay=PAUSE,
            condition=lambda: fraction(item.stash[_BEGAN], spent()) > HIGH_STEAL_SHARE,
        )
    )


def begins(item: pytest.Item) -> None:
    """Record the start of an attempt."""
    item.stash[_BEGAN] = spent()


def spent() -> Spent:
    return counted(Path("/proc/stat").read_text())


def counted(stat: str) -> Spent:
    by_kind = ticks(stat)
    return by_kind["steal"], sum(by_kind.values())


def ticks(stat: str) -> dict[str, int]:
    """Return the ticks of all CPUs since boot by kind, from the text of ``/proc/stat``."""
    of_all = stat.partition("\n")[0].split()[1:]
    # Further kinds are for guests, whose time `user` already contains.
    return dict(zip(CPU_KINDS, map(int, of_all), strict=False))


def fraction(began: Spent, ended: Spent) -> float:
    """Return the fraction of CPU steal between two times."""
    return (ended[0] - began[0]) / max(1, ended[1] - began[1])
