"""Latency: measured at today's request rate, and estimated at any other rate by a fitted curve.

The proof measures the latency of both sides at one rate. The mean and its interval are computed as for
the pairs of the proof, from the logarithm of each reading's percentile.

Latency never falls as the rate rises. The curve is the isotonic regression of the log latencies of all
readings, weighted by the duration of each reading. See Robertson, Wright, Dykstra, Order Restricted
Statistical Inference, 1988, section 1.2. At the capacity, the curve equals the SLO's limit, by the
definition of capacity. The 90 % band comes from a bootstrap, which redraws readings and capacity for
each curve. The reported curve is the median of these curves. Each draw uses half of the readings. With
all readings in each draw, the band of an isotonic curve would be too narrow (Sen, Banerjee, Woodroofe,
Annals of Statistics 38, 2010).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isclose, log, sqrt
from random import Random

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.measure.reading import TODAY_PURPOSE, WARM_UP_PURPOSE, Reading
from autotune.optimize.confirmation import compute_mean_with_interval
from autotune.report import format as fmt
from autotune.report.figures import StudyFigures
from autotune.study.reading_records import RecordedReading
from autotune.study.today_rate import TODAY_CAPACITY_SHARE
from autotune.target.slo import Slo

AT_MOST_BOUND, MORE_THAN_BOUND = "at most", "more than"
UNMEASURED_TEXT = "not measured"
BOOTSTRAP_CURVES = 200  # number of bootstrap samples
GRID_RATES = 40  # number of rates at which a curve is computed
# Usual sd of the log percentile between readings, in addition to the sd from the number of requests.
READING_LOG_SD = 0.15
MIN_READINGS = 3  # minimum number of readings for a curve
# Maximum relative difference between the declared rate of today and the rate that a generator sends.
MAX_ROUNDING_SHARE = 0.05
LogPoint = tuple[float, float, float]  # log rate, log seconds, weight


@dataclass(frozen=True)
class LatencyEstimate:
    """The SLO's percentile at a rate, in seconds, with its 90 % interval.

    ``bound`` is ``at most`` if only higher rates were measured. ``bound`` is ``more than`` for rates
    beyond the capacity or the highest measured rate, where a queue grows as long as the load lasts.
    ``why`` is the reason for a bound. ``is_measured`` is true if the percentile comes from readings at
    this rate.
    """

    seconds: float
    low: float
    high: float
    bound: str = ""
    why: str = ""
    is_measured: bool = False

    def __str__(self) -> str:
        if self.bound:
            return f"{self.bound} {fmt.format_latency(self.seconds)}"
        return f"{fmt.format_latency(self.seconds)} {self.interval_text}"

    @property
    def interval_text(self) -> str:
        return f"[{fmt.format_latency(self.low)}, {fmt.format_latency(self.high)}]"

    @property
    def short_text(self) -> str:
        """The percentile without its interval: ``38 ms``, ``more than 50 ms``."""
        return f"{self.bound} {fmt.format_latency(self.seconds)}".lstrip()


@dataclass(frozen=True)
class TodayLatency:
    """The latency of ``baseline`` and ``best`` at today's request ``rate`` (requests/s).

    A latency is ``None`` if it was not measured. If the target does not declare the rate,
    ``is_declared`` is false.
    """

    percentile: str
    rate: float
    is_declared: bool
    baseline: LatencyEstimate | None
    best: LatencyEstimate | None

    @property
    def sides(self) -> Mapping[str, LatencyEstimate]:
        """The known latencies of ``baseline`` and ``best``."""
        sides = {"baseline": self.baseline, "best": self.best}
        return {side_name: side for side_name, side in sides.items() if side is not None}

    @property
    def rate_text(self) -> str:
        """The rate as text: ``today's 400/s``."""
        rate = f"{fmt.format_rate(self.rate)}/s"
        if self.is_declared:
            return f"today's {rate}"
        return f"{rate} ({100 * TODAY_CAPACITY_SHARE:g} % of the baseline's capacity)"

    @property
    def change_text(self) -> str:
        """The latencies before and after: ``38 ms → 21 ms``."""
        side_latencies = (self.baseline, self.best)
        return " → ".join(side.short_text if side else UNMEASURED_TEXT for side in side_latencies)

    @property
    def text(self) -> str:
        """The latencies with their intervals, and the reasons for bounds."""
        side_latencies = (self.baseline, self.best)
        latencies = " → ".join(str(side) if side else UNMEASURED_TEXT for side in side_latencies)
        return "; ".join([f"{self.percentile} {latencies} at {self.rate_text}", *self.reasons])

    @property
    def reasons(self) -> list[str]:
        """The reasons for bounds: ``baseline above the capacity of 350/s``."""
        return [f"{side_name} {side.why}" for side_name, side in self.sides.items() if side.why]


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
        """Return the estimated latency percentile at ``rate`` requests/s."""
        if capacity_bound := bound_by_capacity(rate, self.capacity, self.limit_seconds):
            return capacity_bound
        bands = (self.median, self.low, self.high)
        median, low_latency, high_latency = (_interpolate(self.rates, band, rate) for band in bands)
        if rate < self.rates[0]:
            why = f"extrapolated: the lowest measured rate is {fmt.format_rate(self.rates[0])}/s"
            return LatencyEstimate(high_latency, low_latency, high_latency, AT_MOST_BOUND, why)
        if rate > self.rates[-1]:
            why = f"extrapolated: the highest measured rate is {fmt.format_rate(self.rates[-1])}/s"
            return LatencyEstimate(low_latency, low_latency, high_latency, MORE_THAN_BOUND, why)
        return LatencyEstimate(median, low_latency, high_latency)


def bound_by_capacity(
    rate: float, capacity: Peak | None, limit_seconds: float
) -> LatencyEstimate | None:
    """Return a lower bound of the percentile if ``rate`` exceeds the capacity, else ``None``."""
    if capacity is None or not capacity.is_feasible or rate <= capacity.high:
        return None
    bound_reason = f"above the capacity of {fmt.format_rate(capacity.peak)}/s"
    return LatencyEstimate(
        limit_seconds, limit_seconds, limit_seconds, MORE_THAN_BOUND, bound_reason
    )


def find_today_latency(figures: StudyFigures) -> TodayLatency | None:
    """Return the latency at today's rate as measured; ``None`` if it is unknown on both sides."""
    rate = find_today_rate(figures.study.readings, figures.target.load.today)
    sides = find_known_latencies(figures, rate) if rate is not None else {}
    if rate is None or not sides:
        return None
    return TodayLatency(
        fmt.format_percentile(figures.target.slo.objective),
        rate,
        figures.target.load.today is not None,
        sides.get("baseline"),
        sides.get("best"),
    )


def find_today_rate(
    records: Iterable[RecordedReading], declared_rate: float | None
) -> float | None:
    """Return the rate of the latency readings, or else ``declared_rate``, the target's rate of today.

    The generator may have rounded the declared rate. Readings at other rates are ignored.
    """
    rates = [
        record.rate
        for record in records
        if record.purpose == TODAY_PURPOSE
        and (
            declared_rate is None
            or isclose(record.rate, declared_rate, rel_tol=MAX_ROUNDING_SHARE, abs_tol=1.0)
        )
    ]
    return rates[-1] if rates else declared_rate


def find_known_latencies(figures: StudyFigures, rate: float) -> dict[str, LatencyEstimate]:
    """Return each side's percentile at ``rate``: as measured, or a lower bound if ``rate`` exceeds the
    side's capacity.
    """
    slo, timeout = figures.target.slo.objective, figures.target.request_timeout
    sides = figures.conclusion.sides
    latencies = {
        side_name: bound_by_capacity(rate, sides[side_name].best_estimate, slo.limit)
        or measure_latency(readings, rate, slo, timeout)
        for side_name, readings in figures.readings_by_side().items()
    }
    return {side_name: latency for side_name, latency in latencies.items() if latency is not None}


def measure_latency(
    records: Iterable[RecordedReading], rate: float, slo: Slo, timeout_seconds: float
) -> LatencyEstimate | None:
    """Return the percentile as measured at exactly this rate; ``None`` if no reading has this rate."""
    estimates = [
        _estimate_percentile(record.reading, slo, timeout_seconds)
        for record in records
        if record.purpose == TODAY_PURPOSE
        and isclose(record.rate, rate)
        and record.intended
        and record.reading.is_valid
    ]
    if not estimates:
        return None
    return LatencyEstimate(*compute_mean_with_interval(estimates), is_measured=True)


def _estimate_percentile(reading: Reading, slo: Slo, timeout_seconds: float) -> Estimate:
    """Return the percentile of one reading, with the sd that repeated readings would have."""
    share_sd = sqrt(slo.quantile * (1 - slo.quantile) / reading.intended)
    low, percentile, high_latency = (
        _find_percentile(reading, min(slo.quantile + sd_count * share_sd, 1.0), timeout_seconds)
        for sd_count in (-1, 0, 1)
    )
    return Estimate(log(percentile), log(high_latency / low) / 2).widen_by_noise(READING_LOG_SD)


def _find_percentile(reading: Reading, quantile: float, timeout_seconds: float) -> float:
    """Return a percentile in seconds, or the request timeout if too few responses arrived."""
    latency = None if reading.truncated else reading.percentile(quantile)
    return max(latency or timeout_seconds, 1e-6)


def fit_latency_curves(figures: StudyFigures) -> dict[str, LatencyCurve]:
    """Return the latency curves of baseline and best, if each has enough readings. Raises AutotuneError
    for damaged readings.
    """
    if figures.target.command_goal is not None:
        return {}
    slo, timeout = figures.target.slo.objective, figures.target.request_timeout
    sides = figures.conclusion.sides
    curves = {
        side_name: fit_curve(readings, slo, timeout, sides[side_name].best_estimate)
        for side_name, readings in figures.readings_by_side().items()
    }
    return {side_name: curve for side_name, curve in curves.items() if curve is not None}


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
    points = sorted(_build_log_point(reading, slo, timeout_seconds) for reading in readings)
    crossing_estimate = capacity.estimate if capacity and capacity.is_feasible else None
    capacity_estimate = crossing_estimate if _is_latency_bound(readings, slo) else None
    lowest_log_rate, highest_log_rate = points[0][0], points[-1][0]
    log_rate_grid = [
        lowest_log_rate + (highest_log_rate - lowest_log_rate) * grid_index / (GRID_RATES - 1)
        for grid_index in range(GRID_RATES)
    ]
    rng = Random(len(points))  # noqa: S311  # a sample, not a secret
    sample_size = max(MIN_READINGS, len(points) // 2)
    curves = [
        _fit_log_curve(
            sorted(rng.choices(points, k=sample_size)),
            log_rate_grid,
            _draw_capacity(capacity_estimate, rng),
            slo,
        )
        for _ in range(BOOTSTRAP_CURVES)
    ]
    sorted_columns = [sorted(column) for column in zip(*curves, strict=True)]
    median, low, high_curve = (
        tuple(exp(column[round(share * (BOOTSTRAP_CURVES - 1))]) for column in sorted_columns)
        for share in (0.5, 0.05, 0.95)
    )
    peak = capacity if crossing_estimate else None
    return LatencyCurve(tuple(map(exp, log_rate_grid)), median, low, high_curve, peak, slo.limit)


def _build_log_point(reading: Reading, slo: Slo, timeout_seconds: float) -> LogPoint:
    latency = _find_percentile(reading, slo.quantile, timeout_seconds)
    return log(reading.rate), log(latency), max(reading.seconds, 1e-3)


def _is_latency_bound(readings: Sequence[Reading], slo: Slo) -> bool:
    """True if latency, not only errors, violates the SLO in at least half of the readings that violate
    it.
    """
    violating_readings = [reading for reading in readings if not slo.is_met(reading)]
    slow_readings = [
        reading for reading in violating_readings if not slo.is_met(replace(reading, errors={}))
    ]
    return 2 * len(slow_readings) >= len(violating_readings)


def _draw_capacity(capacity_estimate: Estimate | None, rng: Random) -> float | None:
    return (
        None
        if capacity_estimate is None
        else rng.gauss(capacity_estimate.log_mean, capacity_estimate.sd)
    )


def _fit_log_curve(
    points: Sequence[LogPoint],
    log_rate_grid: Sequence[float],
    crossing_log_rate: float | None,
    slo: Slo,
) -> list[float]:
    """Return the curve's log seconds at the rates of the grid. The curve never falls, and reaches the
    SLO's limit at the log rate ``crossing_log_rate``.
    """
    log_rates, log_seconds = [point[0] for point in points], _fit_isotonic(points)
    if crossing_log_rate is not None:
        log_limit, crossing_index = log(slo.limit), bisect_left(log_rates, crossing_log_rate)
        lower_log_seconds, upper_log_seconds = (
            log_seconds[:crossing_index],
            log_seconds[crossing_index:],
        )
        log_seconds = [
            *(min(seconds_logarithm, log_limit) for seconds_logarithm in lower_log_seconds),
            log_limit,
            *(max(seconds_logarithm, log_limit) for seconds_logarithm in upper_log_seconds),
        ]
        log_rates = [*log_rates[:crossing_index], crossing_log_rate, *log_rates[crossing_index:]]
    return [_interpolate(log_rates, log_seconds, log_rate) for log_rate in log_rate_grid]


def _fit_isotonic(points: Sequence[LogPoint]) -> list[float]:
    """Return the least-squares fit that never falls, by the pool-adjacent-violators algorithm."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of points
    for _, log_seconds, weight in points:
        pooled_block = (log_seconds, weight, 1)
        while blocks and blocks[-1][0] >= pooled_block[0]:
            mean, block_weight, point_count = blocks.pop()
            total_weight = block_weight + pooled_block[1]
            pooled_block = (
                (mean * block_weight + pooled_block[0] * pooled_block[1]) / total_weight,
                total_weight,
                point_count + pooled_block[2],
            )
        blocks.append(pooled_block)
    return [mean for mean, _, point_count in blocks for _ in range(point_count)]


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return ``y`` at ``x``: linear between the points, constant beyond the outermost points."""
    index = bisect_left(xs, x)
    if index == 0 or index == len(xs):
        return ys[min(index, len(xs) - 1)]
    (x0, x1), (y0, y1) = xs[index - 1 : index + 1], ys[index - 1 : index + 1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def estimate_latency_at(figures: StudyFigures, rate: float) -> dict[str, LatencyEstimate]:
    """Return each side's percentile at ``rate`` (requests/s): as measured, or else from the curve."""
    curves = fit_latency_curves(figures)
    estimates = {side_name: curve.estimate_at(rate) for side_name, curve in curves.items()}
    return {**estimates, **find_known_latencies(figures, rate)}
