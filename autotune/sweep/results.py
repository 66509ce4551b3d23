"""Results of a sweep by point and rate: means over the repeats, with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from scipy.special import stdtrit  # not scipy.stats, whose import takes a second

from autotune.environments.peak import Peak
from autotune.measure.reading import Reading
from autotune.optimize.confirmation import INTERVAL_COVERAGE
from autotune.report.trial_outcomes import UNMET_TEXT
from autotune.study import journal
from autotune.study.reading_records import RecordedReading, load_readings
from autotune.study.state_replay import replay_records
from autotune.study.study_state import Trial
from autotune.sweep.plan import (
    SWEEP_PURPOSE,
    GridPoint,
    PointMeasurement,
    SweepPlan,
    order_rates,
    read_plan,
)
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.target.read_target import read_recorded_target


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
    - ``load``: load average of each tier's hosts. ``cpu``: busy share of the CPUs of each tier's hosts.
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
    """The current results of a sweep, and the number of ``remaining_measurements``.

    ``differences`` lists effective values that differ from the values of their points, as text.
    """

    name: str
    plan: SweepPlan
    target: Target
    results: tuple[Result, ...]
    remaining_measurements: int
    differences: tuple[str, ...] = ()


def load_results(directory: Path) -> SweepResults:
    """Return the results in a sweep's directory."""
    records = list(journal.read_records(directory / "events.jsonl"))
    trials = {trial.number: trial for trial in replay_records(records).trials}
    plan, target = read_plan(directory), read_recorded_target(directory).target
    trials_by_point: dict[int, list[Trial]] = defaultdict(list)
    measurements: dict[int, PointMeasurement] = {}
    for record in records:
        if record["event"] == "swept" and record["trial"] in trials:
            trials_by_point[record["point"]].append(trials[record["trial"]])
            measurements[record["trial"]] = PointMeasurement(record["point"], record["turn"])
    if plan.rates:
        readings_by_rate = find_readings_by_rate(plan, measurements, load_readings(directory))
        results = [
            _summarize_rate(point, rate, trials_by_point[point.number], readings_by_rate, target)
            for point in plan.points
            for rate in plan.rates
        ]
    else:
        results = [_summarize_capacity(p, trials_by_point[p.number]) for p in plan.points]
    remaining_count = len(plan.points) * plan.repeat - sum(map(len, trials_by_point.values()))
    differences = tuple(_list_differences(plan, trials_by_point))
    return SweepResults(directory.name, plan, target, tuple(results), remaining_count, differences)


def _list_differences(
    plan: SweepPlan, trials_by_point: Mapping[int, Sequence[Trial]]
) -> Iterator[str]:
    """Yield each effective value that differs from a value of its point, once for each trial."""
    for point in plan.points:
        for trial in trials_by_point.get(point.number, ()):
            for difference in trial.differences:
                if difference.partition(":")[0] in point.settings:
                    yield difference


def find_readings_by_rate(
    plan: SweepPlan,
    measurements: Mapping[int, PointMeasurement],
    readings: Iterable[RecordedReading],
) -> dict[tuple[int, float], list[RecordedReading]]:
    """Return the readings by trial and planned rate. ``measurements`` contains the measurement of each
    trial.

    The order of the readings shows their planned rates, because generators may round rates.
    """
    readings_by_trial: dict[int, list[RecordedReading]] = defaultdict(list)
    for reading in readings:
        if reading.purpose == SWEEP_PURPOSE and reading.trial in measurements:
            readings_by_trial[reading.trial].append(reading)
    return {
        (trial, rate): [reading]
        for trial, trial_readings in readings_by_trial.items()
        for rate, reading in zip(
            order_rates(plan, measurements[trial]), trial_readings, strict=False
        )
    }


def compute_mean_with_interval(values: Sequence[float]) -> Mean | None:
    """Return the mean of ``values``, or ``None`` without values."""
    if len(values) < 2:
        return Mean(values[0]) if values else None
    mean_value, count = fmean(values), len(values)
    half_width = (
        float(stdtrit(count - 1, 0.5 + INTERVAL_COVERAGE / 2)) * stdev(values) / sqrt(count)
    )
    return Mean(mean_value, mean_value - half_width, mean_value + half_width, count)


def _summarize_rate(
    point: GridPoint,
    rate: float,
    trials: Sequence[Trial],
    readings_by_rate: Mapping[tuple[int, float], Sequence[RecordedReading]],
    target: Target,
) -> Result:
    readings_at_rate = [
        r for trial in trials for r in readings_by_rate.get((trial.number, rate), ())
    ]
    # A reading whose load could not be generated is not evidence about the servers.
    valid_readings = [record for record in readings_at_rate if record.reading.is_valid]
    unmeasured_trials = [t for t in trials if (t.number, rate) not in readings_by_rate]
    failure = _describe_failed_repeats(
        [trial.failure for trial in unmeasured_trials if trial.failure is not None], len(trials)
    )
    if not valid_readings:
        reasons = (record.limited for record in readings_at_rate)
        missing_text = "no reading was recorded at this rate" if trials else None
        return Result(point, rate, failure=failure or next(filter(None, reasons), missing_text))
    response_times = [mean for r in valid_readings if (mean := compute_mean_seconds(r)) is not None]
    if failure is None and not response_times:
        failure = "no request got a correct response"
    elif failure is None and any(record.truncated for record in valid_readings):
        failure = "overloaded: readings were cut short"
    pooled_reading = Reading.pool([record.reading for record in valid_readings])
    throughputs = [record.reading.answered_rate for record in valid_readings]
    return Result(
        point,
        rate,
        response=compute_mean_with_interval(response_times),
        throughput=compute_mean_with_interval(throughputs),
        p50=pooled_reading.percentile(0.5),
        p99=pooled_reading.percentile(0.99),
        violations=pooled_reading.violation_fraction,
        met=target.slo.objective.is_met(pooled_reading),
        load=_average_by_tier(valid_readings, target, "load"),
        cpu=_average_by_tier(valid_readings, target, "cpu"),
        failure=failure,
    )


def _summarize_capacity(point: GridPoint, trials: Sequence[Trial]) -> Result:
    """Return a point's capacity from all trials that measured the point."""
    peaks = [trial.peak for trial in trials if trial.peak is not None]
    failure_reasons = [trial.failure for trial in trials if trial.failure is not None]
    failure_reasons += [_describe_missing_peak(peak) for peak in peaks if not peak.met_slo]
    return Result(
        point,
        None,
        peak=compute_mean_with_interval([peak.peak for peak in peaks if peak.met_slo]),
        failure=_describe_failed_repeats(failure_reasons, len(trials)),
        limit=next((peak.limit for peak in peaks if peak.is_load_limited), None),
    )


def _describe_missing_peak(peak: Peak) -> str:
    if peak.is_load_limited:
        return f"limited by {peak.limit}"
    return UNMET_TEXT if peak.is_unmet else "the SLO is not met at any rate"


def _describe_failed_repeats(reasons: Sequence[str], repeat_count: int) -> str | None:
    """Return the first reason why repeats of a point failed, or ``None`` if no repeat failed.

    If some repeats failed, the mean of the others does not represent the point.
    """
    if not reasons:
        return None
    return (
        reasons[0]
        if len(reasons) == repeat_count
        else f"{len(reasons)} of {format_count(repeat_count, 'repeat')} failed: {reasons[0]}"
    )


def compute_mean_seconds(reading: RecordedReading) -> float | None:
    """Return the mean time of correct responses in seconds, from the histogram's upper edges."""
    answered_requests = sum(reading.histogram.values())
    if not answered_requests:
        return None
    total_seconds = sum(float(bucket_edge) * n for bucket_edge, n in reading.histogram.items())
    return float(total_seconds / answered_requests / 1000.0)


def _average_by_tier(
    readings: Sequence[RecordedReading], target: Target, usage_field: str
) -> dict[str, Mean]:
    """Return a figure of host usage per tier: the mean over the tier's hosts, then over the repeats."""
    means_by_tier: dict[str, Mean] = {}
    for tier_name, tier in target.tiers.items():
        values_by_reading = [
            [float(getattr(r.hosts[host], usage_field)) for host in tier.hosts if host in r.hosts]
            for r in readings
        ]
        if (
            tier_mean := compute_mean_with_interval(
                [fmean(host_values) for host_values in values_by_reading if host_values]
            )
        ) is not None:
            means_by_tier[tier_name] = tier_mean
    return means_by_tier
