"""One reading: what the stack delivered at one offered rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean


@dataclass(frozen=True)
class Reading:
    """Counts of one reading at a fixed offered ``rate`` (requests/s) over ``seconds``.

    ``intended`` counts the requests the generator set out to send; ``violations`` those of them
    that were late, failed, answered wrongly or never sent. ``errors`` are the violations that are not
    merely late, by kind. ``histogram`` maps the upper edge of a latency bin in seconds to its count
    (right answers only): histograms can be summed, percentiles cannot. ``truncated`` readings were
    cut short on clear failure; they can never count as a pass. ``limited`` says why the *generator*
    could not make the offered load, ``disturbed`` what else kept the hosts from it (readings of
    earlier versions): in both cases the reading says nothing about the server. ``stolen`` is the
    fraction of a host's CPU time that was taken from it beyond what is usual (`measure.steal`).

    ``looked_at`` whole answers to other requests at the same time, not in these counts, were checked;
    ``wrong`` of them were wrong answers, and ``example`` says how.
    """

    rate: float
    seconds: float
    intended: int
    violations: int
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[float, int] = field(default_factory=dict)
    truncated: bool = False
    limited: str | None = None
    disturbed: str | None = None
    stolen: float = 0.0
    looked_at: int = 0
    wrong: int = 0
    example: str = ""

    @classmethod
    def pooled(cls, readings: Sequence[Reading]) -> Reading:
        """Readings at about one rate as one: counts, seconds and histograms summed.

        ``rate`` is the mean of the log rates, weighted by requests. What is wrong with one of them
        (``truncated``, ``limited``, ``disturbed``) is wrong with all; ``stolen`` is the mean.
        """
        intended = sum(reading.intended for reading in readings)
        logs = sum(log(reading.rate) * reading.intended for reading in readings)
        errors: Counter[str] = Counter()
        histogram: Counter[float] = Counter()
        for reading in readings:
            errors.update(reading.errors)
            histogram.update(reading.histogram)
        return cls(
            rate=exp(logs / intended) if intended else readings[0].rate,
            seconds=sum(reading.seconds for reading in readings),
            intended=intended,
            violations=sum(reading.violations for reading in readings),
            errors=errors,
            histogram=histogram,
            truncated=any(reading.truncated for reading in readings),
            limited=next((r.limited for r in readings if r.limited), None),
            disturbed=next((r.disturbed for r in readings if r.disturbed), None),
            stolen=fmean(reading.stolen for reading in readings),
            looked_at=sum(reading.looked_at for reading in readings),
            wrong=sum(reading.wrong for reading in readings),
            example=next((r.example for r in readings if r.example), ""),
        )

    @property
    def is_valid(self) -> bool:
        """Whether it says anything about the server."""
        return self.limited is None and self.disturbed is None

    @property
    def fraction(self) -> float:
        """Violations over intended requests; 1.0 when nothing was intended."""
        return self.violations / self.intended if self.intended else 1.0

    @property
    def failed(self) -> int:
        """Violations that are errors, not lateness."""
        return sum(self.errors.values())

    @property
    def goodput(self) -> float:
        """Requests/s that were answered right and in time."""
        right = self.intended - self.violations + self.looked_at - self.wrong
        return right / self.seconds if self.seconds > 0 else 0.0

    def percentile(self, q: float) -> float | None:
        """Latency in seconds within which the fraction ``q`` of *intended* requests was answered.

        ``None`` when more than ``1 - q`` of them never got a right answer: the percentile is then
        beyond anything that was observed.
        """
        count = 0
        for edge in sorted(self.histogram):
            count += self.histogram[edge]
            if count >= q * self.intended:
                return edge
        return None
