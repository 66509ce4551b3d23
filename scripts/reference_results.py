"""The reference figures as the lab's hosts measured them, beside what was published, as a page.

``python -m scripts.reference_results`` writes it to ``docs/reference-results.md`` of a checkout, from the
sweeps recorded in ``targets/sweeps/recorded`` (what ``autotune sweep FILE --json`` prints) and from
`figures.yaml` there: what was published of each figure, and what the recorded one says to that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ruamel.yaml import YAML
from scipy.special import stdtrit

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "targets" / "sweeps" / "recorded"
FILE = ROOT / "docs" / "reference-results.md"
HEAD = """\
# Reference figures, measured again

Made by `python -m scripts.reference_results` from recorded sweeps of real hosts; a test holds it to that.
"""
Point = dict[str, Any]
Sweep = dict[str, Any]


def notes() -> dict[str, Any]:
    """What was published of each figure, and what the recorded one says to that."""
    return dict(YAML(typ="safe").load(RECORDED / "figures.yaml"))


def text() -> str:
    """What ``docs/reference-results.md`` contains."""
    written = notes()
    parts = [HEAD, written["about"]]
    for name, note in written["figures"].items():
        recorded = RECORDED / f"{name}.json"
        sweep = json.loads(recorded.read_text()) if recorded.exists() else None
        parts += _figure(name, note, sweep)
    return "\n".join(parts)


def _figure(name: str, note: dict[str, str], sweep: Sweep | None) -> Iterator[str]:
    yield f"## {note['title']}\n"
    if sweep:
        command = f"autotune sweep targets/sweeps/lab-{name}.yaml --repeat {sweep['repeat']}"
        yield f"`{command}`, measured {note['date']}. {_shown(sweep)}\n"
        yield from _table(sweep)
        yield ""
    yield f"- **Published:** {note['published']}"
    yield f"- **Here:** {note['here']}\n"


def _shown(sweep: Sweep) -> str:
    shown = "Mean response time in ms; in italics what is beyond the SLO"
    if sweep["repeat"] == 1:
        return f"{shown}. Each point was measured once:"
    if sweep["repeat"] > 2:
        return f"{shown}. Means of {sweep['repeat']} measurements:"
    differences = [_difference(point["response"]) for point in sweep["points"] if point["response"]]
    typical = f"{100 * median(differences):.0f} %"
    return f"{shown}. Two measurements of a point differ by a median of {typical}:"


def _difference(response: Point) -> float:
    """By how much the second of two readings differs from the first, as a part of their mean: from
    the mean's interval, whose half is Student's quantile times half the difference."""
    return (response["high"] - response["low"]) / response["value"] / stdtrit(1, 0.95)


def _table(sweep: Sweep) -> Iterator[str]:
    """Rows: the first axis, or deployments with numbers of hosts. Columns: what else varies."""
    axes = [*sweep["axes"]]
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for point in sweep["points"]:
        row, column = _place(point, axes, sweep)
        columns += [column] if column not in columns else []
        rows.setdefault(row, {})[column] = _cell(point)
    yield _line([f"{axes[0]}", *columns])
    yield _line(["---"] * (1 + len(columns)))
    for row, cells in rows.items():
        yield _line([row, *(cells.get(column, "") for column in columns)])


def _place(point: Point, axes: Sequence[str], sweep: Sweep) -> tuple[str, str]:
    at, hosts = point["at"], point["hosts"]
    varied = [f"{hosts[tier]} {tier}" for tier, counts in sweep["hosts"].items() if len(counts) > 1]
    rest = [f"{name.rpartition('.')[2]} {at[name]}" for name in axes[1:]]
    rates = [f"{point['rate']:g}/s"] if len(sweep["rates"]) > 1 else []
    column = ", ".join([*rest, *rates]) or f"{point['rate']:g}/s"
    return ", ".join([str(at[axes[0]]), *varied]), column


def _cell(point: Point) -> str:
    """A dash where nothing was answered."""
    response = point["response"]
    if response is None:
        return "–"
    value = f"{1000 * response['value']:.3g}"
    return value if point["met"] else f"*{value}*"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
