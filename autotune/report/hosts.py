"""What the hosts did in the readings nearest below a peak."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from autotune.report.ladder import Readings
from autotune.report.reading_counts import WARM_UP
from autotune.study.readings import reading_of
from autotune.target.slo import Slo

SHOWN = ("cpu", "steal", "load", "memory", "sockets", "time_wait", "network")
NEAREST = 3


def at_peak(readings: Readings, slo: Slo) -> dict[str, dict[str, float]]:
    """Host → figure, the mean over the highest readings that kept within the objective.

    ``cpu``, ``steal`` and ``memory`` are fractions, ``load`` the load average, ``network`` bytes/s.
    Empty where nothing was recorded of the hosts, or no reading met the objective.
    """
    met = [reading for reading in readings if _met(reading, slo)]
    nearest = sorted(met, key=lambda reading: -float(reading["rate"]))[:NEAREST]
    hosts = sorted({host for reading in nearest for host in reading["hosts"]})
    return {host: _means([r["hosts"][host] for r in nearest if host in r["hosts"]])
            for host in hosts}  # fmt: skip


def seen(readings: Readings) -> bool:
    """Whether anything was recorded of the hosts, within the objective or not."""
    return any(reading.get("hosts") for reading in readings)


def _met(reading: Mapping[str, Any], slo: Slo) -> bool:
    measured = reading.get("purpose") != WARM_UP and bool(reading.get("hosts"))
    return measured and slo.met(reading_of(reading))


def _means(of_host: list[Mapping[str, float]]) -> dict[str, float]:
    return {
        key: round(fmean(one[key] for one in of_host), 3)
        for key in SHOWN
        if all(key in one for one in of_host)
    }
