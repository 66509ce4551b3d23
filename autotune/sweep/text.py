"""A sweep as a table for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from autotune.services.base import Value
from autotune.sweep import figures
from autotune.sweep.figures import Panel
from autotune.sweep.results import Result, SweepResults

SCHEMA = 1
MANY = 12  # series beside each other on a terminal


def document(sweep: SweepResults) -> dict[str, Any]:
    """One object with every point; times in seconds, rates in requests/s."""
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


def render(sweep: SweepResults) -> str:
    """The title, what is best, then a table for each diagram."""
    return "\n".join(_lines(sweep)) + "\n"


def headline(sweep: SweepResults) -> str:
    """What was found best, in a line."""
    if sweep.left:
        return f"unfinished: {sweep.left} of the measurements are still to be made"
    best = figures.best(sweep)
    if best is None:
        return "nothing could be measured"
    where = ", ".join(
        [*(f"{name} {label}" for name, label in best.point.labels.items()),
         *(f"{count} {tier}" for tier, count in best.point.hosts.items())]
    )  # fmt: skip
    if best.peak:
        return f"highest peak, {best.peak.value:,.0f} requests/s, with {where}"
    assert best.response is not None
    time = f"{1000 * best.response.value:.2f} ms"
    if figures.over(sweep) is None:
        return f"most within the objective: {best.rate:,.0f} requests/s, in {time}, with {where}"
    return f"least response time at {best.rate:,.0f} requests/s, {time}, with {where}"


def _lines(sweep: SweepResults) -> Iterator[str]:
    yield sweep.plan.title
    yield headline(sweep)
    if sweep.target.simulated is not None:
        yield "The stack is a model: no host was touched."
    # The load averages of every tier are drawn on the page and are in the JSON.
    for panel in (panel for panel in figures.panels(sweep) if panel.main):
        yield ""
        yield f"{panel.title} ({panel.y}), mean of {sweep.plan.repeat}"
        yield from (_curves(panel) if figures.over(sweep) is None else _grid(panel))
    failed = sorted({result.failure for result in sweep.results if result.failure})
    if failed:
        yield ""
        yield "Without values:"
        for why in failed:
            number = sum(result.failure == why for result in sweep.results)
            yield f"  {number} × {why}"


def _grid(panel: Panel) -> Iterator[str]:
    """A row for each value on the horizontal axis, a column for each series."""
    rows: list[Value] = list(dict.fromkeys(dot.x for s in panel.series for dot in s.dots))
    rows.sort(key=lambda x: (isinstance(x, str), x if not isinstance(x, str) else 0))
    for start in range(0, len(panel.series), MANY):
        chosen = panel.series[start : start + MANY]
        cells = [{dot.x: _cell(dot.y, dot.low, dot.high) for dot in s.dots} for s in chosen]
        table = [[panel.x, *(s.name for s in chosen)]]
        table += [[str(row), *(cell.get(row, "–") for cell in cells)] for row in rows]
        yield from _table(table)


def _curves(panel: Panel) -> Iterator[str]:
    """A row for each point: there is no common horizontal axis."""
    table = [["", panel.x, panel.y]]
    for series in panel.series:
        for number, dot in enumerate(series.dots):
            name = series.name if number == 0 else ""
            assert not isinstance(dot.x, str)
            table.append([name, f"{dot.x:,.0f}", _cell(dot.y, dot.low, dot.high)])
    yield from _table(table)


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(["  " + first, *others])


def _cell(value: float, low: float | None, high: float | None) -> str:
    mean = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if low is None or high is None:
        return mean
    half = (high - low) / 2
    return f"{mean} ±{half:,.0f}" if half >= 1000 else f"{mean} ±{half:.2g}"
