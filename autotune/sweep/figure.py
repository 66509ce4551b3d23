"""A sweep as figures: which quantity goes on which axis, and what makes a series. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from autotune.services.base import Value
from autotune.sweep.axes import SERVICE
from autotune.sweep.results import Found, Mean, Result

Quantity = Callable[[Result], Mean | None]
OVERLOADED = 0.5  # fraction of violations


@dataclass(frozen=True)
class Dot:
    """A point of a series: ``x`` is a number, or a word on an axis of words."""

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
    """One diagram. ``main``: it shows what the sweep is about, and not what it took of hosts."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    main: bool = True


def panels(found: Found) -> tuple[Panel, ...]:
    """Response time first (or the peak), then the load average of each tier.

    A parameter that is a number is what the diagrams are drawn over; where only services and host
    counts vary, they are drawn over the throughput, one for each combination of hosts, as the
    reference figures are.
    """
    drawn = [_panel(found, one, shown) for one in _quantities(found) for shown in _shares(found)]
    return tuple(panel for panel in drawn if any(series.dots for series in panel.series))


def _shares(found: Found) -> Iterator[Mapping[str, int] | None]:
    """The combinations of hosts that have a diagram of their own; ``None``: all in one."""
    if over(found) is None and len(found.plan.combinations) > 1:
        yield from found.plan.combinations
    else:
        yield None


def over(found: Found) -> str | None:
    """The parameter on the horizontal axis; ``None`` for the throughput."""
    numeric = [axis.name for axis in found.plan.axes if axis.numeric]
    if numeric:
        return numeric[0]
    if found.plan.rates:
        return None
    words = [axis.name for axis in found.plan.axes]
    return words[0] if words else "hosts"


def best(found: Found) -> Result | None:
    """The highest peak. Over a parameter, the least mean response time at the highest rate that any
    point bore; over the throughput, the highest rate within the objective, and the quickest there.
    """
    if not found.plan.rates:
        peaks = [r for r in found.results if r.peak]
        return max(peaks, key=lambda r: r.peak.value if r.peak else 0.0, default=None)
    timed = [r for r in found.results if r.response and not r.failure]
    if over(found) is None:
        timed = [r for r in timed if r.met]
    top = max((r.rate for r in timed if r.rate is not None), default=None)
    highest = [r for r in timed if r.rate == top]
    return min(highest, key=lambda r: r.response.value if r.response else 0.0, default=None)


@dataclass(frozen=True)
class _Quantity:
    title: str
    unit: str
    of: Quantity
    main: bool


def _quantities(found: Found) -> Iterator[_Quantity]:
    if not found.plan.rates:
        yield _Quantity("Peak within the objective", "requests/s", lambda r: r.peak, main=True)
        return
    yield _Quantity("Response time", "ms", lambda r: _scaled(r.response, 1000.0), main=True)
    for tier in found.target.tiers:
        yield _Quantity(f"Load average, {tier}", "load average", _load(tier), main=False)


def _load(tier: str) -> Quantity:
    return lambda result: result.load.get(tier)


def _panel(found: Found, one: _Quantity, shown: Mapping[str, int] | None) -> Panel:
    horizontal = over(found)
    grouped: dict[str, list[Dot]] = {}
    for result in found.results:
        if shown is not None and result.point.hosts != shown:
            continue
        dots = grouped.setdefault(series_name(found, result, horizontal, alone=bool(shown)), [])
        dot = (
            _dot(found, result, horizontal, one.of(result)) if _drawn(result, horizontal) else None
        )
        if dot is not None:
            dots.append(dot)
    x = horizontal or ("keys/s" if found.plan.keys > 1 else "requests/s answered")
    title = f"{one.title}: {_hosts(_varied(found, shown))}" if shown else one.title
    series = tuple(Series(name, tuple(dots)) for name, dots in grouped.items())
    return Panel(title, x, one.unit, series, one.main)


def _drawn(result: Result, horizontal: str | None) -> bool:
    """Over the throughput a line ends where a stack no longer answers what it is offered."""
    if result.failure:
        return False
    return horizontal is not None or (result.violations or 0.0) <= OVERLOADED


def _dot(found: Found, result: Result, horizontal: str | None, y: Mean | None) -> Dot | None:
    if y is None:
        return None
    if horizontal is not None:
        label = result.point.labels.get(horizontal, _hosts(result.point.hosts))
        return Dot(label, y.value, y.low, y.high)
    x = _scaled(result.throughput, float(found.plan.keys))
    return Dot(x.value, y.value, y.low, y.high) if x else None


def series_name(
    found: Found, result: Result, horizontal: str | None, *, alone: bool = False
) -> str:
    """All that varies beside the horizontal axis, each by its short name.

    ``alone``: the host counts are in the diagram's title already.
    """
    named = [
        str(label) if name == SERVICE else f"{name.rpartition('.')[2]} {label}"
        for name, label in result.point.labels.items()
        if name != horizontal
    ]
    varied = _varied(found, result.point.hosts)
    if varied and horizontal != "hosts" and not alone:
        named.append(_hosts(varied))
    if horizontal is not None and len(found.plan.rates) > 1:
        named.append(f"{result.rate:g}/s")
    return " · ".join(named) or found.plan.title


def _varied(found: Found, hosts: Mapping[str, int]) -> dict[str, int]:
    return {tier: n for tier, n in hosts.items() if len(found.plan.hosts[tier]) > 1}


def _hosts(hosts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {tier}" for tier, count in hosts.items())


def _scaled(one: Mean | None, factor: float) -> Mean | None:
    if one is None:
        return None
    low = one.low * factor if one.low is not None else None
    high = one.high * factor if one.high is not None else None
    return Mean(one.value * factor, low, high, one.count)
