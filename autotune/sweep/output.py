"""A sweep as a table for a terminal, as JSON, and as one HTML file that works offline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.report.page import embed, plotly, templates, write_whole
from autotune.services.base import Value
from autotune.sweep import figures
from autotune.sweep.figures import Dot, Panel, Series
from autotune.sweep.results import Result, SweepResults

SCHEMA = 1
COLUMNS = 12  # series per table on a terminal
MANY = 6  # diagrams; more are drawn side by side
WIDE = 15.0  # ratio of values from which the axis is logarithmic


def as_json(sweep: SweepResults) -> dict[str, Any]:
    """Return one object with every point; times in seconds, rates in requests/s."""
    best = figures.best(sweep)
    return {
        "schema": SCHEMA,
        "sweep": sweep.name,
        "title": sweep.plan.title,
        "simulated": sweep.target.simulated is not None,
        "axes": {axis.name: [c.label for c in axis.choices] for axis in sweep.plan.axes},
        "hosts": {tier: list(counts) for tier, counts in sweep.plan.hosts.items()},
        "with": dict(sweep.plan.settings),
        "rates": list(sweep.plan.rates),
        "repeat": sweep.plan.repeat,
        "left": sweep.left,
        "best": _result(best) if best else None,
        "points": [_result(result) for result in sweep.results],
    }


def _result(result: Result) -> dict[str, Any]:
    fields = asdict(result)
    point = fields.pop("point")
    return {"at": point["labels"], "hosts": point["hosts"], **fields}


def as_text(sweep: SweepResults) -> str:
    """Return the title, the best point, then a table for each diagram."""
    return "\n".join(_lines(sweep)) + "\n"


def headline(sweep: SweepResults) -> str:
    """Return the best point in one line."""
    if sweep.left:
        return f"unfinished: {sweep.left} measurements remain"
    best = figures.best(sweep)
    if best is None:
        return "no measurement succeeded"
    labels = [f"{name} {label}" for name, label in best.point.labels.items()]
    labels += [f"{count} {tier}" for tier, count in best.point.hosts.items()]
    where = f"with {', '.join(labels)}"
    if best.peak:
        bound = "at least " if best.limit else ""
        limited = f" (limited by {best.limit})" if best.limit else ""
        return f"highest capacity: {bound}{best.peak.value:,.0f} requests/s{limited}, {where}"
    assert best.response is not None
    time = f"{1000 * best.response.value:.2f} ms"
    if figures.over(sweep) is None:
        return f"highest rate within the SLO: {best.rate:,.0f} requests/s in {time}, {where}"
    return f"lowest response time at {best.rate:,.0f} requests/s: {time}, {where}"


def _lines(sweep: SweepResults) -> Iterator[str]:
    yield sweep.plan.title
    yield headline(sweep)
    if sweep.target.simulated is not None:
        yield "The stack is simulated; no host was touched."
    # Load averages are only on the page and in the JSON.
    for panel in (panel for panel in figures.panels(sweep) if panel.main):
        yield ""
        yield f"{panel.title} ({panel.y}), mean of {sweep.plan.repeat}"
        yield from (_curves(panel) if figures.over(sweep) is None else _grid(panel))
    failures = [result.failure for result in sweep.results if result.failure]
    if failures:
        yield ""
        yield "Points without values:"
        for failure in sorted(set(failures)):
            yield f"  {failures.count(failure)} × {failure}"


def _grid(panel: Panel) -> Iterator[str]:
    """Yield a row for each value on the horizontal axis, with a column for each series."""
    rows: list[Value] = list(dict.fromkeys(dot.x for s in panel.series for dot in s.dots))
    rows.sort(key=lambda x: (isinstance(x, str), x if not isinstance(x, str) else 0))
    for start in range(0, len(panel.series), COLUMNS):
        series = panel.series[start : start + COLUMNS]
        cells = [{dot.x: _cell(dot) for dot in of.dots} for of in series]
        table = [[panel.x, *(of.name for of in series)]]
        table += [[str(row), *(cell.get(row, "–") for cell in cells)] for row in rows]
        yield from _table(table)


def _curves(panel: Panel) -> Iterator[str]:
    """Yield a row for each point, because the series share no horizontal axis."""
    table = [["", panel.x, panel.y]]
    for series in panel.series:
        for number, dot in enumerate(series.dots):
            assert not isinstance(dot.x, str)
            table.append(["" if number else series.name, f"{dot.x:,.0f}", _cell(dot)])
    yield from _table(table)


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(cells)


def _cell(dot: Dot) -> str:
    mean = f"{dot.y:,.0f}" if abs(dot.y) >= 1000 else f"{dot.y:.3g}"
    if dot.low is None or dot.high is None:
        return mean
    half = (dot.high - dot.low) / 2
    return f"{mean} ±{half:,.0f}" if half >= 100 else f"{mean} ±{half:.2g}"


def page(sweep: SweepResults) -> str:
    """Return one self-contained HTML document, drawn with Plotly like a study's report."""
    panels = figures.panels(sweep)
    template = templates().get_template("sweep.html.j2")
    return template.render(
        sweep=sweep,
        plan=sweep.plan,
        headline=headline(sweep),
        panels=panels,
        data=embed({"panels": [panel_data(panel) for panel in panels]}),
        plotly=plotly(),
        many=len(panels) > MANY,
        table=as_text(sweep),
        simulated=sweep.target.simulated is not None,
    )


def panel_data(panel: Panel) -> dict[str, Any]:
    """Return the data for the page's script: axes, and series with their intervals."""
    dots = [dot for series in panel.series for dot in series.dots]
    words = any(isinstance(dot.x, str | bool) for dot in dots)
    values = [value for dot in dots for value in (dot.y, dot.high) if value is not None]
    return {
        "x": panel.x,
        "y": panel.y,
        "words": words,
        "log": min(values) > 0 and max(values) / min(values) > WIDE,
        "series": [_series_data(series, words=words) for series in panel.series],
    }


def _series_data(series: Series, *, words: bool) -> dict[str, Any]:
    dots = series.dots
    return {
        "name": series.name,
        "x": [str(dot.x) if words else dot.x for dot in dots],
        "y": [dot.y for dot in dots],
        "above": [None if dot.high is None else dot.high - dot.y for dot in dots],
        "below": [None if dot.low is None else dot.y - dot.low for dot in dots],
    }


def write_page(sweep: SweepResults, path: Path) -> Path:
    """Write the page atomically."""
    return write_whole(path, page(sweep))
