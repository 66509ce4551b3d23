"""The load curve of a configuration: what it delivered rate by rate, and what its hosts did.

Readings at nearly the same rate are one load step. Their counts and histograms are summed, for
percentiles cannot be averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import Any

from autotune.measure.reading import Reading
from autotune.report.trials import WARM_UP
from autotune.study.store import reading_of
from autotune.target.slo import Slo

Readings = Iterable[Mapping[str, Any]]

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# Readings at rates this close together (log units) are one load step.
WIDTH = 0.04
HOST_FIGURES = ("cpu", "steal", "load", "memory", "sockets", "time_wait", "network")
NEAREST = 3  # readings below the capacity that say what hosts did there


@dataclass(frozen=True)
class LoadStep:
    """``pooled`` sums up so many ``readings`` at about one rate.

    Readings that were cut short on clear failure are steps of their own, and so are those that are
    invalid for the server; such steps have no goodput and no percentiles.
    """

    readings: int
    pooled: Reading

    @property
    def limited(self) -> str | None:
        """Why it is invalid for the server: the generator, or what disturbed the hosts."""
        return self.pooled.limited or self.pooled.disturbed

    @property
    def complete(self) -> bool:
        """Whether the step is valid for the server, and its load was offered for all of its seconds."""
        return self.pooled.is_valid and not self.pooled.truncated

    @property
    def goodput(self) -> float | None:
        """Requests/s answered right and in time."""
        return self.pooled.goodput if self.complete and self.pooled.seconds > 0 else None

    def percentile(self, percent: float) -> float | None:
        """Milliseconds within which this share of the *intended* requests was answered right;
        ``None`` where fewer were."""
        return milliseconds(self.pooled.percentile(percent / 100)) if self.complete else None


def load_curve(readings: Readings) -> tuple[LoadStep, ...]:
    """The load steps of recorded readings, from the lowest rate up, without the warm-up."""
    by_kind: dict[tuple[int, bool, str], list[Reading]] = {}
    for record in readings:
        if record.get("purpose") == WARM_UP or not record["intended"]:
            continue
        place = round(log(record["rate"]) / WIDTH)
        invalid = record.get("limited") or ("disturbed" if record.get("disturbed") else "")
        kind = (place, bool(record.get("truncated")), invalid)
        by_kind.setdefault(kind, []).append(reading_of(record))
    steps = [LoadStep(len(pooled), Reading.pooled(pooled)) for pooled in by_kind.values()]
    return tuple(sorted(steps, key=lambda step: step.pooled.rate))


def milliseconds(seconds: float | None) -> float | None:
    """As histograms are recorded: without the error of dividing and multiplying by a thousand."""
    return None if seconds is None else round(1000 * seconds, 9)


def hosts_at_capacity(readings: Readings, slo: Slo) -> dict[str, dict[str, float]]:
    """Host → figure, the mean over the highest readings that met the SLO.

    ``cpu``, ``steal`` and ``memory`` are fractions, ``load`` the load average, ``network`` bytes/s.
    Empty where nothing was recorded of the hosts, or no reading met the SLO.
    """
    met = [
        reading
        for reading in readings
        if reading.get("purpose") != WARM_UP
        and reading.get("hosts")
        and slo.met(reading_of(reading))
    ]
    nearest = sorted(met, key=lambda reading: -float(reading["rate"]))[:NEAREST]
    hosts = sorted({host for reading in nearest for host in reading["hosts"]})
    return {host: _means([r["hosts"][host] for r in nearest if host in r["hosts"]])
            for host in hosts}  # fmt: skip


def _means(usages: list[Mapping[str, float]]) -> dict[str, float]:
    return {
        key: round(fmean(usage[key] for usage in usages), 3)
        for key in HOST_FIGURES
        if all(key in usage for usage in usages)
    }


def hosts_watched(readings: Readings) -> bool:
    """Whether anything was recorded of the hosts, whether the SLO was met or not."""
    return any(reading.get("hosts") for reading in readings)
