"""The ladder of a peak search: what one configuration delivered, rate by rate.

Readings at nearly the same rate are one rung. Their counts and histograms are summed, for
percentiles cannot be averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

from autotune.report.reading_counts import WARM_UP

Readings = Iterable[Mapping[str, Any]]

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# Readings at rates this close together (log units) are one rung.
WIDTH = 0.04
DISTURBED = "disturbed"


@dataclass(frozen=True)
class Rung:
    """All readings at about one ``rate`` (requests/s, the mean by requests of its logarithm).

    ``seconds`` is their length in all. ``histogram`` maps the upper edge of a bin, in milliseconds,
    to the right answers in it. ``truncated`` readings end on clear failure; ``limited`` ones say
    nothing about the server, because of the generator or of what disturbed the hosts. Neither
    shares a rung with whole ones, nor has percentiles.
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


def ladder(readings: Readings) -> tuple[Rung, ...]:
    """The rungs of readings as they are recorded, from the lowest rate up; warm-up is none."""
    together: dict[tuple[int, bool, str], list[Mapping[str, Any]]] = {}
    for reading in readings:
        if reading.get("purpose") == WARM_UP or not reading["intended"]:
            continue
        place = round(log(reading["rate"]) / WIDTH)
        silent = reading.get("limited") or (DISTURBED if reading.get("disturbed") else "")
        kind = (place, bool(reading.get("truncated")), silent)
        together.setdefault(kind, []).append(reading)
    return tuple(sorted(map(_rung, together.values()), key=lambda rung: rung.rate))


def of_histogram(histogram: Mapping[float, int], intended: int, q: float) -> float | None:
    """The upper edge of the bin that holds the quantile; ``None`` beyond what was observed."""
    seen = 0
    for edge in sorted(histogram):
        seen += histogram[edge]
        if seen >= q * intended:
            return edge
    return None


def _rung(together: list[Mapping[str, Any]]) -> Rung:
    intended = sum(reading["intended"] for reading in together)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    for reading in together:
        errors.update(reading.get("errors") or {})
        histogram.update({float(edge): n for edge, n in (reading.get("histogram") or {}).items()})
    logs = sum(log(reading["rate"]) * reading["intended"] for reading in together)
    first = together[0]
    return Rung(
        rate=exp(logs / intended),
        readings=len(together),
        seconds=sum(reading["seconds"] for reading in together),
        intended=intended,
        violations=sum(reading["violations"] for reading in together),
        errors={kind: errors[kind] for kind in sorted(errors) if errors[kind]},
        histogram=histogram,
        truncated=bool(first.get("truncated")),
        limited=first.get("limited") or first.get("disturbed"),
    )
