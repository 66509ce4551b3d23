"""A sweep that is kept in a file: a target, what to vary, what to hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.space.space import Space
from autotune.sweep import axes
from autotune.sweep.plan import Axis, Plan
from autotune.target.document import Document, load
from autotune.target.read import TargetFile, read
from autotune.target.units import duration, rate

KEYS = ("title", "target", "over", "hosts", "with", "rates", "repeat", "seconds")


@dataclass(frozen=True)
class Request:
    """What to sweep, as a user wrote it: values are not yet those of parameters.

    ``rates`` in requests/s, none for peaks; ``seconds`` of one reading.
    """

    title: str
    over: tuple[tuple[str, tuple[object, ...]], ...]
    hosts: dict[str, tuple[int, ...]]
    settings: dict[str, object]
    rates: tuple[float, ...] = ()
    repeat: int = 3
    seconds: float = 5.0


def sweep_file(path: Path) -> tuple[TargetFile, Request | None]:
    """A sweep file and its target, or a target alone. Raises TargetError (file:line:column)."""
    document = load(path)
    if "target" not in document.root:
        return read(path), None
    for key in document.root:
        if key not in KEYS:
            raise document.unknown([key], "key", KEYS)
    target = read((path.parent / str(document.root["target"])).resolve())
    return target, _request(document)


def plan_of_request(file: TargetFile, request: Request, space: Space) -> Plan:
    """The grid of a request. Raises AutotuneError for what the target does not have."""
    if not request.over and not request.hosts:
        raise AutotuneError("nothing varies", hint="give --over NAME=LOW:HIGH:STEP or --hosts")
    for tier, counts in request.hosts.items():
        _enough(file, tier, counts)
    settings = {
        name: value for name, given in request.settings.items()
        for value in [axes.of(name, [given], space).choices[0].label]
    }  # fmt: skip
    plan = Plan(
        title=request.title,
        axes=tuple(axes.of(name, values, space) for name, values in request.over),
        hosts=request.hosts,
        settings=settings,
        rates=request.rates,
        repeat=request.repeat,
        seconds=request.seconds,
        seed=file.target.search.seed,
        keys=_keys(file),
    )
    for axis in plan.axes:
        _check_effect(axis, plan, space)
    return plan


def _enough(file: TargetFile, tier: str, counts: tuple[int, ...]) -> None:
    tiers = file.target.tiers
    if tier not in tiers:
        raise AutotuneError(
            f"there is no tier {tier!r}", hint=f"expected one of: {', '.join(tiers)}"
        )
    most = len(tiers[tier].hosts)
    if not counts or min(counts) < 1 or max(counts) > most:
        raise AutotuneError(f"tier {tier} has {most} hosts: give numbers from 1 to {most}")


def _check_effect(axis: Axis, plan: Plan, space: Space) -> None:
    """A parameter without effect anywhere in the sweep would draw a flat line and prove nothing."""
    if axis.name == axes.SERVICE:
        return
    for point in plan.points:
        if axis.name in space.active({**space.baseline, **point.settings}):
            return
    conditions = next(d.when for d in space.dimensions if d.name == axis.name)
    needed = ", ".join(f"{name}={'|'.join(map(str, values))}" for name, values in conditions)
    raise AutotuneError(
        f"{axis.name} has no effect under these settings", hint=f"it has with: --with {needed}"
    )


def _keys(file: TargetFile) -> int:
    """Keys each request looks up, where the application is one whose requests are known."""
    reference = any(tier.app == "reference" for tier in file.target.tiers.values())
    return file.target.data.keys_per_request if reference else 1


def _request(document: Document) -> Request:
    root = document.root
    over = _mapping(document, "over")
    hosts = _mapping(document, "hosts")
    return Request(
        title=str(root.get("title", document.path.stem)),
        over=tuple((name, _values(document, name, over[name])) for name in over),
        hosts={tier: _counts(document, tier, hosts[tier]) for tier in hosts},
        settings=_mapping(document, "with"),
        rates=_rates(document),
        repeat=_whole(document, "repeat", 3),
        seconds=_seconds(document),
    )


def _mapping(document: Document, key: str) -> dict[str, Any]:
    mapping = document.root.get(key, {})
    if not isinstance(mapping, dict):
        raise document.error([key], f"{key}: must have keys of its own")
    return mapping


def _values(document: Document, name: str, written: object) -> tuple[object, ...]:
    try:
        return tuple(written) if isinstance(written, list) else tuple(axes.spread(str(written)))
    except AutotuneError as error:
        raise document.error(["over", name], error.message, hint=error.hint) from None


def _counts(document: Document, tier: str, written: object) -> tuple[int, ...]:
    listed = written if isinstance(written, list) else [written]
    if any(isinstance(n, bool) or not isinstance(n, int) for n in listed):
        raise document.error(["hosts", tier], f"{tier}: numbers of hosts, such as [1, 2, 3]")
    return tuple(listed)


def _rates(document: Document) -> tuple[float, ...]:
    written = document.root.get("rates", [])
    try:
        return tuple(rate(text) for text in (written if isinstance(written, list) else [written]))
    except ValueError as error:
        raise document.error(["rates"], f"rates: {error}") from None


def _whole(document: Document, key: str, default: int) -> int:
    number = document.root.get(key, default)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 100:
        raise document.error([key], f"{key}: a whole number from 1 to 100")
    return number


def _seconds(document: Document) -> float:
    try:
        return duration(document.root.get("seconds", "5s"))
    except ValueError as error:
        raise document.error(["seconds"], f"seconds: {error}") from None


def from_options(
    path: Path,
    over: Sequence[str] | None,
    hosts: Sequence[str] | None,
    with_: Sequence[str] | None,
    rates: Sequence[float] | None,
    repeat: int | None,
    *,
    peak: bool,
) -> tuple[TargetFile, Request]:
    """The target and what to sweep; options replace what the file says under the same name.

    Raises TargetError for the file and AutotuneError for options that make no sense.
    """
    file, written = sweep_file(path)
    base = written or Request(title="", over=(), hosts={}, settings={})
    request = replace(
        base,
        over=_over(base, over or ()),
        hosts=base.hosts | dict(_host_counts(text) for text in hosts or ()),
        settings=base.settings | dict(_setting(text) for text in with_ or ()),
        rates=tuple(rates) if rates else base.rates,
        repeat=repeat or base.repeat,
    )
    if peak:
        if rates:
            raise AutotuneError("--rate and --peak exclude each other")
        request = replace(request, rates=())
    elif not request.rates and written is None:
        raise AutotuneError("what to measure is not said", hint="give --rate R, or --peak")
    if any(rate <= 0 for rate in request.rates):
        raise AutotuneError("a rate must be more than nothing")
    return file, request if request.title else replace(request, title=_title(request))


def directory_name(path: Path, file: TargetFile) -> str:
    """What the sweep's directory is called."""
    return f"{file.target.name}-sweep" if path.resolve() == file.path.resolve() else path.stem


def size_text(plan: Plan) -> str:
    """The size of it, before it begins."""
    measurements = len(plan.points) * plan.repeat
    what = (
        f"{len(plan.rates)} readings of {plan.seconds:g} s"
        if plan.rates
        else "a search for its peak"
    )
    return f"{len(plan.points)} points, each measured {plan.repeat} times: {measurements} × {what}."


def _over(base: Request, texts: Iterable[str]) -> tuple[tuple[str, tuple[object, ...]], ...]:
    chosen = dict(base.over)
    for text in texts:
        key, _, values = text.partition("=")
        if not values:
            raise AutotuneError(
                f"--over {text}: no values", hint="write NAME=LOW:HIGH:STEP or NAME=A,B,C"
            )
        chosen[key] = tuple(axes.spread(values))
    return tuple(chosen.items())


def _host_counts(text: str) -> tuple[str, tuple[int, ...]]:
    tier, _, numbers = text.partition("=")
    try:
        return tier, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise AutotuneError(f"--hosts {text}: no numbers", hint="write TIER=1,2,3") from None


def _setting(text: str) -> tuple[str, object]:
    key, _, given = text.partition("=")
    if not given:
        raise AutotuneError(f"--with {text}: no value", hint="write NAME=VALUE")
    return key, given


def _title(request: Request) -> str:
    varied = [*(key for key, _ in request.over), *(f"hosts of {tier}" for tier in request.hosts)]
    return f"{'Response time' if request.rates else 'Peak'} over {' and '.join(varied)}"
