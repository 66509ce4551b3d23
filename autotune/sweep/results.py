"""Results of a sweep by point and rate: means over the repeats, with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit  # not scipy.stats, whose import takes a second

from autotune.measure.reading import Reading
from autotune.study import journal
from autotune.study.reading_records import RecordedReading, load_readings
from autotune.study.study_state import replay_records
from autotune.sweep.plan import SWEEP_PURPOSE, GridPoint, SweepPlan, read_plan
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.target.read_target import read_recorded_target

INTERVAL_COVERAGE = 0.90
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Mean:
    """The mean of ``count`` repeats and its 90 % interval (Student's t); a single repeat has no
    interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1

    def scale_by(self, factor: float) -> Mean:
        """Return the mean in another unit, multiplied by ``factor``."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Mean(self.value * factor, low, high, self.count)


@dataclass(frozen=True)
class Result:
    """The result of a point at one rate, or the point's capacity ``peak`` if ``rate`` is ``None``.

    - ``response``: mean time of correct responses in seconds. ``throughput``: correct responses per
      second.
    - ``p50``, ``p99``: percentiles of the response time in seconds, over all repeats together.
    - ``violations``: share of the requests that were late or failed. ``met``: true if the requests met
      the SLO.
    - ``load``: load average of each tier's hosts. ``cpu``: busy share of the CPUs of these hosts.
    - ``failure``: why a point has no values, or why its values do not represent its rate. A reading
      under overload ends before the queues reach their full length.
    - ``limit``: the reason why the load stayed below the capacity; ``peak`` is then a lower bound.
    """

    point: GridPoint
    rate: float | None
    response: Mean | None = None
    throughput: Mean | None = None
    peak: Mean | None = None
    p50: float | None = None
    p99: float | None = None
    violations: float | None = None
    met: bool = False
    load: Mapping[str, Mean] = field(default_factory=dict)
    cpu: Mapping[str, Mean] = field(default_factory=dict)
    failure: str | None = None
    limit: str | None = None


@dataclass(frozen=True)
class SweepResults:
    """The current results of a sweep, and the number of ``remaining_measurements``."""

    name: str
    plan: SweepPlan
    target: Target
    results: tuple[Result, ...]
    remaining_measurements: int


def load_results(directory: Path) -> SweepResults:
    """Return the results in a sweep's directory."""
    records = list(journal.read_records(directory / "events.jsonl"))
    replay_records(records)  # raises an error for invalid records
    plan, target = read_plan(directory), read_recorded_target(directory).target
    trials_by_point: dict[int, list[int]] = defaultdict(list)
    for record in records:
        if record["event"] == "swept":
            trials_by_point[record["point"]].append(record["trial"])
    failures = {r["trial"]: r["why"] for r in records if r["event"] == "failed"}
    if plan.rates:
        readings: dict[int, list[RecordedReading]] = defaultdict(list)
        for reading in load_readings(directory):
            if reading.purpose == SWEEP_PURPOSE:
                readings[reading.trial].append(reading)
        results = [
            _summarize_rate(point, rate, trials_by_point[point.number], readings, failures, target)
            for point in plan.points
            for rate in plan.rates
        ]
    else:
        peaks = {r["trial"]: r for r in records if r["event"] == "measured"}
        results = [
            _summarize_capacity(p, trials_by_point[p.number], peaks, failures) for p in plan.points
        ]
    remaining_count = len(plan.points) * plan.repeat - sum(map(len, trials_by_point.values()))
    return SweepResults(directory.name, plan, target, tuple(results), remaining_count)


def compute_mean(values: Sequence[float]) -> Mean | None:
    """Return the mean of ``values``, or ``None`` without values."""
    if len(values) < 2:
        return Mean(values[0]) if values else None
    mean, count = fmean(values), len(values)
    half_width = (
        float(stdtrit(count - 1, 0.5 + INTERVAL_COVERAGE / 2)) * stdev(values) / sqrt(count)
    )
    return Mean(mean, mean - half_width, mean + half_width, count)


def _summarize_rate(
    point: GridPoint,
    rate: float,
    trials: Sequence[int],
    readings: Mapping[int, Sequence[RecordedReading]],
    failures: Mapping[int, str],
    target: Target,
) -> Result:
    samples = [r for trial in trials for r in readings.get(trial, ()) if r.rate == rate]
    # A reading whose load could not be generated is not evidence about the servers.
    records_at_rate = [record for record in samples if record.reading.is_valid]
    unmeasured_trials = [t for t in trials if not any(record.trial == t for record in samples)]
    failure = _describe_failed_repeats(
        [failures[trial] for trial in unmeasured_trials if trial in failures], len(trials)
    )
    if not records_at_rate:
        reasons = (record.limited or record.disturbed for record in samples)
        return Result(point, rate, failure=failure or next(filter(None, reasons), None))
    responses = [
        mean for record in records_at_rate if (mean := compute_mean_seconds(record)) is not None
    ]
    if failure is None and not responses:
        failure = "no request got a correct response"
    elif failure is None and any(record.truncated for record in records_at_rate):
        failure = "overloaded: readings were cut short"
    pooled_reading = Reading.pool([record.reading for record in records_at_rate])
    return Result(
        point,
        rate,
        response=compute_mean(responses),
        throughput=compute_mean([sum(r.histogram.values()) / r.seconds for r in records_at_rate]),
        p50=pooled_reading.percentile(0.5),
        p99=pooled_reading.percentile(0.99),
        violations=pooled_reading.violation_fraction,
        met=target.slo.objective.is_met(pooled_reading),
        load=_average_by_tier(records_at_rate, target, "load"),
        cpu=_average_by_tier(records_at_rate, target, "cpu"),
        failure=failure,
    )


def _summarize_capacity(
    point: GridPoint,
    trials: Sequence[int],
    peaks: Mapping[int, Record],
    failures: Mapping[int, str],
) -> Result:
    """Return a point's capacity; ``peaks`` contains the records of measurements, by trial."""
    records = [peaks[trial] for trial in trials if trial in peaks]
    measured_peaks = [record["peak"] for record in records if record["peak"]]
    limit = next((record["limit"] for record in records if record.get("limit")), None)
    reasons = [failures[trial] for trial in trials if trial in failures]
    reasons += [_describe_missing_peak(record) for record in records if not record["peak"]]
    return Result(
        point,
        None,
        peak=compute_mean(measured_peaks),
        failure=_describe_failed_repeats(reasons, len(trials)),
        limit=limit,
    )


def _describe_missing_peak(record: Record) -> str:
    limit = record.get("limit")
    return f"limited by {limit}" if limit else "the SLO is not met at any rate"


def _describe_failed_repeats(reasons: Sequence[str], repeats: int) -> str | None:
    """Return the first reason why repeats of a point failed, or ``None`` if no repeat failed.

    If some repeats failed, the mean of the others does not represent the point.
    """
    if not reasons:
        return None
    return (
        reasons[0]
        if len(reasons) == repeats
        else f"{len(reasons)} of {format_count(repeats, 'repeat')} failed: {reasons[0]}"
    )


def compute_mean_seconds(reading: RecordedReading) -> float | None:
    """Return the mean time of correct responses in seconds, from the histogram's upper edges."""
    answered_requests = sum(reading.histogram.values())
    if not answered_requests:
        return None
    total_seconds = sum(float(edge) * n for edge, n in reading.histogram.items())
    return float(total_seconds / answered_requests / 1000.0)


def _average_by_tier(
    readings: Sequence[RecordedReading], target: Target, metric: str
) -> dict[str, Mean]:
    """Return a figure of host usage per tier: the mean over the tier's hosts, then over the repeats."""
    means_by_tier: dict[str, Mean] = {}
    for name, tier in target.tiers.items():
        values_by_reading = [
            [float(getattr(r.hosts[host], metric)) for host in tier.hosts if host in r.hosts]
            for r in readings
        ]
        if (
            tier_mean := compute_mean([fmean(values) for values in values_by_reading if values])
        ) is not None:
            means_by_tier[name] = tier_mean
    return means_by_tier
