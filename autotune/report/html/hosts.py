"""What the hosts did in the readings nearest below the peak: baseline beside best."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from autotune.report.html.timeline import fraction, numbers_of
from autotune.report.studies import Study
from autotune.report.tally import WARM_UP

SHOWN = ("cpu", "steal", "load", "memory", "sockets", "time_wait", "network")
NEAREST = 3


def at_peak(study: Study) -> dict[str, dict[str, dict[str, float]]]:
    """Side → host → figure, the mean over the highest readings that kept within the objective.

    Empty for studies that recorded nothing of their hosts.
    """
    found = {}
    for label, numbers in numbers_of(study).items():
        readings = [r for r in study.readings if r["trial"] in numbers and _speaks(r, study)]
        nearest = sorted(readings, key=lambda r: -float(r["rate"]))[:NEAREST]
        hosts = sorted({host for reading in nearest for host in reading["hosts"]})
        means = {host: _means([r["hosts"][host] for r in nearest if host in r["hosts"]])
                 for host in hosts}  # fmt: skip
        if means:
            found[label] = means
    return found


def _speaks(reading: Mapping[str, Any], study: Study) -> bool:
    met = not reading.get("limited") and fraction(reading) <= study.target.slo.slo.allowed
    return met and reading.get("purpose") != WARM_UP and bool(reading.get("hosts"))


def _means(seen: list[Mapping[str, float]]) -> dict[str, float]:
    return {
        key: round(fmean(one[key] for one in seen), 3)
        for key in SHOWN
        if all(key in one for one in seen)
    }
