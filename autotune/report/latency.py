"""Latency against offered rate: a fitted curve, and its latency at any rate.

Latency never falls as the rate rises. The curve is the isotonic regression of the log latencies of
all readings, weighted by their seconds. See Robertson, Wright, Dykstra, Order Restricted
Statistical Inference, 1988, section 1.2. At the capacity, it equals the SLO's limit, by the
definition of capacity. The 90 % band comes from a bootstrap, which redraws readings and capacity
for each curve. The reported curve is the median of these curves. Each draw uses half of the
readings. With all readings in each draw, the band of an isotonic curve would be too narrow (Sen,
Banerjee, Woodroofe, Annals of Statistics 38, 2010).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.measure.reading import Reading
from autotune.report import format as fmt
from autotune.report.trial_outcomes import WARM_UP_PURPOSE
from autotune.report.view import StudyView
from autotune.study.reading_records import RecordedReading
from autotune.target.slo import Slo

AT_MOST_BOUND, MORE_THAN_BOUND = "at most", "more than"
BOOTSTRAP_CURVES = 200  # number of bootstrap samples
GRID_RATES = 40  # number of points of the drawn grid
MIN_READINGS = 3  # minimum number of readings for a curve
LogPoint = tuple[float, float, float]  # log rate, log seconds, weight


@dataclass(frozen=True)
class LatencyEstimate:
    """The SLO's percentile at a rate, in seconds, with its 90 % interval.

    ``bound`` is ``at most`` if only higher rates were measured. It is ``more than`` for rates beyond
    the capacity or the highest measured rate, where a queue grows as long as the load lasts.
    """

    seconds: float
    low: float
    high: float
    bound: str = ""

    def __str__(self) -> str:
        if self.bound:
            return f"{self.bound} {fmt.format_latency(self.seconds)}"
        return (
            f"{fmt.format_latency(self.seconds)} [{fmt.format_latency(self.low)}, "
            f"{fmt.format_latency(self.high)}]"
        )


@dataclass(frozen=True)
class LatencyCurve:
    """The fitted curve: ``rates`` in ascending order, with the percentile's median and 90 % band in
    seconds.
    """

    rates: tuple[float, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    capacity: Peak | None
    limit_seconds: float

    def estimate_at(self, rate: float) -> LatencyEstimate:
        """Return the estimate of the percentile at ``rate`` requests/s."""
        if self.capacity is not None and rate > self.capacity.high:
            return LatencyEstimate(
                self.limit_seconds, self.limit_seconds, self.limit_seconds, MORE_THAN_BOUND
            )
        bands = (self.median, self.low, self.high)
        middle, low, high = (_interpolate(self.rates, band, rate) for band in bands)
        if rate < self.rates[0]:
            return LatencyEstimate(high, low, high, AT_MOST_BOUND)
        if rate > self.rates[-1]:
            return LatencyEstimate(low, low, high, MORE_THAN_BOUND)
        return LatencyEstimate(middle, low, high)

    def describe_extrapolation(self, rate: float) -> str:
        """Return why the estimate at ``rate`` is uncertain; empty between measured rates."""
        if self.capacity is not None and rate > self.capacity.high:
            return f"above the capacity of {fmt.format_rate(self.capacity.peak)}/s"
        if rate < self.rates[0]:
            return f"extrapolated: the lowest measured rate is {fmt.format_rate(self.rates[0])}/s"
        if rate > self.rates[-1]:
            return f"extrapolated: the highest measured rate is {fmt.format_rate(self.rates[-1])}/s"
        return ""


def fit_latency_curves(view: StudyView) -> dict[str, LatencyCurve]:
    """Return the curves of baseline and best, if there are enough readings. Raises AutotuneError."""
    if view.target.command_goal is not None:
        return {}
    slo, timeout = view.target.slo.objective, view.target.load.timeout
    sides = view.conclusion.sides
    curves = {
        label: fit_curve(readings, slo, timeout, sides[label].best_estimate)
        for label, readings in view.readings_by_side().items()
    }
    return {label: curve for label, curve in curves.items() if curve is not None}


def fit_curve(
    records: Iterable[RecordedReading], slo: Slo, timeout_seconds: float, capacity: Peak | None
) -> LatencyCurve | None:
    """Return the curve of a configuration's readings; ``None`` for fewer than ``MIN_READINGS`` readings.

    A percentile beyond all responses counts as ``timeout_seconds``, the request timeout in seconds.
    """
    readings = [
        record.reading
        for record in records
        if record.purpose != WARM_UP_PURPOSE and record.intended and record.reading.is_valid
    ]
    if len(readings) < MIN_READINGS:
        return None
    points = sorted(_build_point(reading, slo, timeout_seconds) for reading in readings)
    crossing_estimate = capacity.estimate if capacity and capacity.is_feasible else None
    anchor = crossing_estimate if _is_latency_bound(readings, slo) else None
    first, last = points[0][0], points[-1][0]
    grid = [first + (last - first) * step / (GRID_RATES - 1) for step in range(GRID_RATES)]
    rng = Random(len(points))  # noqa: S311  # a sample, not a secret
    sample_size = max(MIN_READINGS, len(points) // 2)
    curves = [
        _fit_log_curve(
            sorted(rng.choices(points, k=sample_size)), grid, _draw_capacity(anchor, rng), slo
        )
        for _ in range(BOOTSTRAP_CURVES)
    ]
    spread = [sorted(column) for column in zip(*curves, strict=True)]
    middle, low, high = (
        tuple(exp(column[round(share * (BOOTSTRAP_CURVES - 1))]) for column in spread)
        for share in (0.5, 0.05, 0.95)
    )
    peak = capacity if crossing_estimate else None
    return LatencyCurve(tuple(map(exp, grid)), middle, low, high, peak, slo.limit)


def _build_point(reading: Reading, slo: Slo, timeout_seconds: float) -> LogPoint:
    latency = None if reading.truncated else reading.percentile(slo.quantile)
    return log(reading.rate), log(max(latency or timeout_seconds, 1e-6)), max(reading.seconds, 1e-3)


def _is_latency_bound(readings: Sequence[Reading], slo: Slo) -> bool:
    """True if at least half of the readings that violate the SLO do so by latency, not only by errors."""
    violating_readings = [reading for reading in readings if not slo.is_met(reading)]
    slow_readings = [
        reading for reading in violating_readings if not slo.is_met(replace(reading, errors={}))
    ]
    return 2 * len(slow_readings) >= len(violating_readings)


def _draw_capacity(anchor: Estimate | None, random: Random) -> float | None:
    return None if anchor is None else random.gauss(anchor.log_mean, anchor.sd)


def _fit_log_curve(
    points: Sequence[LogPoint], grid: Sequence[float], crossing: float | None, slo: Slo
) -> list[float]:
    """Return log seconds on the grid: isotonic, and equal to the limit at log rate ``crossing``."""
    rates, values = [point[0] for point in points], _fit_isotonic(points)
    if crossing is not None:
        limit, location = log(slo.limit), bisect_left(rates, crossing)
        below, above = values[:location], values[location:]
        values = [*(min(v, limit) for v in below), limit, *(max(v, limit) for v in above)]
        rates = [*rates[:location], crossing, *rates[location:]]
    return [_interpolate(rates, values, rate) for rate in grid]


def _fit_isotonic(points: Sequence[LogPoint]) -> list[float]:
    """Return the least-squares fit that never falls, by the pool-adjacent-violators algorithm."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of points
    for _, value, weight in points:
        block = (value, weight, 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, block_weight, count = blocks.pop()
            total_weight = block_weight + block[1]
            block = (
                (mean * block_weight + block[0] * block[1]) / total_weight,
                total_weight,
                count + block[2],
            )
        blocks.append(block)
    return [mean for mean, _, count in blocks for _ in range(count)]


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return ``y`` at ``x``: linear between the points, constant beyond the outermost ones."""
    location = bisect_left(xs, x)
    if location == 0 or location == len(xs):
        return ys[min(location, len(xs) - 1)]
    (x0, x1), (y0, y1) = xs[location - 1 : location + 1], ys[location - 1 : location + 1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def estimate_latency_at(view: StudyView, rate: float) -> dict[str, tuple[LatencyEstimate, str]]:
    """Return the percentile at a rate in requests/s, and the reason for any uncertainty, by side."""
    return {
        label: (curve.estimate_at(rate), curve.describe_extrapolation(rate))
        for label, curve in fit_latency_curves(view).items()
    }
