"""The diagrams of a sweep: quantities, axes and series, in pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from autotune.services.base import Value
from autotune.sweep.plan import SERVICE_AXIS
from autotune.sweep.results import Mean, Result, SweepResults

OVERLOAD_VIOLATION_SHARE = 0.5  # share of violations above which a point is not drawn


@dataclass(frozen=True)
class SeriesPoint:
    """A point of a series: ``x`` is a number, or a text on a categorical axis."""

    x: Value
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Series:
    name: str
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True)
class Diagram:
    """One diagram. ``is_main`` is false for diagrams of the hosts' load."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    is_main: bool = True


@dataclass(frozen=True)
class _PlottedQuantity:
    title: str
    unit: str
    read_mean: Callable[[Result], Mean | None]
    is_main: bool = True


def build_diagrams(sweep: SweepResults) -> tuple[Diagram, ...]:
    """Return the diagrams: response time (or capacity) first, then the load average of each tier.

    The horizontal axis is the first numeric parameter. If only services and host counts vary, the
    horizontal axis is the throughput. Each combination of host counts then gets its own diagram, as in
    the reference figures.
    """
    host_combinations = sweep.plan.host_combinations
    is_split_by_hosts = find_horizontal_parameter(sweep) is None and len(host_combinations) > 1
    diagrams = [
        _build_diagram(sweep, quantity, host_counts)
        for quantity in _list_quantities(sweep)
        for host_counts in (host_combinations if is_split_by_hosts else (None,))
    ]
    return tuple(diagram for diagram in diagrams if any(series.points for series in diagram.series))


def find_horizontal_parameter(sweep: SweepResults) -> str | None:
    """Return the name of the parameter on the horizontal axis; ``None`` for the throughput."""
    numeric_names = [axis.name for axis in sweep.plan.axes if axis.is_numeric]
    if numeric_names:
        return numeric_names[0]
    if sweep.plan.rates:
        return None
    axis_names = [axis.name for axis in sweep.plan.axes]
    return axis_names[0] if axis_names else "hosts"


def find_best_result(sweep: SweepResults) -> Result | None:
    """Return the best result of the sweep.

    Without fixed rates, the highest capacity is best. With a parameter on the horizontal axis, the
    lowest mean response time at the highest rate is best, and points within the SLO come first. With
    the throughput on the horizontal axis, the highest rate within the SLO is best, and equal rates are
    ranked by mean response time.
    """
    if not sweep.plan.rates:
        capacity_results = [r for r in sweep.results if r.peak and not r.failure]
        return max(capacity_results, key=lambda r: r.peak.value if r.peak else 0.0, default=None)
    timed_results = [r for r in sweep.results if r.response and not r.failure]
    if find_horizontal_parameter(sweep) is None:
        timed_results = [r for r in timed_results if r.met]
    top_rate = max((r.rate for r in timed_results if r.rate is not None), default=None)
    results_at_top_rate = [r for r in timed_results if r.rate == top_rate]
    # A point that rejects many requests may serve the others fast.
    return min(
        results_at_top_rate,
        key=lambda r: (not r.met, r.response.value if r.response else 0.0),
        default=None,
    )


def _list_quantities(sweep: SweepResults) -> Iterator[_PlottedQuantity]:
    if not sweep.plan.rates:
        yield _PlottedQuantity("Capacity within the SLO", "requests/s", lambda result: result.peak)
        return
    yield _PlottedQuantity(
        "Response time", "ms", lambda r: r.response and r.response.scale_by(1000.0)
    )
    for tier in sweep.target.tiers:
        yield _PlottedQuantity(
            f"Load average, {tier}", "load average", partial(_read_tier_load, tier), is_main=False
        )


def _read_tier_load(tier: str, result: Result) -> Mean | None:
    return result.load.get(tier)


def _build_diagram(
    sweep: SweepResults, quantity: _PlottedQuantity, host_counts: Mapping[str, int] | None
) -> Diagram:
    horizontal_name = find_horizontal_parameter(sweep)
    points_by_series: dict[str, list[SeriesPoint]] = {}
    for result in sweep.results:
        if host_counts is not None and result.point.hosts != host_counts:
            continue
        series_points = points_by_series.setdefault(
            format_series_name(sweep, result, horizontal_name, title_shows_hosts=bool(host_counts)),
            [],
        )
        if (
            series_point := _build_series_point(
                sweep, result, horizontal_name, quantity.read_mean(result)
            )
        ) is not None:
            series_points.append(series_point)
    x_label = horizontal_name or ("keys/s" if sweep.plan.keys > 1 else "requests/s answered")
    title = (
        f"{quantity.title}: {_format_host_counts(_select_varied_tiers(sweep, host_counts))}"
        if host_counts
        else quantity.title
    )
    series_list = tuple(Series(name, tuple(points)) for name, points in points_by_series.items())
    return Diagram(title, x_label, quantity.unit, series_list, quantity.is_main)


def _build_series_point(
    sweep: SweepResults, result: Result, horizontal_name: str | None, mean: Mean | None
) -> SeriesPoint | None:
    if mean is None or result.failure:
        return None
    if horizontal_name is not None:
        x_value = result.point.labels.get(horizontal_name, _format_host_counts(result.point.hosts))
        return SeriesPoint(x_value, mean.value, mean.low, mean.high)
    # A curve plotted against throughput ends where the stack no longer serves the offered load.
    if result.throughput is None or (result.violations or 0.0) > OVERLOAD_VIOLATION_SHARE:
        return None
    return SeriesPoint(result.throughput.value * sweep.plan.keys, mean.value, mean.low, mean.high)


def format_series_name(
    sweep: SweepResults,
    result: Result,
    horizontal_name: str | None,
    *,
    title_shows_hosts: bool = False,
) -> str:
    """Return the name of a series: the short names and values of all varied settings, except the
    setting on the horizontal axis.

    With ``title_shows_hosts``, the diagram's title already shows the host counts.
    """
    name_parts = [
        str(value_label) if name == SERVICE_AXIS else f"{name.rpartition('.')[2]} {value_label}"
        for name, value_label in result.point.labels.items()
        if name != horizontal_name
    ]
    varied_tiers = _select_varied_tiers(sweep, result.point.hosts)
    if varied_tiers and horizontal_name != "hosts" and not title_shows_hosts:
        name_parts.append(_format_host_counts(varied_tiers))
    if horizontal_name is not None and len(sweep.plan.rates) > 1:
        name_parts.append(f"{result.rate:g}/s")
    return " · ".join(name_parts) or sweep.plan.title


def _select_varied_tiers(sweep: SweepResults, host_counts: Mapping[str, int]) -> dict[str, int]:
    return {tier: n for tier, n in host_counts.items() if len(sweep.plan.hosts[tier]) > 1}


def _format_host_counts(host_counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {tier}" for tier, count in host_counts.items())
