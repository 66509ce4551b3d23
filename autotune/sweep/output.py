"""A sweep as a table for a terminal, as JSON, and as one HTML file that works offline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.report import format as fmt
from autotune.report.page import encode_json, encode_plotly, load_templates, write_atomically
from autotune.services.base import Value
from autotune.sweep import figures
from autotune.sweep.figures import Diagram, Series, SeriesPoint
from autotune.sweep.results import Mean, Result, SweepResults
from autotune.target.messages import format_count

SCHEMA_VERSION = 1
MAX_SERIES_COLUMNS = 12  # maximum number of series per table on a terminal
# Maximum number of diagrams below one another; more are drawn side by side.
MAX_STACKED_DIAGRAMS = 6
# An axis is logarithmic if its largest value exceeds its smallest value by more than this factor.
LOG_AXIS_RATIO = 15.0


def build_sweep_json(sweep: SweepResults) -> dict[str, Any]:
    """Return the sweep as one JSON object with every point. Times are in seconds, rates in requests/s."""
    best_result = figures.find_best_result(sweep)
    return {
        "schema": SCHEMA_VERSION,
        "sweep": sweep.name,
        "title": sweep.plan.title,
        "simulated": sweep.target.simulated is not None,
        "axes": {axis.name: [c.label for c in axis.choices] for axis in sweep.plan.axes},
        "hosts": {tier: list(host_counts) for tier, host_counts in sweep.plan.hosts.items()},
        "with": dict(sweep.plan.settings),
        "rates": list(sweep.plan.rates),
        "repeat": sweep.plan.repeat,
        "left": sweep.remaining_measurements,
        "best": _build_result_json(best_result) if best_result else None,
        "points": [_build_result_json(result) for result in sweep.results],
        "differences": list(dict.fromkeys(sweep.differences)),
    }


def _build_result_json(result: Result) -> dict[str, Any]:
    result_fields = asdict(result)
    grid_point = result_fields.pop("point")
    return {"at": grid_point["labels"], "hosts": grid_point["hosts"], **result_fields}


def format_sweep(sweep: SweepResults) -> str:
    """Return the title, the best point, and a table for each diagram."""
    return "\n".join(_format_sweep_lines(sweep)) + "\n"


def format_headline(sweep: SweepResults) -> str:
    """Return one line with the best point, or with the number of measurements that remain."""
    if sweep.remaining_measurements:
        measurements_text = format_count(sweep.remaining_measurements, "measurement")
        verb_form = "remains" if sweep.remaining_measurements == 1 else "remain"
        return f"unfinished: {measurements_text} {verb_form}"
    best_result = figures.find_best_result(sweep)
    if best_result is None:
        return "no measurement succeeded"
    point_labels = [f"{name} {label}" for name, label in best_result.point.labels.items()]
    point_labels += [f"{count} {tier}" for tier, count in best_result.point.hosts.items()]
    settings_text = f"with {', '.join(point_labels)}"
    if best_result.peak:
        bound_text = "at least " if best_result.limit else ""
        limit_text = f" (limited by {best_result.limit})" if best_result.limit else ""
        interval_text = _format_interval(best_result.peak, fmt.format_rate)
        rate_text = f"{fmt.format_rate(best_result.peak.value)} requests/s"
        capacity_text = f"{bound_text}{rate_text}{interval_text}{limit_text}"
        return f"highest capacity: {capacity_text}, {settings_text}"
    assert best_result.response is not None
    response_time, rate = best_result.response.scale_by(1000.0), fmt.format_rate(best_result.rate)
    interval_text = _format_interval(response_time, lambda milliseconds: f"{milliseconds:.2f}")
    time_text = f"{response_time.value:.2f} ms{interval_text}"
    if figures.find_horizontal_parameter(sweep) is None:
        return f"highest rate within the SLO: {rate} requests/s in {time_text}, {settings_text}"
    return f"lowest response time at {rate} requests/s: {time_text}, {settings_text}"


def _format_interval(mean: Mean, format_bound: Callable[[float], str]) -> str:
    """Return the 90 % interval of a mean as text, `` [990, 1,010]``; empty for a single repeat."""
    if mean.low is None or mean.high is None:
        return ""
    return f" [{format_bound(mean.low)}, {format_bound(mean.high)}]"


def _format_sweep_lines(sweep: SweepResults) -> Iterator[str]:
    yield sweep.plan.title
    yield format_headline(sweep)
    if sweep.target.simulated is not None:
        yield "The stack is simulated; no host was touched."
    # Load averages are shown only on the page and in the JSON.
    repeats_text = format_count(sweep.plan.repeat, "reading" if sweep.plan.rates else "measurement")
    for diagram in (diagram for diagram in figures.build_diagrams(sweep) if diagram.is_main):
        yield ""
        yield f"{diagram.title} ({diagram.y_label}), mean of {repeats_text}"
        yield from (
            _format_curves(diagram)
            if figures.find_horizontal_parameter(sweep) is None
            else _format_grid(diagram)
        )
    failures = [result.failure for result in sweep.results if result.failure]
    yield from _format_reasons("Points without values", failures)
    limits = [r.limit for r in sweep.results if r.limit and r.peak and not r.failure]
    yield from _format_reasons("Effective values that differ", list(sweep.differences))
    yield from _format_reasons("Capacities that are only lower bounds, limited by", limits)


def _format_reasons(title: str, reasons: list[str]) -> Iterator[str]:
    if reasons:
        yield ""
        yield f"{title}:"
    for reason in sorted(set(reasons)):
        yield f"  {reasons.count(reason)} × {reason}"


def _format_grid(diagram: Diagram) -> Iterator[str]:
    """Yield a row for each value on the horizontal axis, with one column per series."""
    x_values: list[Value] = list(
        dict.fromkeys(point.x for s in diagram.series for point in s.points)
    )
    x_values.sort(key=lambda x: (isinstance(x, str), x if not isinstance(x, str) else 0))
    for series_start in range(0, len(diagram.series), MAX_SERIES_COLUMNS):
        series = diagram.series[series_start : series_start + MAX_SERIES_COLUMNS]
        cells_by_series = [
            {point.x: _format_cell(point) for point in one_series.points} for one_series in series
        ]
        table_rows = [[diagram.x_label, *(one_series.name for one_series in series)]]
        table_rows += [
            [str(row), *(cell.get(row, "–") for cell in cells_by_series)] for row in x_values
        ]
        yield from _align_columns(table_rows)


def _format_curves(diagram: Diagram) -> Iterator[str]:
    """Yield a row for each point, because the series do not share their horizontal values."""
    table_rows = [["", diagram.x_label, diagram.y_label]]
    for series in diagram.series:
        for point_number, point in enumerate(series.points):
            assert not isinstance(point.x, str)
            table_rows.append(
                ["" if point_number else series.name, f"{point.x:,.0f}", _format_cell(point)]
            )
    yield from _align_columns(table_rows)


def _align_columns(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded_cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(padded_cells)


def _format_cell(point: SeriesPoint) -> str:
    mean = f"{point.y:,.0f}" if abs(point.y) >= 1000 else f"{point.y:.3g}"
    if point.low is None or point.high is None:
        return mean
    half_width = (point.high - point.low) / 2
    return f"{mean} ±{half_width:,.0f}" if half_width >= 100 else f"{mean} ±{half_width:.2g}"


def render_page(sweep: SweepResults) -> str:
    """Return one self-contained HTML document, drawn with Plotly like a study's report."""
    diagrams = figures.build_diagrams(sweep)
    template = load_templates().get_template("sweep.html.j2")
    return template.render(
        sweep=sweep,
        plan=sweep.plan,
        headline=format_headline(sweep),
        panels=diagrams,
        data=encode_json({"panels": [build_diagram_data(panel) for panel in diagrams]}),
        plotly=encode_plotly(),
        many=len(diagrams) > MAX_STACKED_DIAGRAMS,
        table=format_sweep(sweep),
        simulated=sweep.target.simulated is not None,
    )


def build_diagram_data(diagram: Diagram) -> dict[str, Any]:
    """Return the data for the page's script: axes, and series with their intervals."""
    points = [point for series in diagram.series for point in series.points]
    has_text_axis = any(isinstance(point.x, str | bool) for point in points)
    y_values = [value for point in points for value in (point.y, point.high) if value is not None]
    return {
        "x": diagram.x_label,
        "y": diagram.y_label,
        "words": has_text_axis,
        "log": min(y_values) > 0 and max(y_values) / min(y_values) > LOG_AXIS_RATIO,
        "series": [
            _build_series_data(series, has_text_axis=has_text_axis) for series in diagram.series
        ],
    }


def _build_series_data(series: Series, *, has_text_axis: bool) -> dict[str, Any]:
    points = series.points
    return {
        "name": series.name,
        "x": [str(point.x) if has_text_axis else point.x for point in points],
        "y": [point.y for point in points],
        "above": [None if point.high is None else point.high - point.y for point in points],
        "below": [None if point.low is None else point.y - point.low for point in points],
    }


def write_page(sweep: SweepResults, path: Path) -> Path:
    """Write the sweep's HTML page to ``path`` atomically."""
    return write_atomically(path, render_page(sweep))
