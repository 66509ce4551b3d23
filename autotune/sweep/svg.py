"""A panel as SVG: lines, intervals, axes. Nothing but text comes out, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from autotune.services.base import Value
from autotune.sweep.figure import Panel, Series

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 74, 34, 14, 46
LEGEND_LINE, LEGEND_COLUMN = 20, 270
WIDE = 15.0  # ratio from which values are drawn on a logarithmic axis
COLOURS = 10  # classes c0 … c9 of the page's style, then dashed
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Axis:
    """Where values go: ``place`` maps a value to pixels; ``ticks`` are values with their labels."""

    place: Scale
    ticks: tuple[tuple[float, str], ...]


def draw(panel: Panel) -> str:
    """The panel as one ``<svg>`` element; its colours are classes of the page it stands in."""
    words = _words(panel)
    at = _positions(words)
    xs = [at(dot.x) for series in panel.series for dot in series.dots]
    ys = [v for s in panel.series for d in s.dots for v in (d.y, d.high) if v is not None]
    across = _word_axis(words) if words else _axis(xs, LEFT, WIDTH - RIGHT, log=False)
    positive = min(ys) > 0 and max(ys) / min(ys) > WIDE
    up = _axis(ys if positive else [0.0, *ys], HEIGHT - BOTTOM, TOP, log=positive)
    columns = max(1, (WIDTH - LEFT) // LEGEND_COLUMN)
    height = HEIGHT + LEGEND_LINE * ceil(len(panel.series) / columns)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(panel.title)}">',
        *_grid(across, up, panel),
    ]
    for number, series in enumerate(panel.series):
        if series.dots:
            parts += _series(number, series, at, across.place, up.place, panel)
        parts += _legend(number, series.name, columns)
    return "\n".join([*parts, "</svg>"])


def _words(panel: Panel) -> tuple[str, ...]:
    found = [dot.x for series in panel.series for dot in series.dots]
    if any(isinstance(x, str | bool) for x in found):
        return tuple(dict.fromkeys(map(str, found)))
    return ()


def _positions(words: Sequence[str]) -> Callable[[Value], float]:
    return (lambda x: float(words.index(str(x)))) if words else float


def _word_axis(words: Sequence[str]) -> Axis:
    step = (WIDTH - RIGHT - LEFT) / len(words)
    return Axis(
        lambda v: LEFT + step * (v + 0.5), tuple((float(i), w) for i, w in enumerate(words))
    )


def _axis(values: Sequence[float], begin: float, end: float, *, log: bool) -> Axis:
    low, high = min(values), max(values)
    if log:
        low, high = log10(low), log10(high)
        margin = max(0.05 * (high - low), 0.02)
        bottom, top = low - margin, high + margin
        ticks = _log_ticks(bottom, top)
        # An interval may reach below what a logarithm has a place for.
        least = 10.0**bottom
        return Axis(lambda v: _between(log10(max(v, least)), bottom, top, begin, end), ticks)
    if high == low:
        low, high = low - 0.5 * abs(low) - 0.5, high + 0.5 * abs(high) + 0.5
    step = _step(high - low)
    bottom, top = step * floor(low / step), step * ceil(high / step)
    count = round((top - bottom) / step)
    ticks = tuple((bottom + i * step, _said(bottom + i * step, step)) for i in range(count + 1))
    return Axis(lambda v: _between(v, bottom, top, begin, end), ticks)


def _between(value: float, low: float, high: float, begin: float, end: float) -> float:
    return begin + (value - low) / (high - low) * (end - begin)


def _step(span: float) -> float:
    """A round distance between ticks: some six of them."""
    rough = span / 6
    power = 10.0 ** floor(log10(rough))
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= rough))


def _log_ticks(bottom: float, top: float) -> tuple[tuple[float, str], ...]:
    every = [m * 10.0**p for p in range(floor(bottom), ceil(top) + 1) for m in (1, 2, 5)]
    return tuple((v, f"{v:g}") for v in every if bottom <= log10(v) <= top)


def _said(value: float, step: float) -> str:
    return f"{value:,.0f}" if step >= 1 else f"{value:.{max(1, ceil(-log10(step)))}f}"


def _grid(across: Axis, up: Axis, panel: Panel) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    lines = [
        f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"/>'
    ]
    for value, label in up.ticks:
        y = up.place(value)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for value, label in across.ticks:
        x = across.place(value)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        lines.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{escape(label)}</text>"
        )
    middle = (LEFT + right) / 2
    lines.append(
        f'<text class="axis" x="{middle}" y="{bottom + 36}" text-anchor="middle">'
        f"{escape(panel.x)}</text>"
    )
    lines.append(
        f'<text class="axis" transform="translate(16 {(TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(panel.y)}</text>'
    )
    return lines


def _series(
    number: int, series: Series, at: Callable[[Value], float], x: Scale, y: Scale, panel: Panel
) -> list[str]:
    """Dots are joined in the order they come in: of their axis, or of the rate offered."""
    style, bottom = _class(number), HEIGHT - BOTTOM
    path = " ".join(f"{x(at(dot.x)):.1f},{y(dot.y):.1f}" for dot in series.dots)
    lines = [f'<polyline class="line {style}" points="{path}"/>']
    for dot in series.dots:
        cx = f"{x(at(dot.x)):.1f}"
        if dot.low is not None and dot.high is not None:
            lines.append(
                f'<line class="bar {style}" x1="{cx}" x2="{cx}" y1="{min(y(dot.low), bottom):.1f}" '
                f'y2="{max(y(dot.high), TOP):.1f}"/>'
            )
        said = f"{series.name}: {_number(dot.y)} {panel.y} at {panel.x} {_number(dot.x)}"
        lines.append(
            f'<circle class="dot {style}" cx="{cx}" cy="{y(dot.y):.1f}" r="3">'
            f"<title>{escape(said)}</title></circle>"
        )
    return lines


def _number(value: Value) -> str:
    if isinstance(value, str | bool):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _class(number: int) -> str:
    return f"c{number % COLOURS}" + (" dashed" if number >= COLOURS else "")


def _legend(number: int, name: str, columns: int) -> list[str]:
    x = LEFT + number % columns * LEGEND_COLUMN
    y = HEIGHT + 6 + number // columns * LEGEND_LINE
    style = _class(number)
    return [
        f'<line class="line {style}" x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"/>',
        f'<text class="tick" x="{x + 28}" y="{y + 4}">{escape(name)}</text>',
    ]
