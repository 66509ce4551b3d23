"""A sweep as figures: quantities, axes and series. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from autotune.services.base import Value
from autotune.sweep.plan import SERVICE
from autotune.sweep.results import Mean, Result, SweepResults

OVERLOADED = 0.5  # fraction of violations


@dataclass(frozen=True)
class Dot:
    """A point of a series: ``x`` is a number, or a word on a categorical axis."""

    x: Value
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Series:
    name: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class Panel:
    """One diagram. ``main`` is false for diagrams of the hosts' load."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    main: bool = True


@dataclass(frozen=True)
class _Quantity:
    title: str
    unit: str
    of: Callable[[Result], Mean | None]
    main: bool = True


def panels(sweep: SweepResults) -> tuple[Panel, ...]:
    """Return the diagrams: response time (or capacity) first, then the load average of each tier.

    The horizontal axis is the first numeric parameter. If only services and host counts vary, it is the
    throughput, with one diagram for each combination of hosts, as in the reference figures.
    """
    combinations = sweep.plan.combinations
    each_alone = over(sweep) is None and len(combinations) > 1
    charts = [
        _panel(sweep, quantity, hosts)
        for quantity in _quantities(sweep)
        for hosts in (combinations if each_alone else (None,))
    ]
    return tuple(panel for panel in charts if any(series.dots for series in panel.series))


def over(sweep: SweepResults) -> str | None:
    """Return the parameter on the horizontal axis; ``None`` for the throughput."""
    numeric = [axis.name for axis in sweep.plan.axes if axis.numeric]
    if numeric:
        return numeric[0]
    if sweep.plan.rates:
        return None
    words = [axis.name for axis in sweep.plan.axes]
    return words[0] if words else "hosts"


def best(sweep: SweepResults) -> Result | None:
    """Return the best point.

    Without fixed rates, the highest capacity is best. Over a parameter, the lowest mean response time
    at the highest sustained rate of any point is best. Over the throughput, the highest rate within the
    SLO is best, then the lowest mean response time.
    """
    if not sweep.plan.rates:
        peaks = [r for r in sweep.results if r.peak]
        return max(peaks, key=lambda r: r.peak.value if r.peak else 0.0, default=None)
    timed = [r for r in sweep.results if r.response and not r.failure]
    if over(sweep) is None:
        timed = [r for r in timed if r.met]
    top = max((r.rate for r in timed if r.rate is not None), default=None)
    highest = [r for r in timed if r.rate == top]
    return min(highest, key=lambda r: r.response.value if r.response else 0.0, default=None)


def _quantities(sweep: SweepResults) -> Iterator[_Quantity]:
    if not sweep.plan.rates:
        yield _Quantity("Capacity within the SLO", "requests/s", lambda result: result.peak)
        return
    yield _Quantity("Response time", "ms", lambda r: r.response and r.response.scaled(1000.0))
    for tier in sweep.target.tiers:
        yield _Quantity(f"Load average, {tier}", "load average", partial(_load, tier), main=False)


def _load(tier: str, result: Result) -> Mean | None:
    return result.load.get(tier)


def _panel(sweep: SweepResults, quantity: _Quantity, hosts: Mapping[str, int] | None) -> Panel:
    horizontal = over(sweep)
    dots: dict[str, list[Dot]] = {}
    for result in sweep.results:
        if hosts is not None and result.point.hosts != hosts:
            continue
        series = dots.setdefault(series_name(sweep, result, horizontal, alone=bool(hosts)), [])
        if (dot := _dot(sweep, result, horizontal, quantity.of(result))) is not None:
            series.append(dot)
    x = horizontal or ("keys/s" if sweep.plan.keys > 1 else "requests/s answered")
    title = f"{quantity.title}: {_hosts(_varied(sweep, hosts))}" if hosts else quantity.title
    named = tuple(Series(name, tuple(of_series)) for name, of_series in dots.items())
    return Panel(title, x, quantity.unit, named, quantity.main)


def _dot(sweep: SweepResults, result: Result, horizontal: str | None, y: Mean | None) -> Dot | None:
    if y is None or result.failure:
        return None
    if horizontal is not None:
        label = result.point.labels.get(horizontal, _hosts(result.point.hosts))
        return Dot(label, y.value, y.low, y.high)
    # A line over the throughput stops once the stack no longer answers the offered load.
    if result.throughput is None or (result.violations or 0.0) > OVERLOADED:
        return None
    return Dot(result.throughput.value * sweep.plan.keys, y.value, y.low, y.high)


def series_name(
    sweep: SweepResults, result: Result, horizontal: str | None, *, alone: bool = False
) -> str:
    """Return short names of everything that varies, except on the horizontal axis.

    With ``alone``, the diagram's title already shows the host counts.
    """
    labels = [
        str(label) if name == SERVICE else f"{name.rpartition('.')[2]} {label}"
        for name, label in result.point.labels.items()
        if name != horizontal
    ]
    varied = _varied(sweep, result.point.hosts)
    if varied and horizontal != "hosts" and not alone:
        labels.append(_hosts(varied))
    if horizontal is not None and len(sweep.plan.rates) > 1:
        labels.append(f"{result.rate:g}/s")
    return " · ".join(labels) or sweep.plan.title


def _varied(sweep: SweepResults, hosts: Mapping[str, int]) -> dict[str, int]:
    return {tier: n for tier, n in hosts.items() if len(sweep.plan.hosts[tier]) > 1}


def _hosts(hosts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {tier}" for tier, count in hosts.items())
