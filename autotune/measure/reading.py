"""One reading: the responses of a stack at one offered rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean

from autotune.loads.base import LOW_RATE_ERROR

WARM_UP_PURPOSE = "warm-up"  # purpose of a warm-up's readings
TODAY_PURPOSE = "today"  # purpose of a reading at today's production rate


@dataclass(frozen=True)
class Reading:
    """Counts of one reading at a fixed offered ``rate`` (requests/s) over ``seconds``.

    - ``intended``: requests that the generator planned to send.
    - ``violations``: intended requests that were late, failed, got a wrong response, or were not sent.
    - ``errors``: violations other than late responses, by kind.
    - ``histogram``: upper edge of a latency bin in seconds → number of correct responses. Readings
      contain histograms, because histograms can be summed, but percentiles cannot.
    - ``truncated``: the reading was stopped early after a clear failure, and never meets the objective.
    - ``limited``: why the *generator* could not produce the load. If it is set, the reading is not a
      valid measurement of the server.
    - ``stolen``: fraction of CPU steal on a host above the usual level (`measure.steal`).
    - ``looked_at``: number of complete responses to additional requests, which are sent during the
      reading to check the content. ``wrong``: number of wrong responses to the additional requests.
      ``example``: the error in one wrong response. All other counts exclude the additional requests.
    """

    rate: float
    seconds: float
    intended: int
    violations: int
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[float, int] = field(default_factory=dict)
    truncated: bool = False
    limited: str | None = None
    stolen: float = 0.0
    looked_at: int = 0
    wrong: int = 0
    example: str = ""

    @classmethod
    def pool(cls, readings: Sequence[Reading]) -> Reading:
        """Return several readings at about the same rate as one reading, with summed counts, seconds
        and histograms.

        ``rate`` is the geometric mean of the rates, weighted by requests. ``truncated`` and ``limited``
        are set if any reading sets them. ``stolen`` is the mean over the readings.
        """
        intended_requests = sum(reading.intended for reading in readings)
        weighted_log_rates = sum(log(reading.rate) * reading.intended for reading in readings)
        errors: Counter[str] = Counter()
        histogram: Counter[float] = Counter()
        for reading in readings:
            errors.update(reading.errors)
            histogram.update(reading.histogram)
        return cls(
            rate=exp(weighted_log_rates / intended_requests)
            if intended_requests
            else readings[0].rate,
            seconds=sum(reading.seconds for reading in readings),
            intended=intended_requests,
            violations=sum(reading.violations for reading in readings),
            errors=errors,
            histogram=histogram,
            truncated=any(reading.truncated for reading in readings),
            limited=next((r.limited for r in readings if r.limited), None),
            stolen=fmean(reading.stolen for reading in readings),
            looked_at=sum(reading.looked_at for reading in readings),
            wrong=sum(reading.wrong for reading in readings),
            example=next((r.example for r in readings if r.example), ""),
        )

    @property
    def is_valid(self) -> bool:
        """True if the reading is a valid measurement of the server."""
        return self.limited is None

    @property
    def is_beyond_generator(self) -> bool:
        """True if the generator could not produce the load at this rate."""
        return self.limited is not None and not self.is_rate_too_low

    @property
    def is_rate_too_low(self) -> bool:
        """True if nothing was sent, because not even one visit fits into the reading at its rate."""
        return LOW_RATE_ERROR in self.errors

    @property
    def offered_seconds(self) -> float:
        """Return the seconds in which the intended requests were due. A truncated reading may end before
        ``seconds``.
        """
        if not self.truncated or self.rate <= 0:
            return self.seconds
        return min(self.seconds, self.intended / self.rate)

    @property
    def violation_fraction(self) -> float:
        """Return the fraction of intended requests that are violations; 1.0 without requests."""
        return self.violations / self.intended if self.intended else 1.0

    @property
    def error_count(self) -> int:
        """Return the number of violations other than late responses."""
        return sum(self.errors.values())

    @property
    def answered_rate(self) -> float:
        """Return the requests/s that got a correct response, even a late one. The additional requests
        that check the content count, too.
        """
        right_count = self.intended - self.error_count + self._right_check_count
        return right_count / self.offered_seconds if self.offered_seconds > 0 else 0.0

    @property
    def goodput(self) -> float:
        """Return the requests/s that got a correct response within the latency limit."""
        right_count = self.intended - self.violations + self._right_check_count
        return right_count / self.seconds if self.seconds > 0 else 0.0

    @property
    def _right_check_count(self) -> int:
        """Return the correct responses to the additional requests that check the content."""
        return self.looked_at - self.wrong

    def percentile(self, q: float) -> float | None:
        """Return the latency in seconds within which the fraction ``q`` of *intended* requests got a
        correct response.

        Return ``None`` if more than the fraction ``1 - q`` of the requests got no correct response,
        because the percentile is then unknown.
        """
        answer_count = 0
        for bin_edge in sorted(self.histogram):
            answer_count += self.histogram[bin_edge]
            if answer_count >= q * self.intended:
                return bin_edge
        return None
