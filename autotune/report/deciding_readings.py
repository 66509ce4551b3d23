"""The readings that decided a capacity: how many requests they offered, and at which rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.measure.reading import TODAY_PURPOSE, WARM_UP_PURPOSE
from autotune.report import format as fmt
from autotune.study.reading_records import RecordedReading


@dataclass(frozen=True)
class DecidingReadings:
    """Requests offered in the valid readings of a capacity search, without the warm-up.

    ``lowest_rate`` is the lowest offered rate in requests/s; ``None`` without a reading.
    """

    requests: int = 0
    lowest_rate: float | None = None

    @property
    def text(self) -> str:
        """The number of requests as text: ``1,234 requests``; empty without a reading."""
        return fmt.format_request_count(self.requests) if self.requests else ""

    @property
    def failure_text(self) -> str:
        """Return the evidence that no rate meets the SLO, such as ``24 requests, at 0.87/s or more``."""
        if not self.requests:
            return ""
        lowest_rate = fmt.format_rate(self.lowest_rate)
        return f"{fmt.format_request_count(self.requests)}, at {lowest_rate}/s or more"


def sum_deciding_readings(
    readings: Iterable[RecordedReading], trial_numbers: Iterable[int] | None = None
) -> DecidingReadings:
    """Sum the requests in the readings of these trials, or of all trials without ``trial_numbers``."""
    selected_numbers = None if trial_numbers is None else set(trial_numbers)
    deciding_readings = [
        reading
        for reading in readings
        if reading.purpose not in (WARM_UP_PURPOSE, TODAY_PURPOSE)
        and not reading.limited
        and (selected_numbers is None or reading.trial in selected_numbers)
    ]
    return DecidingReadings(
        sum(reading.intended for reading in deciding_readings),
        min((reading.rate for reading in deciding_readings), default=None),
    )
