"""A sweep as one HTML file that works offline, drawn by the same Plotly as a study's report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.report.page import embed, plotly, templates, write_whole
from autotune.sweep import figures, text
from autotune.sweep.figures import Panel, Series
from autotune.sweep.results import SweepResults

MANY = 6  # diagrams from which on they stand side by side
WIDE = 15.0  # ratio from which values are drawn on a logarithmic axis


def page(sweep: SweepResults) -> str:
    """The whole document."""
    panels = figures.panels(sweep)
    return (
        templates()
        .get_template("sweep.html.j2")
        .render(
            sweep=sweep,
            plan=sweep.plan,
            headline=text.headline(sweep),
            panels=panels,
            data=embed({"panels": [panel_data(panel) for panel in panels]}),
            plotly=plotly(),
            many=len(panels) > MANY,
            table=text.render(sweep),
            simulated=sweep.target.simulated is not None,
        )
    )


def panel_data(panel: Panel) -> dict[str, Any]:
    """What the page's script draws: axes, and the points of each series with their intervals."""
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


def write(sweep: SweepResults, path: Path) -> Path:
    """Write the page, whole or not at all."""
    return write_whole(path, page(sweep))
