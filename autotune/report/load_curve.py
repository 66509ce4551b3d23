"""The load curve of a configuration: what it delivered rate by rate, and what its hosts did.

Readings at nearly the same rate are one load step. Their counts and histograms are summed, for
percentiles cannot be averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any

from autotune.report.trials import WARM_UP
from autotune.study.readings import reading_of
from autotune.target.slo import Slo

Readings = Iterable[Mapping[str, Any]]

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# Readings at rates this close together (log units) are one load step.
WIDTH = 0.04
HOST_FIGURES = ("cpu", "steal", "load", "memory", "sockets", "time_wait", "network")
NEAREST = 3  # readings below the capacity that say what hosts did there
DISTURBED = "disturbed"


@dataclass(frozen=True)
class LoadStep:
    """All readings at about one ``rate`` (requests/s, the mean by requests of its logarithm).

    ``seconds`` is their length in all. ``histogram`` maps the upper edge of a bin, in milliseconds,
    to the right answers in it. ``truncated`` readings end on clear failure; ``limited`` ones say
    nothing about the server, because of the generator or of what disturbed the hosts. Neither
    shares a step with whole ones, nor has percentiles.
    """

    rate: float
    readings: int
    seconds: float
    intended: int
    violations: int
    errors: Mapping[str, int]
    histogram: Mapping[float, int]
    truncated: bool = False
    limited: str | None = None

    @property
    def goodput(self) -> float | None:
        """Requests/s answered right and in time. ``None`` where the load was not offered for all
        of its seconds."""
        whole = not self.truncated and self.limited is None and self.seconds > 0
        return (self.intended - self.violations) / self.seconds if whole else None

    def percentile(self, percent: float) -> float | None:
        """Milliseconds within which this share of the *intended* requests was answered right;
        ``None`` where fewer were."""
        if self.truncated or self.limited is not None:
            return None
        return of_histogram(self.histogram, self.intended, percent / 100)

    @property
    def failed(self) -> int:
        """Violations that are errors, not lateness."""
        return sum(self.errors.values())

    @property
    def is_valid(self) -> bool:
        """Whether it says anything about the server."""
        return self.limited is None


def load_curve(readings: Readings) -> tuple[LoadStep, ...]:
    """The load steps of recorded readings, from the lowest rate up; warm-up is none."""
    by_kind: dict[tuple[int, bool, str], list[Mapping[str, Any]]] = {}
    for reading in readings:
        if reading.get("purpose") == WARM_UP or not reading["intended"]:
            continue
        place = round(log(reading["rate"]) / WIDTH)
        invalid = reading.get("limited") or (DISTURBED if reading.get("disturbed") else "")
        kind = (place, bool(reading.get("truncated")), invalid)
        by_kind.setdefault(kind, []).append(reading)
    return tuple(sorted(map(_load_step, by_kind.values()), key=lambda step: step.rate))


def of_histogram(histogram: Mapping[float, int], intended: int, q: float) -> float | None:
    """The upper edge of the bin that holds the quantile; ``None`` beyond what was observed."""
    count = 0
    for edge in sorted(histogram):
        count += histogram[edge]
        if count >= q * intended:
            return edge
    return None


def _load_step(readings: list[Mapping[str, Any]]) -> LoadStep:
    intended = sum(reading["intended"] for reading in readings)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    for reading in readings:
        errors.update(reading.get("errors") or {})
        histogram.update({float(edge): n for edge, n in (reading.get("histogram") or {}).items()})
    logs = sum(log(reading["rate"]) * reading["intended"] for reading in readings)
    first = readings[0]
    return LoadStep(
        rate=exp(logs / intended),
        readings=len(readings),
        seconds=sum(reading["seconds"] for reading in readings),
        intended=intended,
        violations=sum(reading["violations"] for reading in readings),
        errors={kind: errors[kind] for kind in sorted(errors) if errors[kind]},
        histogram=histogram,
        truncated=bool(first.get("truncated")),
        limited=first.get("limited") or first.get("disturbed"),
    )


def hosts_at_capacity(readings: Readings, slo: Slo) -> dict[str, dict[str, float]]:
    """Host → figure, the mean over the highest readings that met the SLO.

    ``cpu``, ``steal`` and ``memory`` are fractions, ``load`` the load average, ``network`` bytes/s.
    Empty where nothing was recorded of the hosts, or no reading met the SLO.
    """
    met = [reading for reading in readings if _met(reading, slo)]
    nearest = sorted(met, key=lambda reading: -float(reading["rate"]))[:NEAREST]
    hosts = sorted({host for reading in nearest for host in reading["hosts"]})
    return {host: _means([r["hosts"][host] for r in nearest if host in r["hosts"]])
            for host in hosts}  # fmt: skip


def hosts_watched(readings: Readings) -> bool:
    """Whether anything was recorded of the hosts, whether the SLO was met or not."""
    return any(reading.get("hosts") for reading in readings)


def _met(reading: Mapping[str, Any], slo: Slo) -> bool:
    measured = reading.get("purpose") != WARM_UP and bool(reading.get("hosts"))
    return measured and slo.met(reading_of(reading))


def _means(of_host: list[Mapping[str, float]]) -> dict[str, float]:
    return {
        key: round(fmean(usage[key] for usage in of_host), 3)
        for key in HOST_FIGURES
        if all(key in usage for usage in of_host)
    }
