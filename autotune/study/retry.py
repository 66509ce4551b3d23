"""One reading, on record before anybody acts on it, and taken again if it was disturbed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.diagnose.diagnosis import WatchedReading
from autotune.measure.calm import LONGEST, PAUSE
from autotune.measure.reading import Reading
from autotune.study.records import Trial

if TYPE_CHECKING:
    from autotune.study.trial import Bench


def take(
    bench: Bench,
    trial: Trial,
    purpose: str,
    rate: float,
    seconds: float,
    *,
    passes: Callable[[Reading], bool],
) -> WatchedReading:
    """Offer ``rate`` requests/s for ``seconds``.

    A reading that does not pass while the machine below took the hosts' CPU time is kept but not
    returned: after a pause comes another one. When the study's patience (`Calm.patient`) is at its
    end, the stack is measured as it is.
    """
    pause = PAUSE
    while True:
        began = time.monotonic()
        watched = _offered(bench, rate, seconds)
        why = _disturbed(bench, watched, passes)
        watched = replace(watched, reading=replace(watched.reading, disturbed=why))
        bench.store.reading(trial, watched.reading, purpose, watched.hosts)
        bench.store.spent(bench.clock.collect())
        bench.narrator.reading(trial, watched.reading, purpose)
        if why is None:
            bench.calm = bench.calm.after(watched.hosts)
            return watched
        bench.narrator.note(f"{why}: this reading does not count, another in {pause:g} s")
        bench.equipment.drain()
        time.sleep(pause)
        bench.calm = bench.calm.after(watched.hosts, time.monotonic() - began)
        pause = min(2 * pause, LONGEST)


def _offered(bench: Bench, rate: float, seconds: float) -> WatchedReading:
    with bench.clock.on("load"):
        return bench.equipment.take(rate, seconds)


def _disturbed(
    bench: Bench, watched: WatchedReading, passes: Callable[[Reading], bool]
) -> str | None:
    if passes(watched.reading) or not bench.calm.patient(bench.store.state.elapsed):
        return None
    return bench.calm.disturbed(watched.hosts)
