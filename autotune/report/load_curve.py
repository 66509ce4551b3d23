"""The load curve of a configuration: results by rate, and the load on its hosts.

Readings at nearly the same rate form one load step. Counts and histograms are summed, because
percentiles cannot be averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean

from autotune.measure.reading import WARM_UP_PURPOSE, Reading
from autotune.monitor.activity import HostUsage
from autotune.study.reading_records import RecordedReading
from autotune.target.slo import Slo

ReadingRecords = Iterable[RecordedReading]
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)  # in every report, with the percentile of the SLO
# Width of a load step, in natural logarithms of the rate.
STEP_LOG_WIDTH = 0.04
HOST_METRICS = ("cpu", "steal", "load", "memory", "sockets", "time_wait", "network")
# Host usage is averaged over this many readings, which have the highest rates that met the SLO.
READINGS_AT_CAPACITY = 3


@dataclass(frozen=True)
class LoadStep:
    """A step of the load curve: ``pooled_reading`` sums ``reading_count`` readings at about the same
    rate.

    Readings that were cut short after a clear failure form separate steps, and so do readings that are
    not valid measurements of the server. Such steps have no goodput and no percentiles.
    """

    reading_count: int
    pooled_reading: Reading

    @property
    def invalid_reason(self) -> str | None:
        """Return the limit of the generator, if the step is not a valid measurement of the server."""
        return self.pooled_reading.limited

    @property
    def is_complete(self) -> bool:
        """True if the step is a valid measurement of the server and its load ran for its full
        duration.
        """
        return self.pooled_reading.is_valid and not self.pooled_reading.truncated

    @property
    def goodput(self) -> float | None:
        """Return the requests/s with a correct response in time."""
        return (
            self.pooled_reading.goodput
            if self.is_complete and self.pooled_reading.seconds > 0
            else None
        )

    def percentile_milliseconds(self, percent: float) -> float | None:
        """Return the milliseconds within which ``percent`` of *intended* requests got a correct
        response.

        Return ``None`` if too few requests got a correct response, or if the step is not complete.
        """
        return (
            to_milliseconds(self.pooled_reading.percentile(percent / 100))
            if self.is_complete
            else None
        )


def list_percentiles(slo: Slo) -> tuple[float, ...]:
    """Return the percentiles that reports show, in ascending order: ``PERCENTILES`` and the SLO's own."""
    return tuple(sorted({*PERCENTILES, round(100 * slo.quantile, 6)}))


def build_load_curve(readings: ReadingRecords) -> tuple[LoadStep, ...]:
    """Return the load steps of recorded readings, the lowest rate first, without the warm-up."""
    readings_by_step: dict[tuple[int, bool, str], list[Reading]] = {}
    for record in readings:
        if record.purpose == WARM_UP_PURPOSE or not record.intended:
            continue
        step_number = round(log(record.rate) / STEP_LOG_WIDTH)
        step_key = (step_number, record.truncated, record.limited or "")
        readings_by_step.setdefault(step_key, []).append(record.reading)
    steps = [LoadStep(len(pooled), Reading.pool(pooled)) for pooled in readings_by_step.values()]
    return tuple(sorted(steps, key=lambda step: step.pooled_reading.rate))


def to_milliseconds(seconds: float | None) -> float | None:
    """Return seconds as milliseconds, rounded to remove floating-point errors."""
    return None if seconds is None else round(1000 * seconds, 9)


def average_host_usage(readings: ReadingRecords, slo: Slo) -> dict[str, dict[str, float]]:
    """Return the usage of each host, averaged over the readings with the highest rates that met the SLO.

    ``cpu``, ``steal`` and ``memory`` are fractions, ``load`` is the load average, ``network`` is in
    bytes/s. The result is empty without host data or without a reading that met the SLO.
    """
    usable_readings = [
        reading
        for reading in readings
        if reading.purpose != WARM_UP_PURPOSE and reading.hosts and slo.is_met(reading.reading)
    ]
    highest_readings = sorted(usable_readings, key=lambda reading: -reading.rate)[
        :READINGS_AT_CAPACITY
    ]
    hosts = sorted({host for reading in highest_readings for host in reading.hosts})
    return {
        host: _average_usages([r.hosts[host] for r in highest_readings if host in r.hosts])
        for host in hosts
    }


def _average_usages(usages: Sequence[HostUsage]) -> dict[str, float]:
    return {
        metric: round(fmean(getattr(usage, metric) for usage in usages), 3)
        for metric in HOST_METRICS
    }


def has_host_usage(readings: ReadingRecords) -> bool:
    """True if any reading recorded host data, even a reading that missed the SLO."""
    return any(reading.hosts for reading in readings)
